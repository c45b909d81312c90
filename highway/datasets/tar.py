"""Random access to the samples in WebDataset shards. A shard is a tar archive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from highway.datasets.dataset import LazyKeys
from highway.datasets.index.file import Group, index_path
from highway.datasets.index.of_files import indexes_of
from highway.datasets.opened import MOST_OPEN, opened
from highway.datasets.parts import PartedDataset, Spans
from highway.datasets.tar_index import VERSION, TarIndex, index_of
from highway.datasets.tar_samples import decoded_sample, places_of, shards_of
from highway.datasets.tar_stream import add_hint, has_ranges, path_of
from highway.errors import ShardError
from highway.parameters.checks import checked
from highway.parameters.ranges import Predicate
from highway.stores.file import fingerprint_of, open_file, read_ranges
from highway.stores.unchanging import FileRange
from highway.stores.url import is_url, shown


def _are_files(paths: str | list[str]) -> bool:
    return bool(shards_of(paths)) and all(map(has_ranges, shards_of(paths)))


class _Shards:
    """The samples of several shards."""

    def __init__(self, paths: Sequence[str], indexes: Sequence[Group]) -> None:
        self.paths, self.are_stored = paths, any(map(is_url, paths))
        self.spans = Spans(index.lengths[TarIndex._fields.index("ends")] for index in indexes)
        self.open = lru_cache(MOST_OPEN)(lambda shard: open_file(paths[shard], indexes[shard].state))
        self.index = lru_cache(None)(lambda shard: TarIndex(*indexes[shard].arrays))

    def key(self, number: int) -> str:
        shard, row = self.spans.place(number)
        return self.index(shard).key(row)


@checked
@dataclass
class Tar(PartedDataset):
    """The samples in WebDataset shards, shard by shard.

    On the first access, highway scans the shards to find the offsets of the files, at about 150,000 files per second. An index file can
    store these offsets. A shard that is in an index file is not scanned. To scan a shard in an object store, such as S3, highway fetches
    the whole shard. To read compressed shards or pipes, use :class:`~highway.modules.WebDatasetSource`.

    A tar archive has no checksums of file contents. Damage in the content of a file is therefore not detected.

    Args:
        paths: The paths or URLs of uncompressed shards. Braces are expanded: ``photos-{000..015}.tar``.
        fields: A dict from new field names to the fields to read. ``{"image": "png;jpg;jpeg"}`` reads the first of these fields that a
            sample has. ``None`` reads all fields under their own names.
        index: ``True``: write the index file ``highway-tar.index`` into the folder of the shards. A path: write the index file into this
            folder. ``False``: write no index file. An existing index file in the folder of the shards is used in all three cases. Shards
            whose size or modification time has changed are scanned again. Local shards are scanned by one process per core, if the scan
            takes more than a second.

    A sample is a dict with a field for each file of the sample. The name of a field is the extension of the file, in lower case. The
    extension determines the type of the value (:mod:`highway.datasets.field_codecs`): ``.ten`` and ``.npy`` are arrays, ``.cls`` is an
    int32, and ``.txt`` is a str. Images and all other files are ``bytes``.

    Raises:
        ConfigError: ``paths`` is empty, or a path is a pipe.
        OSError: a shard cannot be opened, or the index file cannot be written (on the first access).
        ShardError: a shard is compressed, damaged or truncated, or has no files (on the first access).
        ShardError: the content of a file does not match its extension, or a sample lacks a field in ``fields``.
        DatasetError: a shard has changed since it was first read.

    >>> samples = [{"txt": "a text", "cls": 3}, {"txt": "another", "cls": 5}]
    >>> Pipeline([samples, ShardSink("texts-%03d.tar")]).run()
    >>> dataset = Tar("texts-000.tar", fields={"text": "txt", "label": "cls"})
    >>> len(dataset), dataset[1]
    (2, {'text': 'another', 'label': np.int32(5)})
    """

    paths: Annotated[str | list[str], Predicate(_are_files, "shards, such as 'photos-{000..015}.tar'; WebDatasetSource reads pipes")]
    fields: dict[str, str] | None = None
    index: bool | str = False

    @property
    def shards(self) -> list[str]:
        """The paths of the shards, with braces expanded."""
        return [path_of(shard) for shard in shards_of(self.paths)]

    @opened
    def _shards(self) -> _Shards:
        try:
            return _Shards(self.shards, indexes_of(self.shards, "tar", VERSION, index_of, self.index))
        except FileNotFoundError as error:
            add_hint(error)
            raise

    @property
    def spans(self) -> Spans:
        return self._shards.spans

    def __getitem__(self, number: int) -> dict[str, Any]:
        extensions, files = self._files_of(number)
        try:
            return decoded_sample(extensions, lambda place: files[place].read(), self.fields)
        except ShardError as error:
            raise self._about(number, error) from error.__cause__

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return several samples. Files in an object store are requested concurrently."""
        if not self._shards.are_stored:
            return list(map(self.__getitem__, numbers))
        ranges, wanted = list[FileRange](), list[tuple[list[str], dict[int, int]]]()
        for number in numbers:
            extensions, files = self._files_of(number)
            try:
                places = places_of(extensions, self.fields).values()
            except ShardError as error:
                raise self._about(number, error) from error.__cause__
            wanted.append((extensions, {place: len(ranges) + at for at, place in enumerate(places)}))
            ranges += [files[place] for place in places]
        contents, samples = read_ranges(ranges), list[dict[str, Any]]()
        for number, (extensions, at) in zip(numbers, wanted, strict=True):
            try:
                samples.append(decoded_sample(extensions, {place: contents[of] for place, of in at.items()}.__getitem__, self.fields))
            except ShardError as error:
                raise self._about(number, error) from error.__cause__
        return samples

    def _files_of(self, number: int) -> tuple[list[str], list[FileRange]]:
        """Return the extensions of a sample's files, and the ranges of these files in the shard."""
        shards = self._shards
        shard, row = shards.spans.place(number)
        index, file = shards.index(shard), shards.open(shard)
        files = index.files(row)
        kinds, offsets, sizes = (column[files].tolist() for column in (index.kinds, index.offsets, index.sizes))
        ranges = [FileRange(file, offset, size) for offset, size in zip(offsets, sizes, strict=True)]
        return [str(index.extensions[kind]) for kind in kinds], ranges

    def _about(self, number: int, error: ShardError) -> ShardError:
        return ShardError(f"{self.locate(number)}: {error}")

    @property
    def keys(self) -> Sequence[str]:
        """The keys of the samples. The key of a sample is the path of its files in the shard, without the extension."""
        shards = self._shards
        return LazyKeys(shards.key, len(shards.spans))

    def kept_at(self, facts: str) -> str | None:
        """Return the path of a file that stores the costs (such as pixels) of the samples. Return ``None`` if ``index`` is ``False``.

        If ``index`` is ``True``, the file is in the folder of the first shard. If ``index`` is a path, the file is in this folder.
        """
        return index_path(f"{self.shards[0]}.{facts}", self.index) if self.index else None

    def locate(self, number: int) -> str:
        """Return the shard and key of a sample."""
        return f"{shown(self._shards.paths[self.spans.place(number)[0]])}: sample {self.keys[number]!r}"

    def fingerprint(self) -> str:
        """Return a string that changes when shards are added, removed, renamed or written to, or when ``fields`` changes."""
        return f"{fingerprint_of((path, path) for path in self.shards)} {self.fields}"
