"""Items in ``.ten`` files by number."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from highway.datasets.file import fingerprint_of
from highway.datasets.opened import opened
from highway.datasets.writing import writing
from highway.engine.stage import Passport, Stamped
from highway.errors import FrameError
from highway.parameters.checks import checked
from highway.wire.checksum import check, with_checksums
from highway.wire.chunks import load_chunks, write_chunk
from highway.wire.codec import named
from highway.wire.envelope import Envelope


@checked
@dataclass
class TenFiles:
    """The items in ``.ten`` files, one in each, in the sorted order of their paths.

    Args:
        paths: A folder, a file, a pattern such as ``"data/*.ten"``, or a list of them.
        mmap: Map the files into memory instead of reading them. They must not be cut short while items are in use: that ends the process.

    A sample is what was saved: a dict, if :class:`~highway.modules.TenSink` saved one, else a tuple of arrays; they are read-only. Its key
    is the file's path.

    Raises:
        FileNotFoundError: there are no such files (when it is first read).
        FrameError: a file is not whole, not tenbin, or does not fit its checksums (when it is read).

    >>> dataset = TenFiles("data/*.ten")
    """

    paths: str | list[str]
    mmap: bool = False

    @opened
    def keys(self) -> list[str]:
        """The files' paths."""
        return self._found()

    def _found(self) -> list[str]:
        files: list[str] = []
        for path in [self.paths] if isinstance(self.paths, str) else self.paths:
            found = [path] if os.path.isfile(path) else sorted(glob.glob(os.path.join(path, "*.ten") if os.path.isdir(path) else path))
            if not found:
                raise FileNotFoundError(f"'{path}': no .ten files there")
            files += found
        return files

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, number: int) -> Any:
        return self.with_passport(number).item

    def with_passport(self, number: int) -> Stamped:
        """Return an item with the passport that was saved with it; if that names no samples, the file's path does."""
        path = self.keys[number]
        try:
            frames = load_chunks(path, self.mmap)
            message = named("tensorcom").decode(frames)
            check(frames)
        except FrameError as error:
            raise FrameError(f"{path}: {error}") from error
        passport = (message.envelope and message.envelope.passport) or Passport()
        return Stamped(message.item, passport if passport.keys else passport._replace(keys=(path,)))

    def locate(self, number: int) -> str:
        """Return the path of a file."""
        return self.keys[number]

    def fingerprint(self) -> str:
        """Return a text that changes when files are added, removed, renamed or written to."""
        return fingerprint_of((path, path) for path in self._found())


def save(path: str, item: Any, passport: Passport) -> int:
    """Write an item with its passport and a checksum for each array, whole and on the disk, and return how many bytes that are.

    Raises:
        ItemError: a field cannot be saved.
    """
    frames = named("tensorcom").encode(item, Envelope(passport=passport), allow64=True)
    with writing(path, durable=True) as name, open(name, "wb") as stream:
        for frame in with_checksums(frames):
            write_chunk(stream, frame)
        return stream.tell()


class TenWriter:
    """Writes a sample; see :func:`ten_writer`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.samples = 0

    def add(self, key: str, sample: Mapping[str, Any]) -> None:
        """Write the sample.

        Raises:
            ItemError: a field cannot be saved.
            ValueError: it is the second one.
        """
        if self.samples:
            raise ValueError(f"{self._path}: a .ten file holds one sample; give {key!r} a file of its own")
        save(self._path, dict(sample), Passport(keys=(key,)))
        self.samples += 1


@contextmanager
def ten_writer(path: str) -> Iterator[TenWriter]:
    """Write a ``.ten`` file of one sample, a dict of arrays, which has its name only when it is whole."""
    yield TenWriter(path)
