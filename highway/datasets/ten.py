"""Random access to samples and batches in ``.ten`` files, highway's format for arrays."""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from highway.datasets.opened import opened
from highway.datasets.writing import writing
from highway.engine.stage import Passport, Stamped
from highway.errors import FrameError, ItemError
from highway.parameters.braces import expand_braces
from highway.parameters.checks import checked
from highway.stores.file import read_ranges, state_of
from highway.stores.unchanging import FileRange, UnchangingFile, fingerprint
from highway.stores.url import is_url, shown
from highway.wire.checksum import check, with_checksums
from highway.wire.chunks import load_chunks, read_aligned, write_chunk
from highway.wire.codec import named
from highway.wire.envelope import Envelope


@checked
@dataclass
class TenFiles:
    """The samples or batches in ``.ten`` files, one per file. The files of a folder or pattern are sorted by path.

    Args:
        paths: A folder, a file, a pattern such as ``"data/*.ten"``, the URL of one of these, or a list of these. A list is read in the
            order of the list. The subfolders of a folder are skipped.
        mmap: Whether to map files on this machine into memory instead of reading them. If another program truncates a mapped file while its
            arrays are in use, the operating system kills this process.

    A sample is the saved dict or tuple of arrays. The arrays are read-only. The key of a sample is the path of its file.

    Raises:
        FileNotFoundError: a path has no ``.ten`` files (when the dataset is first read).
        FrameError: a file is incomplete or does not match its checksums (when the sample is read).
        FrameError: a file is not in tenbin format, the format of ``.ten`` files (when the sample is read).

    >>> Pipeline([[{"x": np.uint8([1, 2])}, {"x": np.uint8([3])}], TenSink("data")]).run()
    >>> dataset = TenFiles("data/*.ten")
    >>> len(dataset), dataset[1]
    (2, {'x': array([3], dtype=uint8)})
    """

    paths: str | list[str]
    mmap: bool = False

    @opened
    def _files(self) -> list[str | UnchangingFile]:
        return self._found()

    @opened
    def keys(self) -> list[str]:
        """The paths of the files."""
        return list(map(_named, self._files))

    def _found(self) -> list[str | UnchangingFile]:
        """Find the files. A local file is a path, and an object in a store is an :class:`UnchangingFile`."""
        files: list[str | UnchangingFile] = []
        for path in (one for given in ([self.paths] if isinstance(self.paths, str) else self.paths) for one in expand_braces(given)):
            found = _objects(path) if is_url(path) else _paths(path)
            if not found:
                raise FileNotFoundError(f"'{shown(path)}': there are no .ten files")
            files += found
        return files

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, number: int) -> Any:
        return self.with_passport(number).item

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Return several samples. Files in an object store are requested concurrently."""
        return [stamped.item for stamped in self.with_passports(numbers)]

    def with_passport(self, number: int) -> Stamped:
        """Return an item (a sample or batch) with its passport. The passport contains the metadata of the item: epoch, index and keys.

        If the saved passport has no keys, the path of the file becomes the key.
        """
        return self.with_passports([number])[0]

    def with_passports(self, numbers: Sequence[int]) -> list[Stamped]:
        """Return several items with their passports. Files in an object store are requested concurrently."""
        stored = {number: file for number in numbers if isinstance(file := self._files[number], UnchangingFile)}
        ranges = [FileRange(file, 0, file.state.size) for file in stored.values()]
        contents = dict(zip(stored, read_ranges(ranges), strict=True))
        return [self._decoded(self.keys[number], contents.get(number)) for number in numbers]

    def _decoded(self, path: str, content: bytes | None) -> Stamped:
        """Return the item in a file. ``content`` is the content of the file; ``None``: read the file."""
        try:
            frames = load_chunks(path, self.mmap) if content is None else read_aligned(io.BytesIO(content), len(content))
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
        """Return a string that changes when files are added, removed, renamed or written to."""
        files = [(_named(file), file) for file in self._found()]
        return fingerprint((name, state_of(file) if isinstance(file, str) else file.state) for name, file in files)


def _named(file: str | UnchangingFile) -> str:
    return file if isinstance(file, str) else file.path


def _paths(path: str) -> list[str | UnchangingFile]:
    if os.path.isfile(path):
        return [path]
    if os.path.isdir(path):
        return [os.path.join(path, name) for name in sorted(os.listdir(path)) if name.endswith(".ten") and not name.startswith(".")]
    return [*sorted(glob.glob(path))]


def _objects(url: str) -> list[str | UnchangingFile]:
    from highway.stores.listing import objects_at  # imported here, because local files do not need this module

    return list(objects_at(url, "*.ten"))


def save(path: str, item: Any, passport: Passport) -> int:
    """Write an item with its passport. Wait until the file is on the disk, and return the size of the file in bytes.

    Raises:
        ItemError: a ``.ten`` file cannot contain the value of a field.
    """
    frames = named("tensorcom").encode(item, Envelope(passport=passport), allow64=True)
    with writing(path, durable=True) as name, open(name, "wb") as stream:
        for frame in with_checksums(frames):
            write_chunk(stream, frame)
        return stream.tell()


class TenWriter:
    """Writes one sample; see :func:`ten_writer`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.samples = 0

    def add(self, key: str, sample: Mapping[str, Any]) -> None:
        """Write the sample.

        Raises:
            ItemError: a ``.ten`` file cannot contain the value of a field.
            ValueError: this method was called before: a file contains only one sample.
        """
        if self.samples:
            raise ValueError(f"{self._path}: a .ten file contains one sample; write {key!r} to a separate file")
        try:
            save(self._path, dict(sample), Passport(keys=(key,)))
        except ItemError as error:
            raise ItemError(
                f"a .ten file contains only arrays: {error}; or remove the field, or write a format that supports it"
            ) from error
        self.samples += 1


@contextmanager
def ten_writer(path: str) -> Iterator[TenWriter]:
    """Write one sample, a dict of arrays, into a ``.ten`` file. The file gets its final name only when it is complete."""
    yield TenWriter(path)
