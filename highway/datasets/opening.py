"""Open a dataset of any format by its path."""

from __future__ import annotations

import os
import re
import typing
from collections.abc import Callable, Sequence
from typing import Any

from highway.data import resolve_data_dir
from highway.datasets.dataset import Dataset
from highway.datasets.format import Format, Place
from highway.datasets.formats import by_suffix, format_named, formats
from highway.datasets.paths import expanded
from highway.datasets.records.trusted_pickle import begins_like_pickle
from highway.errors import ConfigError
from highway.stores.url import shown

_ELSEWHERE = re.compile(r"(?!highway:)[a-z][a-z0-9+]+:")  # matches URLs and commands


def recognised(paths: Sequence[str], name: str | None = None) -> tuple[Format, list[str]]:
    """Return the format of paths, and the list of paths. Braces and patterns in the list are expanded.

    Args:
        paths: At least one path, pattern or URL.
        name: The name of the format, if known.

    Raises:
        FileNotFoundError: a path does not exist.
        ConfigError: no format matches all paths, or ``name`` is not the name of a format.
    """
    row = format_named(name) if name else None
    if row is not None and row.is_name:
        return row, list(paths)
    found = [one for path in paths for one in expanded(path)]
    if missing := next((path for path in found if not _ELSEWHERE.match(path) and not os.path.exists(resolve_data_dir(path))), ""):
        raise FileNotFoundError(
            f"{missing!r}: there is no such file or folder (the current directory is {os.getcwd()!r}); correct the path"
        )
    found = list(map(resolve_data_dir, found))
    row = row or by_suffix(found)
    if row is None:
        places = list(map(Place, found))
        row = next((row for row in formats().values() if all(map(row.recognises, places))), None)
        if row is None and begins_like_pickle(places[0].head):
            raise ConfigError(
                f"{shown(found[0])}: the file begins like a pickle, and loading a pickle can run any code. If you trust the file and it "
                f"contains a list of samples, load it yourself and pass the list to a reader: Reader(pickle.load(file), batch_size)"
            )
        if row is None:
            raise ConfigError(
                f"{shown(found[0])}: the format of {places[0].described()} cannot be determined by its name or content; pass the "
                f"format: {', '.join(formats())}"
            )
    return row, found


def open(path: str | Sequence[str], format: str | None = None, **options: Any) -> Dataset:
    """Open a dataset of any format, by its path or URL.

    highway recognises the format by the suffix of the path, or by the content of the file or folder. docs/howto/formats.md lists the
    formats. Installed packages can add formats by entry points of the group ``highway.formats``.

    Args:
        path: A file, a folder, a pattern such as ``"train-*.parquet"``, the URL of one of these, or a list of these. A URL can be in an
            object store, such as S3.
        format: The name of the format, such as ``"tfrecord"``. Required if the path does not determine the format.
        options: Parameters of the dataset that reads the format, such as ``fields`` of :class:`~highway.datasets.Parquet`.

    Raises:
        FileNotFoundError: the path does not exist.
        ConfigError: highway cannot recognise the format, or ``format`` is not the name of a format.
        ConfigError: the file can only be read from beginning to end. Use the stage that the message names, such as ``WebDatasetSource``.
        ConfigError: the library for the format is not installed.
        TypeError: ``options`` contains a name that is not a parameter of the dataset.

    >>> import highway
    >>> dataset = highway.open("highway:photos/val")
    >>> len(dataset), int(dataset[0][1])
    (32, 0)
    """
    row, found = recognised([path] if isinstance(path, str) else path, format)
    if stream := next(filter(row.is_stream, found), ""):
        raise ConfigError(
            f"{shown(stream)}: found {row.about} that can only be read sequentially; use {row.source}({shown(stream)!r}) as the first "
            f"stage, or unpack the files"
        )
    given = [path] if isinstance(path, str) else path
    return typing.cast(Dataset, row.open(list(map(resolve_data_dir, given)) if row.takes_several else found, options))


def open_images(path: str, folder: Callable[[str], Dataset]) -> Dataset:
    """Open the images at a path. For a folder of images, ``folder`` creates the dataset. Other formats are recognised."""
    place = Place(resolve_data_dir(path))
    row = by_suffix([path])
    if row is None and not place.holds_images() and (place.names or place.head):
        row = next((row for row in formats().values() if row.recognises(place)), None)
    if row is None and place.head:
        return open(path)  # raises the error for a file without a known format
    return folder(path) if row is None or row is formats()["folder"] else open(path)
