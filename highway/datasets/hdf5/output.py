"""The file object to which HDF5 writes, and the thread that calls h5py."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, TypeVar

from highway.datasets.hdf5.backend import LOCK, h5py

T = TypeVar("T")
Call = Callable[[Callable[[], T]], T]


class _Output:
    """A file object to which h5py writes. If a write to the disk fails, the data stay in memory, and ``check`` raises the error.

    If a write raised an error, HDF5 would crash the process when the file is closed, or when the process exits.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
        self._at = self._end = 0
        self._rest: list[tuple[int, bytes]] = []
        self._error: OSError | None = None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._end)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:  # h5py requires this method of a file object
        data = bytearray(size if size >= 0 else max(0, self._end - self._at))
        self.readinto(data)
        return bytes(data)

    def readinto(self, buffer: Any) -> int:
        memory = memoryview(buffer).cast("B")
        memory[:] = bytes(len(memory))
        os.preadv(self._descriptor, [memory], self._at)
        for begin, data in self._rest:
            first, stop = max(begin, self._at), min(begin + len(data), self._at + len(memory))
            if first < stop:
                memory[first - self._at : stop - self._at] = data[first - begin : stop - begin]
        self._at += len(memory)
        return len(memory)

    def write(self, buffer: Any) -> int:
        memory, done = memoryview(buffer).cast("B"), 0
        try:
            while self._error is None and done < len(memory):
                done += os.pwrite(self._descriptor, memory[done:], self._at + done)
        except OSError as error:
            self._error = error
        if done < len(memory):
            self._rest.append((self._at + done, bytes(memory[done:])))
        self._at += len(memory)
        self._end = max(self._end, self._at)
        return len(memory)

    def truncate(self, size: int) -> int:
        try:
            if self._error is None:
                os.ftruncate(self._descriptor, size)
        except OSError as error:
            self._error = error
        self._end = size
        return size

    def flush(self) -> None:
        pass

    def check(self) -> None:
        """Raise OSError if a write to the disk failed."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        os.close(self._descriptor)


@contextmanager
def h5py_file(path: str) -> Iterator[tuple[Any, Call[Any]]]:
    """Create an HDF5 file, and close it at the end of the ``with`` block. Yield the h5py file, and a function that must call h5py.

    The yielded function runs an operation of h5py in a separate thread. In the main thread, Ctrl-C raises KeyboardInterrupt, which could
    make a write fail.

    Raises:
        OSError: the file cannot be written.
    """
    with closing(_Output(path)) as output, ThreadPoolExecutor(1, "highway-hdf5") as thread:

        def locked(operation: Callable[[], Any]) -> Any:
            with LOCK:
                return operation()

        def call(operation: Callable[[], Any]) -> Any:
            result = thread.submit(locked, operation).result()
            output.check()
            return result

        file = call(lambda: h5py.File(output, "w"))
        try:
            yield file, call
        finally:
            thread.submit(locked, file.close).result()
        output.check()
