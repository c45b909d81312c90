"""Determine whether the inputs of a cache are batches or samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from highway.engine.batch import Item, fields, names
from highway.engine.component import shape_by_method
from highway.engine.stage import Stage, Stamped
from highway.errors import ConfigError


def maker_of(stages: Sequence[Stage]) -> Stage | None:
    """Return the last stage that declares its outputs as ``"batches"`` or ``"samples"``.

    Return ``None`` if there is no such stage, or if a user's stream comes after it. Such a stream can split or build batches.
    """
    for stage in reversed(stages):
        if stage.traits.makes is not None:
            return stage
        op = stage.layers[-1]
        if shape_by_method(op) == "stream" and type(op).__module__.partition(".")[0] != "highway":
            return None
    return None


def comes_in_batches(first: Stamped, maker: Stage | None) -> bool:
    """Return whether an item is a batch. This depends on ``maker`` (see :func:`maker_of`), and on the keys and fields of the item.

    Raises:
        ConfigError: the stage, the keys and the fields do not determine whether the item is a batch, or contradict each other.
    """
    item, keys, rows = first.item, len(first.passport.keys), _rows(first.item)
    if maker is not None and maker.traits.makes == "samples":
        return False
    if rows is None and (maker is not None or keys > 1):
        why = f"comes from {maker.label}" if maker is not None else f"has {keys} keys"
        raise ConfigError(
            f"Cache: the first item, {described(item)}, {why}, but is not a batch: its fields share no batch axis; make one row per sample "
            "in each field, or pass batched=False if the item is one sample"
        )
    if rows is None or maker is not None or rows == keys > 1:
        return rows is not None
    raise ConfigError(
        f"Cache: the first item, {described(item)}{f' and {keys} keys' if keys > 1 else ''}, may be a batch of {rows} samples or one "
        "sample: pass batched=True if its rows are samples, or batched=False if it is one sample"
    )


def described(item: Item) -> str:
    """Return the fields of an item with their shapes, for an error message."""
    return f"with fields {', '.join(f'{name!r}: {_size(value)}' for name, value in zip(names(item), fields(item), strict=True))}"


def _size(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return str(value.shape)
    return f"{type(value).__name__} of {len(value)}" if isinstance(value, (list, tuple)) else type(value).__name__


def _rows(item: Item) -> int | None:
    """Return the common length of the first axis of all fields, or ``None`` if the fields have no common length."""
    values = fields(item)
    lengths = {
        len(value) if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim) else None for value in values
    }
    return lengths.pop() if len(lengths) == 1 else None
