"""Which files of a shard are which sample, and what becomes of them.

``cats/01.jpg`` and ``cats/01.cls`` are the sample with the key ``cats/01`` and the fields ``jpg`` and ``cls``: a key ends at the first dot
behind the last slash. Files that stand one after the other and have one key are a sample.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from highway.datasets.field_codecs import decode_field, field_name
from highway.errors import ShardError
from highway.wire.braces import expand_braces

_NAME = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)")
_META = re.compile(r"__[^/]*__($|/)")

T = TypeVar("T")


def shards_of(urls: str | list[str]) -> list[str]:
    """Return the names of shards, braces expanded."""
    return [shard for url in ([urls] if isinstance(urls, str) else urls) for shard in expand_braces(url)]


def grouped_by_key(
    members: Iterable[tuple[str, T]], ignored: Callable[[], None] = lambda: None
) -> Iterator[tuple[str, list[tuple[str, T]]]]:
    """Yield the key of each sample and its files, named by their extensions in lower case.

    Args:
        members: Paths, and whatever stands for the content of each.
        ignored: Called for each file that belongs to no sample.
    """
    current, files = "", list[tuple[str, T]]()
    for path, content in members:
        name = None if _META.match(path) else _NAME.fullmatch(path)
        if name is None:
            ignored()
            continue
        if files and name[1] != current:
            yield current, files
            files = []
        current = name[1]
        files.append((name[2].lower(), content))
    if files:
        yield current, files


def decoded_sample(extensions: Sequence[str], read: Callable[[int], bytes], fields: Mapping[str, str] | None) -> dict[str, Any]:
    """Return a sample.

    Args:
        extensions: Those of its files.
        read: Returns the content of one of these, by its position; only what is wanted is read.
        fields: What is wanted: new names of fields, and for each the old ones, of which it takes the first that there is, with ``;``
            between them. ``None``: all.

    Raises:
        ShardError: a file is not what its extension says, two are one field, or there is none for a field.
    """
    places: dict[str, int] = {}
    for place, extension in enumerate(extensions):
        name = field_name(extension)
        if name in places:
            raise ShardError(f"it has two files for the field {name!r}; are they two samples with the same key?")
        places[name] = place
    if fields is not None:
        places = {new: _first(places, new, old.split(";")) for new, old in fields.items()}
    sample: dict[str, Any] = {}
    for name, place in places.items():
        data = read(place)
        try:
            sample[name] = decode_field(extensions[place], data)
        except (ValueError, RecursionError) as error:
            raise ShardError(f".{extensions[place]}: {error}") from error
    return sample


def _first(places: Mapping[str, int], new: str, old: Sequence[str]) -> int:
    for name in old:
        if name in places:
            return places[name]
    raise ShardError(f"nothing for the field {new!r}: expected {' or '.join(old)}, found {', '.join(places)}")
