"""The description of a format, and of places whose format is to be recognised."""

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

_HEAD = 512  # bytes of a file that are read to recognise it

Options = Mapping[str, Any]


class Extra(NamedTuple):
    """An extra of highway's distribution, and the package that it installs. setup.py reads these from this file."""

    name: str
    requirement: str

    @property
    def package(self) -> str:
        """The name of the package."""
        return re.split(r"[^\w-]", self.requirement)[0]


@dataclass(frozen=True)
class Place:
    """A path or URL whose format is asked for."""

    path: str

    @cached_property
    def entries(self) -> frozenset[str]:
        """The content of the folder, folders with a slash; empty if the place is not a folder, or a server does not list it."""
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
        """Whether it is a folder, as far as a path or URL tells."""
        return is_url(self.path) or os.path.isdir(self.path)

    def has(self, pattern: str) -> bool:
        """Return whether the folder has something of this name; ``/`` in the pattern leads to folders below it, on this machine."""
        if "/" in pattern:
            return not is_url(self.path) and bool(glob.glob(os.path.join(glob.escape(self.path), pattern)))
        return any(fnmatch.filter((name for name in self.names if not name.startswith(".") or pattern.startswith(".")), pattern))

    def holds_images(self) -> bool:
        """Return whether the folder contains image files, or folders, which may be label folders."""
        return any(entry.lower().endswith((*SUFFIXES, "/")) for entry in self.entries if not entry.startswith("."))

    def described(self) -> str:
        """Return in words what is there."""
        if self.names:
            names = sorted(self.names)
            return f"a folder with {', '.join(map(repr, names[:5]))}{', ...' if len(names) > 5 else ''}"
        return f"a file that begins with {self.head[:16]!r}" if self.head else "nothing in it"


@dataclass(frozen=True)
class Format:
    """A format.

    Names of classes and functions are written ``module:name``, and imported when they are needed.

    Args:
        name: The name for ``format=``, ``--from`` and ``--to``.
        about: A description of the format in a few words.
        dataset: The dataset that reads it. Its first parameter is a path, or may be a list of paths.
        note: A further note for users.
        given: Parameters of the dataset.
        choose: Returns the dataset and its parameters by the paths and the parameters that were given, if several datasets read it.
        writer: A function that writes it: called with a path, it returns a context manager that gives a
            :class:`~highway.datasets.writing.SampleWriter`. Empty: highway only reads it.
        sink: The component that writes it in a pipeline, if there is one.
        suffixes: How paths of it end.
        streams: Ends or begins (``pipe:``) of paths whose samples can only be read in sequence, by ``source``.
        source: The component that reads such paths.
        magic: Bytes by which its files are recognised, each with its position in the file.
        inside: Patterns of names. A folder that has one of them is of this format.
        is_at: Tells by other means whether a place is of this format.
        is_name: Whether it is read by a name instead of a path.
        kinds: The kinds of values that its writer takes; nothing if it takes an image and a label.
        extra: The extra that installs its library.
        images: The form of images for ``highway convert``: ``"bytes"``, or ``"files"`` named by their type, or ``"pixels"``.
        layout: ``"files"``: a file, or one for each number of samples if the path has a place for the file's number. ``"one"``: a file or
            folder for all samples. ``"each"``: a file in a folder for each sample, under its number. ``"keys"``: files in a folder, under
            the samples' keys, which several threads write.
        is_copied: Whether files in a store are copied to this machine, whole, to be read.
        key: A function that returns the key of a sample in this format, from its key and its fields. Empty: the key does not change.
        keeps_keys: Whether samples come back under their keys.
        keeps_order: Whether samples come back in the order in which they were written, instead of the order of their keys.
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
        """Return whether paths that end (or begin) so are of this format."""
        return without_options(path).endswith(self.suffixes) or self.is_stream(path)

    def is_stream(self, path: str) -> bool:
        """Return whether a path of this format can only be read one sample after the other."""
        return without_options(path).endswith(self.streams) or path.startswith(tuple(one for one in self.streams if one.endswith(":")))

    def recognises(self, place: Place) -> bool:
        """Return whether the content of a place is of this format."""
        return (
            any(place.head[at : at + len(magic)] == magic for at, magic in self.magic)
            or any(map(place.has, self.inside))
            or (self.is_at is not None and self.is_at(place))
        )

    @property
    def recognised_by(self) -> str:
        """How paths of it are recognised, in words."""
        suffixes = (f"*{suffix}" for suffix in self.suffixes + self.streams if not suffix.endswith(":"))
        return " ".join(suffixes) or ("what is in it" if self.magic or self.inside or self.is_at else "")

    def named(self, key: str, sample: Mapping[str, Any]) -> str:
        """Return the key of a sample in this format, from its key and its fields."""
        return str(self._key(key, sample)) if self.key else key

    @cached_property
    def _key(self) -> Callable[[str, Mapping[str, Any]], str]:
        return typing.cast(Callable[[str, Mapping[str, Any]], str], load(self.key))

    def parameters(self) -> Mapping[str, Any]:
        """Return the parameters of the dataset."""
        return parameters_of(load(self.dataset))

    @property
    def takes_several(self) -> bool:
        """Whether the dataset takes a list of paths, and patterns."""
        hint = next(iter(self.parameters().values())).annotation
        hint = typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint
        return any(typing.get_origin(one) is list for one in alternatives(hint))

    def open(self, paths: Sequence[str], options: Options, build: Callable[[Any, Options], Any] = lambda make, given: make(**given)) -> Any:
        """Return the dataset of one or more paths.

        Args:
            paths: At least one.
            options: Parameters of the dataset.
            build: Makes the dataset of its class and all of its parameters.
        """
        dataset, options = self.choose(paths, options) if self.choose else (self.dataset, options)
        make, options = load(dataset), {**self.given, **options}
        name = next(iter(parameters_of(make)))
        if self.takes_several:
            return build(make, {name: paths[0] if len(paths) == 1 else list(paths), **options})
        found = [build(make, {name: path, **options}) for path in paths]
        return found[0] if len(found) == 1 else JoinedPaths(found)

    def write(self, path: str, options: Options) -> AbstractContextManager[SampleWriter]:
        """Return the writer of samples to a path; ``options`` are its parameters."""
        return typing.cast(AbstractContextManager[SampleWriter], load(self.writer)(path, **options))


def load(name: str) -> Any:
    """Return a class or function by ``module:name``."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
