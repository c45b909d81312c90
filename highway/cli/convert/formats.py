"""The table of formats that ``highway convert`` reads and writes: one row each."""

from __future__ import annotations

import glob
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

from highway.cli.convert import reading
from highway.cli.convert.images import Images
from highway.datasets.folder_writer import place_of
from highway.datasets.shards import key_in_shard
from highway.datasets.writing import SampleWriter
from highway.errors import ConfigError
from highway.parameters.location import did_you_mean
from highway.wire.braces import expand_braces


@dataclass(frozen=True)
class Format:
    """A format.

    Args:
        name: What ``--from`` and ``--to`` call it.
        about: What it is, in a few words.
        open: Returns what is at some paths: a dataset, or an iterable where samples have no numbers.
        writer: What writes it, as ``module:function`` below ``highway``: called with a path, it returns a context manager that gives a
            :class:`~highway.datasets.writing.SampleWriter`. Empty: it is read only.
        options: What the writer is called with besides.
        suffixes: How its paths end.
        is_at: Says whether what is at a path is of this format, by its content.
        images: What becomes of images.
        layout: ``"files"``: a file, or one for each number of samples if the path has a place for the file's number. ``"one"``: a file or
            folder for all samples. ``"each"``: a file in a folder for each sample, under its number. ``"keys"``: files in a folder, under
            the samples' keys, which several threads write.
        names: What the fields of samples are called that are tuples.
        key: Returns what a sample is called there, by its key and its fields.
        keeps_keys: Whether samples come back under their keys.
        keeps_order: Whether they come back in the order in which they were written, and not in that of their keys.
    """

    name: str
    about: str
    open: Callable[[list[str]], Any]
    writer: str = ""
    options: tuple[tuple[str, Any], ...] = ()
    suffixes: tuple[str, ...] = ()
    is_at: Callable[[str], bool] = lambda path: False
    images: Images = "bytes"
    layout: Literal["files", "one", "each", "keys"] = "one"
    names: tuple[str, ...] = ()
    key: Callable[[str, Mapping[str, Any]], str] = lambda key, sample: key
    keeps_keys: bool = True
    keeps_order: bool = True

    def write(self, path: str) -> AbstractContextManager[SampleWriter]:
        """Return what writes samples to a path."""
        module, _, function = self.writer.partition(":")
        found: AbstractContextManager[SampleWriter]
        found = getattr(importlib.import_module(f"highway.{module}"), function)(path, **dict(self.options))
        return found


def _dataset(name: str, several: bool = False) -> Callable[[list[str]], Any]:
    """Return what opens one of highway's datasets; ``several``: whether it takes a list of paths."""

    def opened(paths: list[str]) -> Any:
        cls = getattr(importlib.import_module("highway.datasets"), name)
        if several:
            return cls(paths)
        return cls(paths[0]) if len(paths) == 1 else reading.Joined([cls(path) for path in paths])

    return opened


FORMATS: dict[str, Format] = {
    row.name: row
    for row in (
        Format(
            "folder",
            "image files, in one folder per label or in one",
            reading.folder,
            "datasets.folder_writer:image_folder_writer",
            is_at=os.path.isdir,
            images="files",
            layout="keys",
            key=lambda key, sample: place_of(key, sample.get("cls", sample.get("label"))),
            keeps_order=False,
        ),
        Format(
            "shards",
            "WebDataset shards",
            reading.shards,
            "datasets.shards:shard_writer",
            (("durable", True),),
            suffixes=(".tar", ".tar.gz", ".tgz"),
            images="files",
            layout="files",
            key=lambda key, sample: key_in_shard(key),
        ),
        Format(
            "ten",
            "a folder of .ten files, one for each sample",
            reading.tens,
            "datasets.ten:ten_writer",
            suffixes=(".ten",),
            is_at=lambda path: _holds(path, ".ten"),
            images="pixels",
            layout="each",
        ),
        Format(
            "cache",
            "a cache, as Cache writes it",
            _dataset("DecodedCache"),
            "datasets.decoded_cache:cache_writer",
            is_at=lambda path: os.path.isfile(os.path.join(path, "highway-cache.json")),
            images="pixels",
        ),
        Format(
            "npz",
            "arrays with a row for each sample",
            _dataset("Npz"),
            "datasets.npy.writer:npz_writer",
            suffixes=(".npz",),
            images="pixels",
            layout="files",
        ),
        Format(
            "npy",
            "one array with a row for each sample",
            _dataset("Npy"),
            "datasets.npy.writer:npy_writer",
            suffixes=(".npy",),
            images="pixels",
            layout="files",
            keeps_keys=False,
        ),
    )
}


