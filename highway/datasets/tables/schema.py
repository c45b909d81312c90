"""Select and rename the columns of a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from highway.datasets.dataset import chosen
from highway.datasets.tables.backend import pa
from highway.errors import DatasetError

KEY = "__key__"  # the default name of the key column


class Selection(NamedTuple):
    """The columns to read from a table.

    Args:
        columns: The names of the columns to read, in the order of ``fields``.
        fields: The field name of each of these columns.
        key: The key column, which contains the keys of the samples, or ``None``.
    """

    columns: list[str]
    fields: list[str]
    key: str | None

    @property
    def needed(self) -> list[str]:
        """The columns to read, including the key column, without duplicates."""
        return list(dict.fromkeys([*self.columns, *([self.key] if self.key else [])]))


def select(schema: pa.Schema, fields: Mapping[str, str] | None, key: str | None, path: str) -> Selection:
    """Select the columns to read from a table.

    Args:
        schema: The columns of the table.
        fields: A dict from field names to columns. A value can name several columns, separated by ``;``. The first of these that exists is
            read. ``None``: all columns except ``__key__``.
        key: The key column. ``None``: ``__key__``, if this column exists.
        path: The path of the file, for error messages.

    Raises:
        DatasetError: a column does not exist, or exists twice.
    """
    there = schema.names
    try:
        wanted = chosen({name: name for name in there if fields is not None or name != KEY}, fields)
    except ValueError as error:
        raise DatasetError(f"{path}: {error}") from error
    if key is not None and key not in there:
        raise DatasetError(f"{path}: there is no column {key!r} for the keys; found {', '.join(there)}")
    selection = Selection(list(wanted.values()), list(wanted), key or (KEY if KEY in there else None))
    if not wanted:
        raise DatasetError(f"{path}: there are no columns to read")
    if twice := [name for name in selection.needed if there.count(name) > 1]:
        raise DatasetError(
            f"{path}: {there.count(twice[0])} columns have the name {twice[0]!r}; rename one, or select other columns by fields="
        )
    return selection


def check_same(selection: Selection, first: pa.Schema, first_path: str, other: pa.Schema, path: str) -> None:
    """Raise DatasetError unless the selected columns have the same types in two files."""
    for name in selection.needed:
        expected = first.field(name).type
        if other.names.count(name) != 1:
            raise DatasetError(f"{path}: there is no column {name!r}, although {first_path} has it; found {', '.join(other.names)}")
        found = other.field(name).type
        if str(found).replace("large_", "") != str(expected).replace("large_", ""):
            raise DatasetError(
                f"{path}: column {name!r} has the type {found}, but the type {expected} in {first_path}; write all files "
                f"with the same schema"
            )


def class_names(schema: pa.Schema, selection: Selection) -> list[str] | None:
    """Return the label names that Hugging Face stored in a schema, or ``None``.

    If the field ``label`` has label names, these are returned. Otherwise, the names of the first field with label names are returned.
    """
    found = dict[str, list[str]]()
    for field, column in zip(selection.fields, selection.columns, strict=True):
        feature = _features(schema).get(column)
        if isinstance(feature, Mapping) and feature.get("_type") == "ClassLabel" and isinstance(feature.get("names"), list):
            found[field] = list(map(str, feature["names"]))
    return found.get("label") or next(iter(found.values()), None)


def _features(schema: pa.Schema) -> Mapping[str, Any]:
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (ValueError, KeyError, TypeError):  # the metadata can be invalid
        return {}
    return features if isinstance(features, Mapping) else {}
