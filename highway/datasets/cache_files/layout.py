"""What the samples of a cache have in common."""

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
    """What one field of every sample is.

    An array of a dtype and number of axes; a scalar of numpy's or a number of Python's, kept as an array without axes; or a ``str``, a
    ``bytes``, or as JSON ``None``, a list or a dict, kept as uint8.
    """

    kind: Kind
    dtype: str
    ndim: int


@dataclass(frozen=True)
class Layout:
    """What all samples have in common.

    Args:
        form: What a sample is: a tuple, a list, a dict, or one bare value.
        names: How its fields are addressed.
        fields: What they are.
    """

    form: Literal["tuple", "list", "dict", "value"]
    names: list[str | int]
    fields: list[FieldSpec]

    def item(self, values: Sequence[Any]) -> Item:
        """Return a sample or batch of these fields."""
        return rebuild({"tuple": (), "list": [], "dict": dict.fromkeys(self.names), "value": None}[self.form], values)
