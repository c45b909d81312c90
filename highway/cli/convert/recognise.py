"""Of which format something is, or is to be: by its name, by its content, or as the user says."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from highway.cli.convert.format import Format, Place
from highway.cli.convert.formats import FORMATS
from highway.data import resolve_data_dir
from highway.datasets.paths import expanded
from highway.errors import ConfigError
from highway.parameters.location import did_you_mean
from highway.stores.file import names_in
from highway.stores.requests import Unsupported
from highway.stores.url import is_url, shown, without_options
from highway.stores.writing import writable

_ELSEWHERE = re.compile(r"(?!highway:)[a-z][a-z0-9+]+:")  # URLs and commands


def table() -> str:
    """Return the formats as text, for ``--help``."""
    rows = [("format", "recognised by", "images", "sink", "it is")]
    for row in FORMATS.values():
        paths = " ".join(f"*{suffix}" for suffix in row.suffixes + row.read_only) or (
            "what is in it" if row.is_at is not Format.is_at else "--from"
        )
        rows.append(
            (
                row.name,
                paths,
                "decoded" if row.images == "pixels" else "encoded",
                row.sink,
                row.about + ("" if row.writer else " (read only)"),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def written_to(path: str, name: str | None) -> Format:
    """Return the format that a path is to be of: that of this name, or the one whose paths end like it.

    Raises:
        ConfigError: it does not say, or the format is read only.
    """
    if is_url(path):
        writable(path)
        path = shown(without_options(path))
    found = _named(name) if name else _by_suffix([path])
    writers = [row.name for row in FORMATS.values() if row.writer]
    if found is None:
        raise ConfigError(f"{path}: say what it is to be: --to {', '.join(writers[:-1])} or {writers[-1]}")
    if path.endswith(found.read_only):
        raise ConfigError(f"{path}: {found.name} are read compressed, and not written so; name it *{found.suffixes[0]}")
    if not found.writer:
        raise ConfigError(f"{path}: {found.name} is read, and not written; choose one of {', '.join(writers)}")
    return found


def read_from(paths: Sequence[str], name: str | None) -> tuple[Format, list[str]]:
    """Return the format of what is at some paths, and the paths with braces and patterns expanded.

    Raises:
        FileNotFoundError: there is nothing there.
        ConfigError: it is none of the formats.
    """
    of = _named(name) if name else None
    if of is not None and of.is_name:
        return of, list(paths)
    found = [one for path in paths for one in expanded(path)]
    if missing := next((path for path in found if not _ELSEWHERE.match(path) and not os.path.exists(resolve_data_dir(path))), ""):
        raise FileNotFoundError(f"{missing!r}: no such file or folder, seen from {os.getcwd()!r}; correct the path")
    of = of or _by_suffix(found) or _by_content(found)
    if of is None:
        raise ConfigError(f"{found[0]}: none of the formats, by its name and content; say --from {', '.join(FORMATS)}")
    return of, found


def _named(name: str) -> Format:
    if name not in FORMATS:
        raise ConfigError(f"there is no format {name!r}{did_you_mean(name, FORMATS) or '; `highway convert --help` lists them'}")
    return FORMATS[name]


def _by_suffix(paths: Sequence[str]) -> Format | None:
    return next((row for row in FORMATS.values() if all(_ends(path, row) for path in paths)), None)


def _ends(path: str, row: Format) -> bool:
    return without_options(path).endswith(row.suffixes + row.read_only) or (row.name == "shards" and path.startswith("pipe:"))


def _by_content(paths: Sequence[str]) -> Format | None:
    roots = [resolve_data_dir(path) for path in paths]
    places = [Place(root, _names(root)) for root in roots]
    return next((row for row in FORMATS.values() if all(map(row.is_at, places))), None)


def _names(path: str) -> set[str]:
    """Return the names of what is in a folder, as far as it says so."""
    try:
        return names_in(path)
    except Unsupported:  # a server that does not list
        return set()
