"""What reads the samples of ``highway convert``.

A sample is a dict on its way. Encoded images keep their bytes, in fields named by their extensions.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from highway.data import resolve_data_dir
from highway.datasets.cache_files.claim import MANIFEST
from highway.datasets.cache_files.file import CacheFile
from highway.datasets.cache_files.folder import CacheFolder
from highway.datasets.folder import ImageFiles, flat_files, labelled_files
from highway.datasets.ten import TenFiles
from highway.engine.stage import Passport, Stamped
from highway.errors import ConfigError
from highway.modules.webdataset import WebDatasetSource
from highway.wire.braces import expand_braces

Skip = Callable[[int], bool]  # says of a sample's number whether it is there already


class Input(NamedTuple):
    """Samples to convert."""

    samples: Callable[[Skip], Any]  # returns a source of those that are not skipped
    total: int | None  # how many there are, or None where only reading tells
    fingerprint: str  # changes when the files do


def open_reader(paths: Sequence[str]) -> Input:
    """Return the samples at a path: of label folders or a folder of images, shards, .ten files, or a cache; shards may have several paths.

    Shards and .ten files may be given by a pattern, such as ``photos-*.tar``; shards also with braces.

    Raises:
        FileNotFoundError: there is nothing there.
        ConfigError: it is none of these.
    """
    if all(path.endswith((".tar", ".tar.gz", ".tgz")) or "://" in path or path.startswith("pipe:") for path in paths):
        shards = WebDatasetSource([shard for path in paths for shard in _matching(path)], epochs=1, shuffle=False)
        return Input(lambda skip: Remaining(shards, skip), None, _states(shards.shards))
    if len(paths) > 1:
        raise ConfigError(f"{paths[1]}: of several SRC all must be shards; name a folder, or a pattern in quotes, such as 'samples-*.ten'")
    path = paths[0]
    root = resolve_data_dir(path)
    if path.endswith(".ten") or _has(root, lambda name: name.endswith(".ten")):
        tens = TenFiles(root)
        return Input(partial(Numbered, len(tens), partial(_of_ten, tens)), len(tens), _states(tens.keys))
    if os.path.isfile(os.path.join(root, MANIFEST)):
        file = CacheFolder(root, None).open()
        if file is None:
            raise ConfigError(f"{root}: its {MANIFEST} is not that of a finished cache; see the warning above, and make the cache anew")
        return Input(partial(Numbered, len(file), partial(_of_cache, file)), len(file), file.name)
    found = labelled_files(root) if _has(root, lambda name: os.path.isdir(os.path.join(root, name))) else flat_files(root)
    return Input(lambda skip: FolderSource(found, skip), len(found.keys), _states(list(map(found.path, range(len(found.keys))))))


def _matching(path: str) -> list[str]:
    """Return the shards that a path stands for: braces are written out, then ``*``, ``?`` and ``[...]`` matched with what is there."""
    shards: list[str] = []
    for one in expand_braces(path):
        is_pattern = glob.has_magic(one) and "://" not in one and not one.startswith("pipe:") and not os.path.exists(one)
        found = sorted(glob.glob(one)) if is_pattern else [one]
        if not found:
            raise FileNotFoundError(f"{one!r}: no file has a name like this")
        shards += found
    return shards


def _has(root: str, predicate: Callable[[str], bool]) -> bool:
    return os.path.isdir(root) and any(predicate(name) for name in os.listdir(root) if not name.startswith("."))


def _states(paths: list[str]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        state = os.stat(path) if os.path.exists(path) else None  # what lies behind a URL cannot be asked
        digest.update(repr((os.path.abspath(path), state and (state.st_size, state.st_mtime_ns))).encode())
    return digest.hexdigest()


@dataclass
class FolderSource:
    """Yields the bytes of image files, by their extensions, and their labels as ``cls``."""

    files: ImageFiles
    skip: Skip

    def __iter__(self) -> Iterator[Stamped]:
        stems: set[str] = set()
        for number, path in enumerate(self.files.keys):
            stem, suffix = os.path.splitext(path)
            extension = suffix[1:].lower()
            key = f"{stem}-{extension}" if stem in stems else stem  # else a.jpg and a.png would become one sample
            stems.add(stem)
            if self.skip(number):
                continue
            sample: dict[str, Any] = {extension: self.files.read(number)}
            if self.files.labels:
                sample["cls"] = np.int32(self.files.labels[number])
            yield Stamped(sample, Passport(0, number, keys=(key,)))


@dataclass
class Numbered:
    """Yields samples by number.

    Args:
        length: How many there are.
        sample: Returns a sample, and its keys.
        skip: Which are there already.
    """

    length: int
    sample: Callable[[int], tuple[Any, tuple[str, ...]]]
    skip: Skip

    def __iter__(self) -> Iterator[Stamped]:
        for number in range(self.length):
            if not self.skip(number):
                item, keys = self.sample(number)
                yield Stamped(item, Passport(0, number, keys=keys))


def _of_cache(file: CacheFile, row: int) -> tuple[Any, tuple[str, ...]]:
    return file.layout.item([column[0] for column in file.columns([row])]), file.keys([row])


def _of_ten(files: TenFiles, number: int) -> tuple[Any, tuple[str, ...]]:
    item, passport = files.with_passport(number)
    return item, passport.keys


@dataclass
class Remaining:
    """Yields the samples of shards that are not there yet."""

    shards: WebDatasetSource
    skip: Skip

    def __iter__(self) -> Iterator[Stamped]:
        for stamped in self.shards:
            if not self.skip(stamped.passport.index):
                yield stamped
