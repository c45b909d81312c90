"""The destination of a conversion: its files, which files exist, and the writers of the files."""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

from highway.cli.convert.format import read_back
from highway.datasets.dataset import length_of
from highway.datasets.format import Format
from highway.datasets.writing import SampleWriter, is_taken
from highway.errors import ConfigError, HighwayError
from highway.stores.file import exists, names_in
from highway.stores.url import basename, is_url, join, parent, parse, shown

_NUMBER = re.compile(r"%0?\d*d")
_AT_ONCE = 64  # number of samples that a worker writes one after another if each sample is a file


@dataclass
class Target:
    """The destination of a conversion.

    Args:
        path: The path. For several files, the path has a placeholder for the index of the file, such as ``photos-%06d.tar``.
        format: The format.
        size: Number of samples in each file, if there are several files.
        given: Arguments of the writer except the path.
    """

    path: str
    format: Format
    size: int
    given: Mapping[str, Any] = field(default_factory=dict)
    _shared: SampleWriter | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        places = len(_NUMBER.findall(self.path))
        may = self.format.layout == "files" and (not is_url(self.path) or "%" in basename(self.path))
        if places != self.path.count("%") or places > may:
            raise ConfigError(f"{self.name}: expected {_EXPECTED[self.format.layout].format(suffix=(*self.format.suffixes, '')[0])}")
        if self.format.layout == "each":
            self.size = 1

    @property
    def name(self) -> str:
        """The name of the target in messages."""
        return shown(self.path)

    @property
    def folder(self) -> str:
        """The folder of the files and of the record of the conversion."""
        return self.path if self.format.layout in ("each", "keys") else parent(self.path)

    @property
    def record(self) -> str:
        """The file name of the record of the conversion, in :attr:`folder`."""
        return f".highway-convert-{basename(self.path if is_url(self.path) else os.path.abspath(self.path))}.json"

    @property
    def pattern(self) -> str:
        """The path with a placeholder for the index of the file; empty if the file names have no index."""
        if self.format.layout == "each":
            return join(self.path, f"%09d{self.format.suffixes[0]}")
        return self.path if self.format.layout == "files" and "%" in self.path else ""

    @cached_property
    def _stored(self) -> set[str]:
        """The names of the files in a store. The store is listed once."""
        return names_in(parent(self.pattern))

    def is_empty(self) -> bool:
        """Return whether no file exists yet."""
        if self.pattern and self.format.layout == "files":
            return not self._numbered()
        return not (names_in(self.path) - {self.record} or (exists(self.path) and not os.path.isdir(self.path)))

    def expect_readable(self) -> None:
        """Raise ConfigError if files in a store cannot be read back on this machine."""
        if is_url(self.path) and self.format.is_copied and not parse(self.path).options.cache_dir:
            raise ConfigError(
                f"{self.name}: --check reads {self.format.name} from a copy on this machine; set the folder of the copy with "
                f"HIGHWAY_CACHE_DIR in the environment, or append ?cache_dir=FOLDER to DST"
            )

    def has(self, number: int) -> bool:
        """Return whether the file with sample ``number`` exists (assumed to be complete). False if file names have no index."""
        if not self.pattern:
            return False
        path = self.pattern % (number // self.size)
        return basename(path) in self._stored if is_url(path) else os.path.exists(path)

    def lacks(self, total: int) -> bool:
        """Return whether a file of a finished conversion of ``total`` samples is missing."""
        return any(self.units(total)) if self.pattern else not is_taken(self.path)

    def whole(self, total: int | None) -> int | None:
        """Return the number of samples if the target is a complete single file with ``total`` samples (if known), otherwise ``None``."""
        if self.pattern or self.format.layout == "keys" or not is_taken(self.path):
            return None
        try:
            found = length_of(read_back(self.format, [self.path]))
        except (OSError, HighwayError):  # the target is incomplete, for instance a cache, which is a folder
            return None
        return found if total in (None, found) else None

    def units(self, total: int) -> Iterator[range]:
        """Yield ranges of indices of missing samples. Each range is written separately."""
        size = self.size if self.pattern else _AT_ONCE
        for begin in range(0, total, size):
            if not self.has(begin):
                yield range(begin, min(begin + size, total))

    @property
    def is_written_in_parts(self) -> bool:
        """Whether several threads can write to the target concurrently."""
        return bool(self.pattern) or self.format.layout == "keys"

    def unit_of(self, number: int) -> int:
        """Return the index of the file that contains the sample with index ``number``."""
        return number // self.size if self.pattern else 0

    def part(self, number: int) -> AbstractContextManager[SampleWriter]:
        """Return the writer of the file that contains the sample with index ``number``."""
        if self._shared is not None:
            return nullcontext(self._shared)
        return self.format.write(self.pattern % self.unit_of(number) if self.pattern else self.path, self.given)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """If all threads share one writer, keep this writer open in the ``with`` block."""
        with ExitStack() as stack:
            if self.format.layout == "keys":
                self._shared = stack.enter_context(self.format.write(self.path, self.given))
            try:
                yield
            finally:
                self._shared = None

    def paths(self) -> list[str]:
        """Return the paths of the written files, to read them back."""
        if not self.pattern or self.format.layout == "each":
            return [self.path]
        return self._numbered()

    def _numbered(self) -> list[str]:
        """Return the existing files, sorted by index."""
        before, after = _NUMBER.split(self.path)
        if is_url(self.path):
            paths = [join(self.folder, name) for name in names_in(self.folder)]
        else:
            paths = glob.glob(f"{glob.escape(before)}[0-9]*{glob.escape(after)}")
        found = (re.fullmatch(f"{re.escape(before)}([0-9]+){re.escape(after)}", path) for path in paths)
        return [match[0] for match in sorted(filter(None, found), key=lambda match: int(match[1]))]

    def remove_parts(self) -> None:
        """Remove the temporary files of killed writers."""
        if is_url(self.path):
            return  # the next upload from the same machine removes the remains of uploads
        stem = _NUMBER.sub("*", glob.escape(self.pattern or self.path))
        for path in chain(glob.iglob(f"{stem}.*.part"), glob.iglob(os.path.join(glob.escape(self.path), "*.part"))):
            owner = re.search(r"\.(\d+)\.part$", path)
            if owner and not os.path.exists(f"/proc/{owner[1]}"):
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


_EXPECTED = {
    "files": "at most one number format, such as samples-%06d{suffix}",
    "one": "a path without %, because all samples are in one file or folder",
    "each": "a folder, without %",
    "keys": "a folder, without %",
}
