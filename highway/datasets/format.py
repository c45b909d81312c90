"""The description of a format. Formats are recognised by the names and the content of files."""

from __future__ import annotations

import fnmatch
import glob
import importlib
import os
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

from highway.datasets.image_files import SUFFIXES
from highway.datasets.parts import JoinedPaths
from highway.datasets.writing import Kind, SampleWriter
from highway.parameters.hints import alternatives, parameters_of
from highway.stores.file import entries_in, read_head
from highway.stores.requests import Unsupported
from highway.stores.url import is_url, without_options

_HEAD = 512  # number of bytes of a file that are read to recognise its format

Options = Mapping[str, Any]


class Extra(NamedTuple):
    """An extra of highway's distribution, and the package that the extra installs. setup.py reads the extras from ``formats.py``."""

    name: str
    requirement: str

    @property
    def package(self) -> str:
        """The name of the package."""
        return re.split(r"[^\w-]", self.requirement)[0]


@dataclass(frozen=True)
class Place:
    """A path or URL whose format is requested."""

    path: str

    @cached_property
    def entries(self) -> frozenset[str]:
        """The names in the folder. Names of subfolders end in a slash. Empty if the place is not a folder, or a server cannot list it."""
        try:
            return frozenset(entries_in(self.path))
        except Unsupported:
            return frozenset()

    @cached_property
    def names(self) -> frozenset[str]:
        """The names in the folder."""
        return frozenset(entry.rstrip("/") for entry in self.entries)

    @cached_property
    def head(self) -> bytes:
        """The first bytes of the file; empty if the place is not a file."""
        return b"" if self.names else read_head(self.path, _HEAD)

    @property
    def is_folder(self) -> bool:
        """Whether the place is a folder. A URL is a folder if it looks like a folder."""
        return is_url(self.path) or os.path.isdir(self.path)

    def has(self, pattern: str) -> bool:
        """Return whether an entry of the folder matches a pattern. A pattern with ``/`` matches in local subfolders."""
        if "/" in pattern:
            return not is_url(self.path) and bool(glob.glob(os.path.join(glob.escape(self.path), pattern)))
        return any(fnmatch.filter((name for name in self.names if not name.startswith(".") or pattern.startswith(".")), pattern))

    def holds_images(self) -> bool:
        """Return whether the folder contains image files, or folders that can be label folders."""
        return any(entry.lower().endswith((*SUFFIXES, "/")) for entry in self.entries if not entry.startswith("."))

    def described(self) -> str:
        """Return a description of the place in words."""
        if self.names:
            names = sorted(self.names)
            return f"a folder with {', '.join(map(repr, names[:5]))}{', ...' if len(names) > 5 else ''}"
        return f"a file that begins with {self.head[:16]!r}" if self.head else "nothing in it"


