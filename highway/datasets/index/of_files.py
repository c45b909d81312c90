"""Find, create and store the indexes of data files. An index contains the byte offsets of the samples in one data file."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby

from highway.datasets.index.file import Group, IndexFile, index_path, load_index, save_index
from highway.datasets.index.scanning import Scan, scanned
from highway.engine.cancel import wait
from highway.stores.file import states_of
from highway.stores.unchanging import FileState
from highway.stores.url import basename, is_url, join, parent

_TICK = 0.05  # seconds between two checks whether another process has finished


def indexes_of(paths: Sequence[str], kind: str, version: str, scan: Scan, where: bool | str) -> list[Group]:
    """Return the index of each data file. A data file is scanned if no index file contains its index, or if the data file has changed.

    Args:
        paths: Paths or URLs of the data files.
        kind: The format of the data files. The name of an index file is ``highway-KIND.index``.
        version: The format of the data files and the version of their indexes, such as ``"tar 2"``.
        scan: A function that computes the index of one data file.
        where: ``True``: write the index file into the folder of the data files, if indexes are missing. A path: write the index file into
            this folder. ``False``: write no index file.

    Raises:
        FileNotFoundError: a file does not exist.
        OSError: a file cannot be read, or the index file cannot be written.
    """
    states = dict(states_of((path, path) for path in paths))
    folders = {path: parent(path) for path in states}
    names = {path: folder.partition("?")[0] if is_url(folder) else folder for path, folder in folders.items()}
    found = dict[str, Group]()
    for _, group in groupby(sorted(states, key=names.__getitem__), names.__getitem__):
        own = list(group)
        folder = _FolderIndex(folders[own[0]], kind, version, scan, where)
        found |= folder.of({path: states[path] for path in own})
    return [found[path] for path in paths]


class _FolderIndex:
    """The index file for the data files of one folder. For the arguments, see :func:`indexes_of`."""

    def __init__(self, folder: str, kind: str, version: str, scan: Scan, where: bool | str) -> None:
        path = join(folder, f"highway-{kind}")
        self._folder, self._version, self._scan, self._writes = folder, version, scan, bool(where)
        self._path = index_path(path, where)
        self._beside = index_path(path, False)

    def of(self, states: Mapping[str, FileState]) -> dict[str, Group]:
        """Return the index of each data file. ``states`` has the size and modification time of each data file."""
        found = self._kept(states)
        missing = [path for path in states if path not in found]
        if not missing:
            return found
        if not self._writes:
            return found | {path: self._scan(path) for path in missing}
        while True:
            with self._lock() as ours:
                found = self._kept(states)  # check again: another process might have written the index file
                if len(found) == len(states):
                    return found
                if ours:
                    return self._built(found, states)
            wait(_TICK)

    def _kept(self, states: Mapping[str, FileState]) -> dict[str, Group]:
        """Return the indexes in the index files. Skip the indexes of data files that have changed."""
        found = dict[str, Group]()
        for place in dict.fromkeys([self._path, self._beside]):
            missing = [path for path in states if path not in found]
            if missing and (index := self._load(place)) is not None:
                groups = {path: index[name] for path in missing if (name := basename(path)) in index}
                found |= {path: group for path, group in groups.items() if group.state == states[path]}
        return found

    def _load(self, place: str) -> IndexFile | None:
        return load_index(place, self._version, lambda name: self._scan(join(self._folder, name)))

    def _built(self, found: Mapping[str, Group], states: Mapping[str, FileState]) -> dict[str, Group]:
        """Scan the data files that are not in ``found``, write the index file, and return all indexes."""
        new = scanned([path for path in states if path not in found], self._scan, self._version)
        kept = self._kept(states)
        if len(kept) == len(states):  # another machine wrote the index file; do not replace a file that its processes have mapped
            return kept
        built = {**found, **new}
        save_index(self._path, self._version, {**self._others(), **{basename(path): group for path, group in built.items()}})
        return {**built, **self._kept(states)}  # use the arrays in the mapped file, so that the arrays in memory are freed

    def _others(self) -> dict[str, Group]:
        """Return all indexes in the index file. Skip the indexes of data files that were removed."""
        if (index := self._load(self._path)) is None:
            return {}
        return {name: index[name] for name in index if is_url(self._folder) or os.path.exists(join(self._folder, name))}

    @contextmanager
    def _lock(self) -> Iterator[bool]:
        """Try to lock the index file. Yield whether this succeeded. The lock is a local file: network disks might not support locks."""
        from highway.stores.cache import locked  # imported here, because reading an index does not need this module

        index = self._path if is_url(self._path) else os.path.abspath(self._path)
        digest = hashlib.blake2b(index.encode(errors="surrogateescape"), digest_size=8).hexdigest()
        path = os.path.join(tempfile.gettempdir(), f"highway-index-{os.getuid()}-{digest}.lock")
        with locked(path) as ours:
            try:
                yield ours
            finally:
                if ours:
                    with suppress(FileNotFoundError):
                        os.unlink(path)