def _holds(path: str, suffix: str) -> bool:
    return os.path.isdir(path) and any(name.endswith(suffix) for name in os.listdir(path) if not name.startswith("."))


def table() -> str:
    """Return the formats as text, for ``--help``."""
    rows = [("format", "read from, or written to", "images", "it is")]
    for row in FORMATS.values():
        paths = " ".join(f"*{suffix}" for suffix in row.suffixes) or "a folder"
        kept = "decoded" if row.images == "pixels" else "encoded"
        rows.append((row.name, paths, kept, row.about + ("" if row.writer else "; read only")))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def named(name: str) -> Format:
    """Return a format by its name."""
    if name not in FORMATS:
        raise ConfigError(f"there is no format {name!r}{did_you_mean(name, FORMATS) or '; `highway convert --help` lists them'}")
    return FORMATS[name]


def written_to(path: str, name: str | None) -> Format:
    """Return the format that a path is to be of: that of this name, or the one whose paths end like it.

    Raises:
        ConfigError: it does not say, or the format is read only.
    """
    found = named(name) if name else _by_suffix([path])
    writers = [row.name for row in FORMATS.values() if row.writer]
    if found is None:
        raise ConfigError(f"{path}: say what it is to be: --to {', '.join(writers[:-1])} or {writers[-1]}")
    if not found.writer:
        raise ConfigError(f"{path}: {found.name} is read, and not written; choose one of {', '.join(writers)}")
    return found


def read_from(paths: Sequence[str], name: str | None) -> tuple[Format, list[str]]:
    """Return the format of what is at some paths, and the paths with braces and patterns expanded.

    Raises:
        FileNotFoundError: there is nothing there.
        ConfigError: it is none of the formats.
    """
    expanded = [one for path in paths for one in _matching(path)]
    found = named(name) if name else _by_suffix(expanded) or _by_content(expanded)
    if found is None:
        missing = next((path for path in expanded if not os.path.exists(reading.resolved(path)) and "://" not in path), "")
        if missing:
            raise FileNotFoundError(f"{missing!r}: no such file or folder, seen from {os.getcwd()!r}; correct the path")
        raise ConfigError(f"{expanded[0]}: none of the formats, by its name and content; say --from {' or '.join(FORMATS)}")
    return found, expanded


def _by_suffix(paths: Sequence[str]) -> Format | None:
    pipes = [path for path in paths if path.startswith("pipe:")]
    return next(
        (row for row in FORMATS.values() if all(path.endswith(row.suffixes) or (row.name == "shards" and path in pipes) for path in paths)),
        None,
    )


def _by_content(paths: Sequence[str]) -> Format | None:
    rows = sorted(FORMATS.values(), key=lambda row: row.name == "folder")  # which is what a folder is if nothing else
    roots = [reading.resolved(path) for path in paths]
    return next((row for row in rows if all(map(row.is_at, roots))), None)


def _matching(path: str) -> list[str]:
    """Return the paths that one stands for: braces are written out, then ``*``, ``?`` and ``[...]`` matched with what is there."""
    paths: list[str] = []
    for one in [path] if os.path.exists(path) else expand_braces(path):
        is_pattern = glob.has_magic(one) and "://" not in one and not one.startswith("pipe:") and not os.path.exists(one)
        found = sorted(glob.glob(one)) if is_pattern else [one]
        if not found:
            raise FileNotFoundError(f"{one!r}: no file has a name like this")
        paths += found
    return paths
