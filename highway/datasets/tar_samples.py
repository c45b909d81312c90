"""Group the files of a WebDataset shard into samples, and decode the samples.

Consecutive files with the same key are one sample. The key is the path up to the first dot after the last slash: ``cats/01.jpg`` and
``cats/01.cls`` are the sample ``cats/01`` with the fields ``jpg`` and ``cls``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from highway.datasets.dataset import chosen
from highway.datasets.field_codecs import decode_field, field_name
from highway.datasets.tar_stream import read_members
from highway.engine.context import at_end
from highway.errors import ShardError
from highway.parameters.braces import expand_braces

_NAME = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)")
_META = re.compile(r"__[^/]*__($|/)")

Files = list[tuple[str, bytes]]  # the files of a sample, each with its extension and content
T = TypeVar("T")


def shards_of(urls: str | list[str]) -> list[str]:
    """Return the paths or URLs of shards, with braces expanded."""
    return [shard for url in ([urls] if isinstance(urls, str) else urls) for shard in expand_braces(url)]


def key_and_extension(path: str) -> tuple[str, str] | None:
    """Return the key and the extension (in lower case) of a file. Return ``None`` if the file belongs to no sample."""
    name = None if "__" in path and _META.match(path) else _NAME.fullmatch(path)
    return None if name is None else (name[1], name[2].lower())


def grouped_by_key(
    members: Iterable[tuple[str, T]], ignored: Callable[[], None] = lambda: None
) -> Iterator[tuple[str, list[tuple[str, T]]]]:
    """Yield each sample: the key, and a list of files. A file is a pair of extension (in lower case) and content.

    Args:
        members: Pairs of a file's path and content. The content can be any object, such as a byte offset.
        ignored: A function that is called for each file that belongs to no sample.
    """
    current, files = "", list[tuple[str, T]]()
    for path, content in members:
        name = key_and_extension(path)
        if name is None:
            ignored()
            continue
        if files and name[0] != current:
            yield current, files
            files = []
        current = name[0]
        files.append((name[1], content))
    if files:
        yield current, files


def decoded_sample(extensions: Sequence[str], read: Callable[[int], bytes], fields: Mapping[str, str] | None) -> dict[str, Any]:
    """Decode a sample.

    Args:
        extensions: The extensions of the sample's files.
        read: A function that returns the content of a file. Its argument is the index of the file in ``extensions``. Only the files of the
            selected fields are read.
        fields: A dict from new names to old names; see :func:`~highway.datasets.dataset.chosen`. ``None``: all fields.

    Raises:
        ShardError: a file does not match its extension, or two files contain the same field.
        ShardError: the sample lacks a field in ``fields``.
    """
    sample: dict[str, Any] = {}
    for name, place in places_of(extensions, fields).items():
        data = read(place)
        try:
            sample[name] = decode_field(extensions[place], data)
        except (ValueError, RecursionError) as error:
            raise ShardError(f".{extensions[place]}: {error}") from error
    return sample


def places_of(extensions: Sequence[str], fields: Mapping[str, str] | None) -> Mapping[str, int]:
    """Return the index of each field's file in ``extensions``. For ``fields``, see :func:`decoded_sample`.

    Raises:
        ShardError: two files contain the same field, or a field in ``fields`` has no file.
    """
    places: dict[str, int] = {}
    for place, extension in enumerate(extensions):
        name = field_name(extension)
        if name in places:
            raise ShardError(f"the sample has two files for the field {name!r}; do two samples have the same key?")
        places[name] = place
    try:
        return chosen(places, fields)
    except ValueError as error:
        raise ShardError(str(error)) from None


class SamplesAgain:
    """Reads samples of shards by index. If samples are requested in order, each shard is read only once."""

    def __init__(self, shards: list[str]) -> None:
        self._shards = shards
        self._at, self._last = (-1, -1), ("", Files())
        self._members: Generator[Any] | None = None

    def sample(self, number: int, place: int) -> tuple[str, Files]:
        """Return the key and the files of a sample. ``number`` is the index of the shard, and ``place`` is the index in the shard."""
        if self._members is None:
            at_end(self.close)
        if self._at[0] != number or self._at[1] > place:
            self.close()
            self._members = read_members(self._shards[number])
            self._samples = grouped_by_key(self._members)
            self._at = (number, -1)
        for _ in range(self._at[1], place):
            self._last = next(self._samples, None) or self._missing(number, place)
        self._at = (number, place)
        return self._last

    def _missing(self, number: int, place: int) -> tuple[str, Files]:
        raise ShardError(f"{self._shards[number]}: sample {place} existed before, but is missing now")

    def close(self) -> None:
        if self._members is not None:
            self._members.close()
        self._at = (-1, -1)
