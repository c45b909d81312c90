"""Read and write the formats of :mod:`highway.datasets.formats` for ``highway convert``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from highway.cli.convert.reading import NamedImages, SavedItems
from highway.datasets.dataset import Dataset
from highway.datasets.format import Format, Options, load
from highway.datasets.formats import by_suffix, format_named, formats
from highway.datasets.tar_stream import is_path
from highway.errors import ConfigError
from highway.modules.webdataset import WebDatasetSource
from highway.parameters.checks import unknown
from highway.parameters.convert import argument
from highway.parameters.hints import parameters_of
from highway.parameters.location import Location
from highway.stores.file import read_head
from highway.stores.url import is_url, shown, without_options
from highway.stores.writing import writable
from highway.topology.components import Components
from highway.topology.registry import Registry

_VIEWS: Mapping[str, Callable[[Any], Any]] = {"folder": NamedImages, "ten": SavedItems}  # gives samples the keys of other formats


def table() -> str:
    """Return a table of the formats for ``--help``."""
    rows = [("format", "recognised by", "images", "sink", "it is")]
    for row in formats().values():
        images, about = "decoded" if row.images == "pixels" else "encoded", row.about + ("" if row.writer else " (read only)")
        rows.append((row.name, row.recognised_by or "--from", images, row.sink, about))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def written_to(path: str, name: str | None) -> Format:
    """Return the format to write to a path: the format with the name ``name``, or without a name, the format of the path's suffix.

    Raises:
        ConfigError: the format is unknown or read-only, or the name asks for a compression that highway cannot write.
    """
    if is_url(path):
        writable(path)
        path = shown(without_options(path))
    found = format_named(name) if name else by_suffix([path])
    writers = [row.name for row in formats().values() if row.writer]
    if found is None:
        raise ConfigError(f"{path}: the name does not tell the format; add --to {', '.join(writers[:-1])} or {writers[-1]}")
    if found.is_stream(path):
        raise ConfigError(f"{path}: {found.name} can be read compressed, but not written compressed; name it *{found.suffixes[0]}")
    if not found.writer:
        raise ConfigError(f"{path}: {found.name} can be read, but not written; choose one of {', '.join(writers)}")
    return found


def read(row: Format, paths: list[str], options: Options, verify: bool = False) -> Any:
    """Return the dataset in files, or a source if there is no random access to samples.

    Args:
        row: The format of the files.
        paths: The paths of the files, at least one.
        options: Parameters of the dataset, from ``--read``. A source accepts no parameters.
        verify: Whether to check the checksums in the files, if the dataset has the parameter ``verify``.

    Raises:
        ConfigError: the dataset has no such parameter, the value is invalid, or a source gets parameters.
    """
    if row.source and not all(is_path(path) and _is_tar(path) for path in paths):
        if options:
            raise ConfigError(f"--read: {paths[0]} is read as a stream, which accepts no options; remove --read")
        return WebDatasetSource(paths, epochs=1, shuffle=False)
    return _by_number(row, paths, options, verify)


def _is_tar(path: str) -> bool:
    if not os.path.isfile(path):
        return path.endswith(".tar")  # if the file is missing, the dataset raises an error
    return read_head(path, 262)[257:] == b"ustar"


def _by_number(row: Format, paths: list[str], options: Options, verify: bool) -> Any:
    if verify and "verify" in row.parameters():
        options = {"verify": True, **options}
    return _VIEWS.get(row.name, lambda dataset: dataset)(row.open(paths, options, _built))


def _built(make: Any, given: Options) -> Dataset:
    """Build a dataset with parameters that are plain values."""
    name = make.__name__ if make.__module__.startswith("highway.") else f"{make.__module__}:{make.__name__}"
    found: Dataset = Registry(Components((make.__module__,))).build({name: dict(given)}, Location(("--read",)), Dataset)
    return found


def read_back(row: Format, paths: list[str]) -> Any:
    """Return the dataset in converted files. The dataset checks all checksums."""
    return _by_number(row, paths, {}, verify=True)


def written_with(row: Format, options: Options) -> dict[str, Any]:
    """Return the arguments of the writer except the path. If possible, the writer syncs finished files to disk.

    Args:
        row: The format of the files.
        options: Parameters of the writer, from ``--write``.

    Raises:
        ConfigError: the writer has no such parameter, or the value is invalid.
    """
    function = load(row.writer)
    parameters = dict(list(parameters_of(function).items())[1:])
    location, notation = Location(("--write",)), Registry()
    for key in options:
        if key not in parameters:
            raise location.error(unknown(function.__name__, key, parameters))
    given = {key: argument(value, parameters[key], location / key, notation) for key, value in options.items()}
    return {"durable": True, **given} if "durable" in parameters else given
