"""A transform that calls a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.random import Generator

from highway.images.ops import Size
from highway.parameters.checks import checked
from highway.parameters.hints import takes_rng
from highway.transforms.base import Transform


@checked
@dataclass(frozen=True)
class Lambda(Transform):
    """Apply a function to the image. The function must not move pixels, because boxes, points and mask do not change.

    For a function that moves pixels, derive a class from :class:`Geometric` instead, and define how points move.

    Args:
        fn: The function. Its first argument is the image, ``(H, W, C)`` or ``(H, W)``. If the function has a parameter ``rng``, it also
            receives a random generator for this image, or ``None`` if there is none. The function returns an image of the same height and
            width. In YAML, write ``package.module:name``. For ``Processes`` (worker processes), define the function at the top level of a
            module, so that it can be pickled.

    Raises:
        TypeError: ``fn`` did not return an image.
        ValueError: the returned image has another height or width than the original image.

    >>> Lambda(lambda image: 255 - image)(np.uint8([[0, 255]])).tolist()
    [[255, 0]]
    """

    fn: Callable[..., Any]
    _takes_rng: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_takes_rng", takes_rng(self.fn))

    def __repr__(self) -> str:
        # The repr of a function contains its address, which differs in each process.
        return f"Lambda(fn={getattr(self.fn, '__qualname__', repr(self.fn))})"

    def draw(self, size: Size, rng: Generator | None) -> int | None:
        """Return a seed for the generator of the function. The same seed then leads to the same image."""
        return None if rng is None or not self._takes_rng else int(rng.integers(2**63))

    def image(self, image: np.ndarray, params: int | None) -> np.ndarray:
        if self._takes_rng:
            changed = self.fn(image, rng=None if params is None else np.random.default_rng(params))
        else:
            changed = self.fn(image)
        if not isinstance(changed, np.ndarray) or changed.ndim not in (2, 3):
            what = f"an array of shape {changed.shape}" if isinstance(changed, np.ndarray) else f"{type(changed).__name__}"
            raise TypeError(f"Lambda: {self.fn!r} returned {what}; expected an image, an array (H, W, C) or (H, W)")
        if changed.shape[:2] != image.shape[:2]:
            raise ValueError(
                f"Lambda: {self.fn!r} returned an image of shape {changed.shape} for an image of shape {image.shape}; the function must "
                "keep height and width, because boxes, points and mask would not be transformed: for other sizes, derive a transform from "
                "Geometric"
            )
        return changed