@dataclass(frozen=True)
class Format:
    """A format of datasets.

    Classes and functions are given as strings ``module:name``. highway imports them when it needs them.

    Args:
        name: The name for ``format=``, ``--from`` and ``--to``.
        about: A description of the format in a few words.
        dataset: The dataset that reads the format. Its first parameter is a path or a list of paths.
        note: A further note for users.
        given: Arguments that highway always passes to the dataset.
        choose: A function that receives paths and parameters, and returns the dataset and its parameters. Needed only if several datasets
            read the format.
        writer: A function that writes the format. It takes a path, and returns a context manager that yields a
            :class:`~highway.datasets.writing.SampleWriter`. Empty: highway only reads the format.
        sink: The component that writes the format in a pipeline, if there is such a component.
        suffixes: The suffixes of the format's paths.
        streams: Suffixes, or prefixes such as ``pipe:``, of paths without random access. ``source`` reads these paths.
        source: The component that reads paths without random access.
        magic: Bytes that identify files of the format, each with the position of the bytes in the file.
        inside: Patterns of names. A folder with an entry that matches a pattern has this format.
        is_at: A function that returns whether a place has this format.
        is_name: Whether a dataset of the format has a name instead of a path.
        kinds: The kinds of values that the writer accepts. Empty: an image and a label.
        extra: The extra that installs the library for this format.
        images: How ``highway convert`` passes images to the writer: as ``"bytes"``, as ``"files"`` (bytes in a field that is named by the
            image's type, such as ``jpg``), or as ``"pixels"``.
        layout: ``"files"``: one file; or several files with a fixed number of samples, if the path has a placeholder for the number of the
            file. ``"one"``: one file or folder for all samples. ``"each"``: a folder with a numbered file for each sample. ``"keys"``: a
            folder with a file for each sample, whose name is the sample's key. Several threads write these files.
        is_copied: Whether highway copies files from an object store to this machine before it reads them.
        key: A function that returns the key of a sample in this format, from the sample's present key and its fields. Empty: the key does
            not change.
        keeps_keys: Whether samples keep their keys.
        keeps_order: Whether samples are read in the order in which they were written. ``False``: they are read in the order of their keys.
    """

    name: str
    about: str
    dataset: str
    note: str = ""
    given: Options = field(default_factory=dict)
    choose: Callable[[Sequence[str], Options], tuple[str, Options]] | None = None
    writer: str = ""
    sink: str = ""
    suffixes: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    source: str = ""
    magic: tuple[tuple[int, bytes], ...] = ()
    inside: tuple[str, ...] = ()
    is_at: Callable[[Place], bool] | None = None
    is_name: bool = False
    kinds: tuple[Kind, ...] = typing.get_args(Kind)
    extra: Extra | None = None
    images: Literal["files", "bytes", "pixels"] = "bytes"
    layout: Literal["files", "one", "each", "keys"] = "one"
    is_copied: bool = False
    key: str = ""
    keeps_keys: bool = True
    keeps_order: bool = True

    def is_named_by(self, path: str) -> bool:
        """Return whether a path has this format according to its suffix or prefix."""
        return without_options(path).endswith(self.suffixes) or self.is_stream(path)

    def is_stream(self, path: str) -> bool:
        """Return whether a path of this format can only be read in sequence."""
        return without_options(path).endswith(self.streams) or path.startswith(tuple(one for one in self.streams if one.endswith(":")))

    def recognises(self, place: Place) -> bool:
        """Return whether the content of a place has this format."""
        return (
            any(place.head[at : at + len(magic)] == magic for at, magic in self.magic)
            or any(map(place.has, self.inside))
            or (self.is_at is not None and self.is_at(place))
        )

    @property
    def recognised_by(self) -> str:
        """A description of how paths of the format are recognised."""
        suffixes = (f"*{suffix}" for suffix in self.suffixes + self.streams if not suffix.endswith(":"))
        return " ".join(suffixes) or ("content" if self.magic or self.inside or self.is_at else "")

    def named(self, key: str, sample: Mapping[str, Any]) -> str:
        """Return the key of a sample in this format, from the sample's present key and its fields."""
        return str(self._key(key, sample)) if self.key else key

    @cached_property
    def _key(self) -> Callable[[str, Mapping[str, Any]], str]:
        return typing.cast(Callable[[str, Mapping[str, Any]], str], load(self.key))

    def parameters(self) -> Mapping[str, Any]:
        """Return the parameters of the dataset."""
        return parameters_of(load(self.dataset))

    @property
    def takes_several(self) -> bool:
        """Whether the dataset accepts a list of paths, and patterns of paths."""
        hint = next(iter(self.parameters().values())).annotation
        hint = typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint
        return any(typing.get_origin(one) is list for one in alternatives(hint))

    def open(self, paths: Sequence[str], options: Options, build: Callable[[Any, Options], Any] = lambda make, given: make(**given)) -> Any:
        """Return the dataset of one or more paths.

        Args:
            paths: At least one path.
            options: Parameters of the dataset.
            build: Creates the dataset from its class and all its parameters.
        """
        dataset, options = self.choose(paths, options) if self.choose else (self.dataset, options)
        make, options = load(dataset), {**self.given, **options}
        name = next(iter(parameters_of(make)))
        if self.takes_several:
            return build(make, {name: paths[0] if len(paths) == 1 else list(paths), **options})
        found = [build(make, {name: path, **options}) for path in paths]
        return found[0] if len(found) == 1 else JoinedPaths(found)

    def write(self, path: str, options: Options) -> AbstractContextManager[SampleWriter]:
        """Return a writer of samples to a path. ``options`` are the parameters of the writer."""
        return typing.cast(AbstractContextManager[SampleWriter], load(self.writer)(path, **options))


def load(name: str) -> Any:
    """Import a class or function by the string ``module:name``."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
