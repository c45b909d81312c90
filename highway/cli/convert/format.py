"""What ``highway convert`` knows of a format: a row of its table."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from highway.cli.convert.images import Images
from highway.datasets.dataset import Dataset
from highway.datasets.writing import SampleWriter
from highway.parameters.checks import unknown
from highway.parameters.convert import argument
from highway.parameters.hints import parameters_of
from highway.parameters.location import Location
from highway.topology.registry import Registry

Options = Mapping[str, Any]  # plain values, as in a topology file


class Place(NamedTuple):
    """Something whose format is asked for: its path or URL, and the names of what is in it, if it is a folder."""

    path: str
    names: set[str]


@dataclass(frozen=True)
class Format:
    """A format.

    Args:
        name: What ``--from`` and ``--to`` call it.
        about: What it is, in a few words.
        dataset: What reads it: the name of one of highway's datasets, or a function that takes paths and options, and returns a dataset, or
            an iterable where samples have no numbers.
        several: Whether the dataset takes several paths.
        given: Parameters of the dataset.
        by_number: The name of the dataset that reads by number what was written, if the other may be a stream.
        writer: What writes it, as ``module:function`` below ``highway``: called with a path, it returns a context manager that gives a
            :class:`~highway.datasets.writing.SampleWriter`. Empty: it is read only.
        sink: The component that writes it in a pipeline, if there is one.
        suffixes: How its paths end.
        read_only: How those end besides that are read, but not written.
        is_name: Whether what is read may have a name, and not a path.
        is_at: Says whether what is at a path is of this format, by its content.
        images: What becomes of images.
        layout: ``"files"``: a file, or one for each number of samples if the path has a place for the file's number. ``"one"``: a file or
            folder for all samples. ``"each"``: a file in a folder for each sample, under its number. ``"keys"``: files in a folder, under
            the samples' keys, which several threads write.
        is_copied: Whether files in a store are copied to this machine, whole, to be read.
        key: Returns what a sample is called there, by its key and its fields.
        keeps_keys: Whether samples come back under their keys.
        keeps_order: Whether they come back in the order in which they were written, and not in that of their keys.
    """

    name: str
    about: str
    dataset: str | Callable[[list[str], Options], Any]
    several: bool = False
    given: Options = field(default_factory=dict)
    by_number: str = ""
    writer: str = ""
    sink: str = ""
    suffixes: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    is_name: bool = False
    is_at: Callable[[Place], bool] = lambda place: False
    images: Images = "bytes"
    layout: Literal["files", "one", "each", "keys"] = "one"
    is_copied: bool = False
    key: Callable[[str, Mapping[str, Any]], str] = lambda key, sample: key
    keeps_keys: bool = True
    keeps_order: bool = True

    def read(self, paths: list[str], options: Options, verify: bool = False) -> Any:
        """Return the dataset, or the source, of some paths.

        Args:
            paths: At least one.
            options: Parameters of the dataset, as ``--read`` has given them.
            verify: Whether a dataset with the parameter ``verify`` compares the checksums in its files.

        Raises:
            ConfigError: the dataset has no such parameter, or it does not take the value.
        """
        if not isinstance(self.dataset, str):
            return self.dataset(paths, options)
        options = {**self.given, **({"verify": True} if verify and "verify" in _parameters(self.dataset) else {}), **options}
        if self.several or len(paths) == 1:
            return built(self.dataset, paths if self.several else paths[0], options)
        from highway.cli.convert.reading import JoinedPaths  # here, since that has rows of the table, too

        return JoinedPaths([built(self.dataset, path, options) for path in paths])

    def read_back(self, paths: list[str]) -> Any:
        """Return the dataset of some paths that were written; it compares all checksums."""
        return built(self.by_number, paths, {}) if self.by_number else self.read(paths, {}, verify=True)

    def written_with(self, options: Options) -> dict[str, Any]:
        """Return what the writer is called with besides the path: what it writes is to be on the disk when it is said to be done.

        Args:
            options: Parameters of the writer, as ``--write`` has given them.

        Raises:
            ConfigError: the writer has no such parameter, or it does not take the value.
        """
        function = self._writer()
        parameters = dict(list(parameters_of(function).items())[1:])
        location, notation = Location(("--write",)), Registry()
        for key in options:
            if key not in parameters:
                raise location.error(unknown(function.__name__, key, parameters))
        given = {key: argument(value, parameters[key], location / key, notation) for key, value in options.items()}
        return {"durable": True, **given} if "durable" in parameters else given

    def write(self, path: str, given: Mapping[str, Any]) -> AbstractContextManager[SampleWriter]:
        """Return what writes samples to a path; ``given`` is what :meth:`written_with` returns."""
        return self._writer()(path, **given)

    def _writer(self) -> Callable[..., AbstractContextManager[SampleWriter]]:
        module, _, name = self.writer.partition(":")
        found: Callable[..., AbstractContextManager[SampleWriter]] = getattr(importlib.import_module(f"highway.{module}"), name)
        return found


def built(name: str, paths: str | list[str], options: Options) -> Any:
    """Return one of highway's datasets, whose first parameter says where it is.

    Raises:
        ConfigError: it has no such parameter, or it does not take the value.
    """
    first = next(iter(_parameters(name)))
    return Registry().build({name: {first: paths, **options}}, Location(("--read",)), Dataset)


def _parameters(dataset: str) -> Mapping[str, Any]:
    return parameters_of(getattr(importlib.import_module("highway.datasets"), dataset))
