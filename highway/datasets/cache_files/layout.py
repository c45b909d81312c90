"""The structure of the samples in a cache. All samples have the same structure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from highway.engine.batch import Item, rebuild

Kind = Literal["array", "scalar", "int", "float", "bool", "complex", "str", "bytes", "json"]
FROM_BYTES: dict[str, Callable[[bytes], Any]] = {"str": bytes.decode, "bytes": bytes, "json": json.loads}


@dataclass(frozen=True)
class FieldSpec:
    """The type of a field. A field has the same type in all samples.

    An array has the same dtype and number of axes in all samples. NumPy scalars and Python numbers are stored as arrays without axes.
    ``str`` and ``bytes`` are stored as uint8. ``None``, lists and dicts are stored as JSON in uint8.
    """

    kind: Kind
    dtype: str
    ndim: int


@dataclass(frozen=True)
class Layout:
    """The structure of all samples.

    Args:
        form: The type of a sample: a tuple, a list, a dict, or a single value.
        names: The names of the fields in a dict, or their indexes in a tuple or list.
        fields: The type of each field.
    """

    form: Literal["tuple", "list", "dict", "value"]
    names: list[str | int]
    fields: list[FieldSpec]

    def item(self, values: Sequence[Any]) -> Item:
        """Return a sample or batch whose fields have these values."""
        return rebuild({"tuple": (), "list": [], "dict": dict.fromkeys(self.names), "value": None}[self.form], values)
