"""Transforms made of transforms: all of them one after the other, or some, by chance.

Each draws for all of them first, and then applies what was drawn to the image and to all that belongs to it, as any other transform does.
Warps that stand next to each other are one warp, by the product of their maps: quicker, and blurred once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.random import Generator

from highway import functional as F
from highway.images.ops import Size
from highway.parameters.checks import checked, require
from highway.parameters.ranges import Predicate, Probability, Range
from highway.transforms.base import Seen, Transform, TransformLike, Writing, happens
from highway.transforms.warp import joined, joins

Several = TransformLike | tuple[TransformLike | tuple[TransformLike, ...], ...]
Least = Annotated[tuple[int, int], Range(ge=0), Predicate(lambda several: several[0] <= several[1], "(least, greatest), at least 0")]


class Step(NamedTuple):
    """A transform that was drawn for an image: its place in the list, itself, its parameters, and the size of the image that it gets."""

    place: int
    transform: TransformLike
    params: Any
    size: Size


class Steps(Transform):
    """A transform that draws which others are applied, and in which order: its parameters are a list of :class:`Step`."""

    @abstractmethod
    def draw(self, size: Size, rng: Generator | None) -> list[Step]: ...

    def output(self, params: list[Step], size: Size) -> Size:
        return _output(*params[-1][1:]) if params else size

    def image(self, image: np.ndarray, params: list[Step], out: np.ndarray | None = None) -> np.ndarray:
        number, size = 0, image.shape[:2]
        while number < len(params):
            place, transform, drawn, expected = params[number]
            try:
                if size != expected:
                    raise ValueError(
                        f"the image is {size[0]}x{size[1]} (height x width), but output() of {params[number - 1].transform} says "
                        f"{expected[0]}x{expected[1]}; a transform that changes the size says so there"
                    )
                run = _together(params, number)
                if len(run) > 1:
                    matrix, shape = joined([step[1:] for step in run])
                    image = F.warp(image, matrix, shape, "bilinear", run[0].transform.fill)
                elif out is not None and number == len(params) - 1 and isinstance(transform, Writing):
                    image = transform.into(image, drawn, out)
                else:
                    image = transform.image(image, drawn)
            except Exception as error:
                _note(error, place, transform)
                raise
            number, size = number + len(run), image.shape[:2]
        return image

    into = image

    def boxes(self, boxes: np.ndarray, params: list[Step], size: Size) -> np.ndarray:
        for _, transform, drawn, before in params:
            boxes = transform.boxes(boxes, drawn, before)
        return boxes

    def points(self, points: np.ndarray, params: list[Step], size: Size) -> np.ndarray:
        for _, transform, drawn, before in params:
            points = transform.points(points, drawn, before)
        return points

    def mask(self, mask: np.ndarray, params: list[Step]) -> np.ndarray:
        number = 0
        while number < len(params):
            run = _together(params, number)
            if len(run) > 1:
                matrix, shape = joined([step[1:] for step in run])
                mask = F.warp(mask, matrix, shape, "nearest")
            else:
                mask = params[number].transform.mask(mask, params[number].params)
            number += len(run)
        return mask

    def visible(self, boxes: np.ndarray, params: list[Step], size: Size) -> np.ndarray | float:
        share: np.ndarray | float = 1.0
        for _, transform, drawn, before in params:
            if hasattr(transform, "visible"):
                share = share * transform.visible(boxes, drawn, before)
            boxes = transform.boxes(boxes, drawn, before)
        return share


@dataclass(frozen=True)
class _Composite(Steps):
    """Apply transforms.

    Args:
        transforms: The transforms, or one; a list among them counts as one, and is applied from its first to its last.
    """

    transforms: Several
    _each: tuple[TransformLike, ...] = field(init=False, repr=False, compare=False)
    _seeing: frozenset[int] = field(init=False, repr=False, compare=False)  # which of them see the boxes

    def __post_init__(self) -> None:
        given = self.transforms if isinstance(self.transforms, tuple) else (self.transforms,)
        each = tuple(Chain(one) if isinstance(one, tuple) else one for one in given)
        object.__setattr__(self, "_each", each)
        object.__setattr__(self, "_seeing", frozenset(place for place, one in enumerate(each) if getattr(one, "sees_boxes", False)))

    @abstractmethod
    def chosen(self, rng: Generator | None) -> Sequence[int]:
        """Return which of the transforms are applied, and in which order."""

    @property
    def sees_boxes(self) -> bool:
        return bool(self._seeing)

    @property
    def removes_boxes(self) -> bool:
        return any(getattr(one, "removes_boxes", False) for one in self._each)

    def draw(self, size: Size, rng: Generator | None) -> list[Step]:
        return self.draw_for(size, rng, None)

    def draw_for(self, size: Size, rng: Generator | None, seen: Seen | None) -> list[Step]:
        steps: list[Step] = []
        for place in self.chosen(rng):
            transform: Any = self._each[place]
            try:
                params = transform.draw_for(size, rng, seen) if place in self._seeing else transform.draw(size, rng)
                steps.append(Step(place, transform, params, size))
                if seen is not None and self._seeing:
                    share = transform.visible(seen.boxes, params, size) if hasattr(transform, "visible") else 1.0
                    seen = Seen(transform.boxes(seen.boxes, params, size), seen.visible * share)
                size = _output(transform, params, size)
            except Exception as error:
                _note(error, place, transform)
                raise
        return steps


def applied(image: np.ndarray, steps: list[Step]) -> np.ndarray:
    """Return the image after steps, one by one."""
    for step in steps:
        image = step.transform.image(image, step.params)
    return image


def _together(params: list[Step], first: int) -> list[Any]:
    """Return the steps from ``first`` on that move the image at once: warps that stand next to each other, else one."""
    last = first + 1
    while last < len(params) and joins(params[last - 1].transform, params[last].transform):
        last += 1
    return params[first:last]


def _output(transform: Any, params: Any, size: Size) -> Size:
    found: Size = transform.output(params, size) if hasattr(transform, "output") else size
    return found


def _note(error: Exception, place: int, transform: object) -> None:
    error.add_note(f"in transforms[{place}], {transform}")


@checked
@dataclass(frozen=True)
class Chain(_Composite):
    """Apply all transforms, one after the other."""

    def chosen(self, rng: Generator | None) -> Sequence[int]:
        return range(len(self._each))


@checked
@dataclass(frozen=True)
class Shuffled(_Composite):
    """Apply all transforms in an order that is drawn; without chance in that of the list."""

    def chosen(self, rng: Generator | None) -> Sequence[int]:
        return range(len(self._each)) if rng is None else rng.permutation(len(self._each)).tolist()


@dataclass(frozen=True)
class _AtTimes:
    p: Probability


@checked
@dataclass(frozen=True)
class Sometimes(_Composite, _AtTimes):
    """Apply all transforms, one after the other, with probability ``p``, else none; without chance only if ``p`` is 1.

    Args:
        p: Probability, from 0 to 1.
    """

    def chosen(self, rng: Generator | None) -> Sequence[int]:
        return range(len(self._each)) if happens(self.p, rng) else ()


@checked
@dataclass(frozen=True)
class OneOf(_Composite):
    """Apply one of the transforms; none without chance.

    Args:
        weights: How often each is taken, in proportion: as many numbers as transforms, at least 0, not all 0. All alike by default.
    """

    weights: Annotated[tuple[float, ...], Range(ge=0)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(len(self._each) > 0, self, "transforms", "at least one")
        fit = self.weights is None or (len(self.weights) == len(self._each) and sum(self.weights) > 0)
        require(fit, self, "weights", f"{len(self._each)} numbers, one for each transform, not all 0")

    def chosen(self, rng: Generator | None) -> Sequence[int]:
        if rng is None:
            return ()
        if self.weights is None:
            return (int(rng.integers(len(self._each))),)
        ends = np.cumsum(self.weights)
        return (int(np.searchsorted(ends, rng.random() * ends[-1], side="right")),)


@dataclass(frozen=True)
class _SoMany:
    n: int | Least


@checked
@dataclass(frozen=True)
class SomeOf(_Composite, _SoMany):
    """Apply ``n`` of the transforms, each at most once, in the order of the list; none without chance.

    Args:
        n: How many, or (least, greatest) of an even draw; at most as many as there are.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        least, most = self._bounds
        require(least >= 0 and most <= len(self._each), self, "n", f"from 0 to the number of transforms, {len(self._each)}")

    @property
    def _bounds(self) -> tuple[int, int]:
        return (self.n, self.n) if isinstance(self.n, int) else self.n

    def chosen(self, rng: Generator | None) -> Sequence[int]:
        if rng is None:
            return ()
        least, most = self._bounds
        return sorted(rng.permutation(len(self._each))[: int(rng.integers(least, most + 1))].tolist())
