"""The rows of Arrow files, and of folders that Hugging Face has saved, by number."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from highway.datasets.tables.dataset import OfTables, files_at
from highway.datasets.tables.partitions import TableFile
from highway.errors import ConfigError, DatasetError
from highway.parameters.checks import checked
from highway.stores.file import local
from highway.stores.url import is_url, without_options

if TYPE_CHECKING:
    from highway.datasets.tables.arrow_files import ArrowTable


@checked
@dataclass
class Arrow(OfTables):
    """The rows of Arrow files, in the order of the files and of the rows in them.

    Files and streams of the IPC format are read, Feather among them, and folders that Hugging Face's ``save_to_disk`` has written; the
    package datasets need not be installed. They are mapped into memory, where single rows are read from, in any order, so ``shuffle=True``
    costs nothing. Only where they are compressed, as Feather is if nobody says otherwise, they are read record batch by record batch, as
    :class:`~highway.datasets.Parquet` reads row groups: by ``shuffle="blocks"``.

    Args:
        paths: A folder, a file, a pattern such as ``"train-*.arrow"`` (braces expand), or a list of them, as for
            :class:`~highway.datasets.Parquet`.
        fields: The columns to read, under new names: ``{"image": "img", "label": "fine_label;label"}`` takes the first that there is.
            ``None`` reads all as they are, but ``__key__``.
        key: The column that has the samples' keys. ``None``: ``__key__`` if there is one, else the numbers of the rows.
        nulls: What stands for nulls, by field: ``{"caption": ""}``. In all others a null is an error.
        cache_mb: MiB of memory that compressed record batches may take once they are decoded, besides those that are being decoded.

    A sample is a dict, as that of :class:`~highway.datasets.Parquet`.

    Raises:
        ConfigError: pyarrow is not installed, or the folder is that of a ``DatasetDict``, which has splits.
        FileNotFoundError: there are no such files (when it is first read).
        DatasetError: a file is no Arrow, damaged or cut short, or has changed since; columns are missing, or of other types in one file
            than in another; there is a null.

    >>> dataset = Arrow("beans/train", fields={"image": "image", "label": "labels"})
    """

    suffixes: ClassVar = (".arrow", ".feather", ".ipc")

    def _files_at(self, path: str) -> Sequence[str]:
        if is_url(path) and not glob.has_magic(name := without_options(path)) and not name.endswith(self.suffixes):
            path = local(path)  # the folder, since nothing can be mapped that is not here
        return _saved_files(path) or files_at(path, self.suffixes)

    def _found(self) -> list[TableFile]:
        return [file._replace(path=local(file.path)) for file in super()._found()]

    def _opened(self) -> ArrowTable:
        from highway.datasets.tables.arrow_files import ArrowTable  # here, since it needs pyarrow

        return ArrowTable(self._found(), self.fields, self.key, self.nulls, self.cache_mb << 20)


def _saved_files(folder: str) -> Sequence[str]:
    """Return the files of a folder that ``save_to_disk`` has written, in their order; none if it is another one.

    Raises:
        ConfigError: it has splits.
        DatasetError: it has an order of its rows beside them, or does not say its files.
    """
    if splits := _json(folder, "dataset_dict.json"):
        names = " or ".join(repr(os.path.join(folder, str(name))) for name in splits.get("splits", []))
        raise ConfigError(f"{folder!r}: it has splits; name the folder of one: {names}")
    if not (state := _json(folder, "state.json")):
        return []
    try:
        named = [file["filename"] for file in state["_data_files"]]
        files = [os.path.join(folder, name) for name in named if os.path.basename(name) == name]
    except (KeyError, TypeError) as error:
        raise DatasetError(f"{folder}: its state.json does not say which files there are: {error!r}") from error
    if not files or len(files) != len(named):
        raise DatasetError(f"{folder}: its state.json names {named}; expected files of this folder")
    if state.get("_indices_files") or state.get("_indices_data_files"):
        raise DatasetError(f"{folder}: the order of its rows lies beside them; save it anew by dataset.flatten_indices().save_to_disk(...)")
    return files


def _json(folder: str, name: str) -> dict[str, Any]:
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            found = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except ValueError as error:
        raise DatasetError(f"{os.path.join(folder, name)}: no JSON, or cut short: {error}") from error
    return found if isinstance(found, dict) else {}
