"""The description of a dataset format. highway recognises the format of a file by the file's name or content."""

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
from highway.stores.clients import Unsupported
from highway.stores.file import entries_in, read_head
from highway.stores.url import is_url, without_options

_HEAD = 512  # number of bytes to read to recognise the format of a file

Options = Mapping[str, Any]


class Extra(NamedTuple):
    """An optional dependency of highway, as in ``pip install highway-data[NAME]``. setup.py reads the extras from ``formats.py``."""

    name: str
    requirement: str

    @property
    def package(self) -> str:
        """The name of the package."""
        return re.split(r"[^\w-]", self.requirement)[0]


@dataclass(frozen=True)
class Place:
    """A path or URL whose format must be recognised."""

    path: str

    @cached_property
    def entries(self) -> frozenset[str]:
        """The names in the folder. Names of subfolders end in a slash. Empty if the path is not a folder, or cannot be listed."""
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
        """The first bytes of the file; empty if the path is not a file."""
        return b"" if self.names else read_head(self.path, _HEAD)

    @property
    def is_folder(self) -> bool:
        """Whether the path is a folder. Any URL counts as a folder."""
        return is_url(self.path) or os.path.isdir(self.path)

    def has(self, pattern: str) -> bool:
        """Return whether a name in the folder matches a pattern. A pattern with ``/`` matches names in subfolders of local folders."""
        if "/" in pattern:
            return not is_url(self.path) and bool(glob.glob(os.path.join(glob.escape(self.path), pattern)))
        return any(fnmatch.filter((name for name in self.names if not name.startswith(".") or pattern.startswith(".")), pattern))

    def holds_images(self) -> bool:
        """Return whether the folder contains image files or subfolders."""
        return any(entry.lower().endswith((*SUFFIXES, "/")) for entry in self.entries if not entry.startswith("."))

    def described(self) -> str:
        """Describe the file or folder for messages."""
        if self.names:
            names = sorted(self.names)
            return f"a folder with {', '.join(map(repr, names[:5]))}{', ...' if len(names) > 5 else ''}"
        return f"a file that begins with {self.head[:16]!r}" if self.head else "nothing in it"


@dataclass(frozen=True)
class Format:
    """A format of datasets.

    Most classes and functions are given as strings ``module:name``. highway imports a class or function when it is first used.

    Args:
        name: The name for ``format=``, ``--from`` and ``--to``.
        about: A description of the format in a few words.
        dataset: The dataset class that reads the format. Its first parameter is a path or a list of paths.
        note: A note for the table of formats.
        given: Default arguments of the dataset for this format. The user's arguments replace these.
        choose: A function that returns the dataset class and its parameters. The function receives the paths and the user's parameters.
            Required if several datasets read the format.
        writer: A function that takes a path and returns a context manager. The context manager yields a
            :class:`~highway.datasets.writing.SampleWriter`. Empty: highway cannot write the format.
        sink: The name of the component that writes the format in a pipeline. Empty: there is no such component.
        suffixes: The suffixes of paths that have this format.
        streams: Suffixes and prefixes (such as ``pipe:``) of paths that can only be read from beginning to end. ``source`` reads these
            paths.
        source: The name of the component that reads the paths in ``streams``.
        magic: Pairs (byte offset, bytes). A file that contains one of these byte strings at its offset has this format.
        inside: Patterns of names. A folder that contains a matching name has this format.
        is_at: A function that returns whether a :class:`Place` has this format.
        is_name: Whether a dataset of the format has a name instead of a path.
        kinds: The kinds of values that the writer accepts. Empty: the writer accepts only an image and a label.
        extra: The extra that installs the library of this format.
        images: How ``highway convert`` passes images to the writer. ``"bytes"``: as encoded bytes. ``"files"``: as encoded bytes, in a
            field whose name is the type of the image, such as ``jpg``. ``"pixels"``: as decoded arrays.
        layout: What the writer creates. ``"files"``: one file, or several files if the path contains a placeholder for the index of the
            file. ``"one"``: one file or folder for all samples. ``"each"``: a folder with a numbered file for each sample. ``"keys"``: a
            folder with a file for each sample. The name of the file is the key of the sample. Several threads write these files.
        is_copied: Whether files in an object store are copied to this machine.
        key: A function that returns the key that a sample has in this format. The function receives the current key and the sample. Empty:
            the key does not change.
        keeps_keys: Whether the format stores the keys of the samples.
        keeps_order: Whether samples are read in the order in which they were written. ``False``: samples are read in the order of their
            keys.
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
        """Return whether the suffix or prefix of a path belongs to this format."""
        return without_options(path).endswith(self.suffixes) or self.is_stream(path)

    def is_stream(self, path: str) -> bool:
        """Return whether a path of this format can only be read from beginning to end."""
        return without_options(path).endswith(self.streams) or path.startswith(tuple(one for one in self.streams if one.endswith(":")))

    def recognises(self, place: Place) -> bool:
        """Return whether the content of a file or folder has this format."""
        return (
            any(place.head[at : at + len(magic)] == magic for at, magic in self.magic)
            or any(map(place.has, self.inside))
            or (self.is_at is not None and self.is_at(place))
        )

    @property
    def recognised_by(self) -> str:
        """The suffixes by which the format is recognised, or ``content``, for the table of formats. Empty if neither is used."""
        suffixes = (f"*{suffix}" for suffix in self.suffixes + self.streams if not suffix.endswith(":"))
        return " ".join(suffixes) or ("content" if self.magic or self.inside or self.is_at else "")

    def named(self, key: str, sample: Mapping[str, Any]) -> str:
        """Return the key that a sample has in this format."""
        return str(self._key(key, sample)) if self.key else key

    @cached_property
    def _key(self) -> Callable[[str, Mapping[str, Any]], str]:
        return typing.cast(Callable[[str, Mapping[str, Any]], str], load(self.key))

    def parameters(self) -> Mapping[str, Any]:
        """Return the parameters of the dataset class."""
        return parameters_of(load(self.dataset))

    @property
    def takes_several(self) -> bool:
        """Whether the dataset class accepts a list of paths, and paths with patterns."""
        hint = next(iter(self.parameters().values())).annotation
        hint = typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint
        return any(typing.get_origin(one) is list for one in alternatives(hint))

    def open(self, paths: Sequence[str], options: Options, build: Callable[[Any, Options], Any] = lambda make, given: make(**given)) -> Any:
        """Return one dataset that reads all paths.

        Args:
            paths: At least one path.
            options: Parameters of the dataset.
            build: A function that creates the dataset. The function receives the class and all parameters.
        """
        dataset, options = self.choose(paths, options) if self.choose else (self.dataset, options)
        make, options = load(dataset), {**self.given, **options}
        name = next(iter(parameters_of(make)))
        if self.takes_several:
            return build(make, {name: paths[0] if len(paths) == 1 else list(paths), **options})
        found = [build(make, {name: path, **options}) for path in paths]
        return found[0] if len(found) == 1 else JoinedPaths(found)

    def write(self, path: str, options: Options) -> AbstractContextManager[SampleWriter]:
        """Return a context manager that yields a writer. ``options`` are the parameters of the writer."""
        return typing.cast(AbstractContextManager[SampleWriter], load(self.writer)(path, **options))


def load(name: str) -> Any:
    """Import the class or function that a string ``module:name`` names."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
