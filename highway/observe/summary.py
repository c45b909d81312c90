"""Compute statistics of the fields of many items, in one pass and in bounded memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from highway.columns import Fitted
from highway.engine import batch

PIECE = 1 << 18  # elements that are processed together: small enough for their float64 copies to stay in the CPU's cache
MAX_SHAPES = 16  # maximum number of distinct shapes to store


@dataclass
class Moments:
    """Count, mean and variance of numbers that come in pieces.

    ``+`` merges two instances with the method of Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample
    variances" (1979). This method is accurate even if the standard deviation is small compared with the mean.
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0  # sum of squared deviations from the mean

    @classmethod
    def of(cls, values: np.ndarray) -> Moments:
        """Return the moments of a float64 array. The array can be empty."""
        if not values.size:
            return cls()
        mean = float(values.mean())
        return cls(values.size, mean, float(np.square(values - mean).sum()))

    def __add__(self, other: Moments) -> Moments:
        count = self.count + other.count
        if not self.count or not other.count:
            return self if self.count else other
        step = other.mean - self.mean
        mean = self.mean + step * (other.count / count)
        return Moments(count, mean, self.squares + other.squares + step * step * (self.count * (other.count / count)))

    @property
    def std(self) -> float:
        """The population standard deviation (divided by the count)."""
        return math.sqrt(self.squares / self.count) if self.count else math.nan


@dataclass
class FieldSummary:
    """Statistics of one field.

    Args:
        dtypes: Names of the field's dtypes.
        shapes: Shapes of the field's samples, or of its arrays if there is no batch axis. At most :data:`MAX_SHAPES` shapes are stored.
        more_shapes: Whether the field had further shapes, which are not stored.
        size: Number of elements.
        nan: Number of NaN elements.
        inf: Number of infinite elements.
        min: The minimum of the finite elements; NaN if no element is finite.
        max: The maximum of the finite elements; NaN if no element is finite.
        moments: Moments of the finite elements.
    """

    dtypes: set[str] = field(default_factory=set)
    shapes: set[tuple[int, ...]] = field(default_factory=set)
    more_shapes: bool = False
    size: int = 0
    nan: int = 0
    inf: int = 0
    min: float = math.nan
    max: float = math.nan
    moments: Moments = field(default_factory=Moments)

    def add(self, array: np.ndarray, batched: bool) -> None:
        """Add one array. Its dtype is bool, integer or float."""
        shape = array.shape[1:] if batched else array.shape
        if shape in self.shapes or len(self.shapes) < MAX_SHAPES:
            self.shapes.add(shape)
        else:
            self.more_shapes = True
        self.dtypes.add(array.dtype.name)
        self.size += array.size
        flat = array.reshape(-1)
        for start in range(0, flat.size, PIECE):
            self._add(flat[start : start + PIECE])

    def _add(self, piece: np.ndarray) -> None:
        if piece.dtype.kind == "f":
            finite = np.isfinite(piece)
            if not finite.all():
                nan = int(np.isnan(piece).sum())
                self.nan += nan
                self.inf += piece.size - int(finite.sum()) - nan
                piece = piece[finite]
        if piece.size:
            self.min = min(float(piece.min()), self.min)  # in this order: a comparison with NaN is false
            self.max = max(float(piece.max()), self.max)
            self.moments += Moments.of(piece.astype(np.float64))


class Summary:
    """Statistics of all fields of many items. The keys of ``fields`` are the names or indexes of the fields, as strings.

    Args:
        batched: Whether the first axis of arrays is the batch axis.
    """

    def __init__(self, batched: bool = True) -> None:
        self.batched = batched
        self.samples = 0
        self.fields: dict[str, FieldSummary] = {}

    def add(self, item: Any) -> None:
        """Add one item.

        Raises:
            ValueError: a field is not an array of numbers, or has no batch axis.
        """
        for name, value in zip(batch.names(item), batch.fields(item), strict=True):
            array = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else np.asarray(value)
            if array.dtype.kind not in "biuf":
                raise ValueError(f"field {name!r} contains {array.dtype}; expected numbers")
            if self.batched and array.ndim == 0:
                raise ValueError(f"field {name!r} is one number, without a batch axis; pass -b (unbatched) for a stream of samples")
            self.fields.setdefault(str(name), FieldSummary()).add(array, self.batched)
            length = len(array) if self.batched else 1
        self.samples += length

    def table(self) -> str:
        """Return the statistics as a table with one line per field."""
        shape = "sample shape" if self.batched else "shape"
        rows = [["field", "dtype", shape, "count", "min", "max", "mean", "std", "NaN", "inf"]]
        for name, seen in self.fields.items():
            shapes = [*map(shape_text, sorted(seen.shapes)[:4]), *(["..."] if len(seen.shapes) > 4 or seen.more_shapes else [])]
            numbers = (f"{value:.5g}" for value in (seen.min, seen.max, seen.moments.mean, seen.moments.std))
            rows.append([name, " ".join(sorted(seen.dtypes)), " ".join(shapes), str(seen.size), *numbers, str(seen.nan), str(seen.inf)])
        return Fitted(list(range(len(rows[0]))), rows).text(left=(0, 1, 2))


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape as text.

    >>> shape_text((224, 224, 3)), shape_text(())
    ('224x224x3', 'scalar')
    """
    return "x".join(map(str, shape)) or "scalar"
