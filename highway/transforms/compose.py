"""Transforms that apply other transforms: all of them in sequence, or a random selection.

Such a transform first selects transforms and draws their parameters. Then it applies them to the image and its annotations. It combines
consecutive warps (transforms by a matrix) into one warp, by the product of their matrices. One warp is faster than several warps, and
interpolates only once.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.random import Generator

from highway.errors import ParameterError
from highway.images.ops import Size
from highway.parameters.checks import checked, require
from highway.parameters.ranges import Predicate, Probability, Range
from highway.transforms.base import Seen, Transform, TransformLike, below, happens
from highway.transforms.warp import joined, joins

Several = TransformLike | tuple[TransformLike | tuple[TransformLike, ...], ...]
Least = Annotated[tuple[int, int], Range(ge=0), Predicate(lambda several: several[0] <= several[1], "(least, greatest), at least 0")]


class Step(NamedTuple):
    """A transform with drawn parameters: its index, the transform, the parameters, and the size of the image before the transform."""

    place: int
    transform: TransformLike
    params: Any
    size: Size


class Steps(Transform):
    """Base class of transforms that apply other transforms. The parameters are a list of :class:`Step`."""

    @abstractmethod
    def draw(self, size: Size, rng: Generator | None) -> list[Step]: ...

    def output(self, params: list[Step], size: Size) -> Size:
        return _output(*params[-1][1:]) if params else size

    def image(self, image: np.ndarray, params: list[Step], out: np.ndarray | None = None) -> np.ndarray:
        steps = _joined(params)
        for number, (place, transform, drawn, expected) in enumerate(steps):
            try:
                if (size := image.shape[:2]) != expected:
                    raise ValueError(
                        f"the image is {size[0]}x{size[1]} (height x width), but output() of {steps[number - 1].transform} returns "
                        f"{expected[0]}x{expected[1]}; output() must return the new size if a transform changes the size"
                    )
                # isinstance(transform, Writing) would be slow.
                if out is not None and number == len(steps) - 1 and hasattr(transform, "into"):
                    image = transform.into(image, drawn, out)
                else:
                    image = transform.image(image, drawn)
            except Exception as error:
                note(error, place, transform)
                raise
        return image

    into = image

    def boxes(self, boxes: np.ndarray, params: list[Step], size: Size) -> np.ndarray:
        for _, transform, drawn, before in _joined(params):
            boxes = transform.boxes(boxes, drawn, before)
        return boxes

    def points(self, points: np.ndarray, params: list[Step], size: Size) -> np.ndarray:
        for _, transform, drawn, before in _joined(params):
            points = transform.points(points, drawn, before)
        return points

    def inside(self, points: np.ndarray, params: list[Step], size: Size) -> np.ndarray:
        """Return whether each point is inside the image after every step, bool ``(N,)``."""
        stay = np.ones(len(points), np.bool_)
        for _, transform, drawn, before in _joined(params):
            if isinstance(transform, Steps):
                stay &= transform.inside(points, drawn, before)
            points = transform.points(points, drawn, before)
            edges = _output(transform, drawn, before)[::-1]
            stay &= ((points >= 0) & (points <= edges)).all(axis=1)
        return stay

    def mask(self, mask: np.ndarray, params: list[Step]) -> np.ndarray:
        for _, transform, drawn, _ in _joined(params):
            mask = transform.mask(mask, drawn)
        return mask

    def visible(self, boxes: np.ndarray, params: list[Step], size: Size) -> np.ndarray | float:
        share: np.ndarray | float = 1.0
        for _, transform, drawn, before in _joined(params):
            if hasattr(transform, "visible"):
                share = share * transform.visible(boxes, drawn, before)
            boxes = transform.boxes(boxes, drawn, before)
        return share


@dataclass(frozen=True)
class _Composite(Steps):
    """Apply transforms.

    Args:
        transforms: A list of transforms, or one transform. A nested list counts as one transform that applies its elements in order.
    """

    transforms: Several
    _each: tuple[TransformLike, ...] = field(init=False, repr=False, compare=False)
    _seeing: frozenset[int] = field(init=False, repr=False, compare=False)  # the transforms whose parameters depend on boxes

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Raise ParameterError if transforms are passed as separate arguments instead of one list."""
        if len(given := [one for one in args if _several(one)]) > 1:
            raise ParameterError(f"{cls.__name__}: got {len(given)} transforms as separate arguments; expected one list, {given}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        given = self.transforms if isinstance(self.transforms, tuple) else (self.transforms,)
        each = tuple(Chain(one) if isinstance(one, tuple) else one for one in given)
        object.__setattr__(self, "_each", each)
        object.__setattr__(self, "_seeing", frozenset(place for place, one in enumerate(each) if getattr(one, "sees_boxes", False)))

    @abstractmethod
    def chosen(self, rng: Generator | None) -> Sequence[int]:
        """Return the indexes of the transforms to apply, in the order of application."""

    @property
    def parts(self) -> tuple[TransformLike, ...]:
        """The transforms of this transform."""
        return self._each

    @property
    def sees_boxes(self) -> bool:
        return bool(self._seeing)

    @property
    def removes_boxes(self) -> bool:
        return any(getattr(one, "removes_boxes", False) for one in self._each)

    def draw(self, size: Size, rng: Generator | None) -> list[Step]:
        return self.draw_for(size, rng, None)

    def draw_for(self, size: Size, rng: Generator | None, seen: Seen | None) -> list[Step]:
        steps, since = list[Step](), 0  # since: index of the first step that is not yet applied to the boxes
        for place in self.chosen(rng):
            transform: Any = self._each[place]
            try:
                if place in self._seeing:
                    seen, since = self._after(seen, steps[since:]), len(steps)
                    params = transform.draw_for(size, rng, seen)
                else:
                    params = transform.draw(size, rng)
                steps.append(Step(place, transform, params, size))
                size = _output(transform, params, size)
            except Exception as error:
                note(error, place, transform)
                raise
        return steps

    def _after(self, seen: Seen | None, steps: list[Step]) -> Seen | None:
        """Return the boxes and their visible fractions after ``steps``."""
        if seen is None or not steps:
            return seen
        boxes, size = seen.boxes, steps[0].size
        return Seen(self.boxes(boxes, steps, size), (seen.visible * self.visible(boxes, steps, size)).astype(np.float32))


def moves_pixels(transform: Any) -> bool:
    """Return whether a transform, or one of its parts, moves boxes or points."""
    if isinstance(transform, _Composite):
        return any(map(moves_pixels, transform.parts))
    return any(getattr(type(transform), name, None) is not getattr(Transform, name) for name in ("boxes", "points"))


def _several(given: object) -> bool:
    """Return whether an argument is a transform, or a list that starts with a transform."""
    return isinstance(given[0] if isinstance(given, (list, tuple)) and given else given, TransformLike)


def applied(image: np.ndarray, steps: list[Step]) -> np.ndarray:
    """Apply steps to an image one by one, without combining warps."""
    for step in steps:
        image = step.transform.image(image, step.params)
    return image


def _joined(steps: list[Step]) -> list[Step]:
    """Combine consecutive warps into one warp."""
    if len(steps) < 2:
        return steps
    result, first = list[Step](), 0
    while first < len(steps):
        last, step = first + 1, steps[first]
        while last < len(steps) and joins(steps[last - 1].transform, steps[last].transform):
            last += 1
        if last - first > 1:
            run: list[Any] = [one[1:] for one in steps[first:last]]
            step = Step(step.place, *joined(run), step.size)
        result.append(step)
        first = last
    return result


def _output(transform: Any, params: Any, size: Size) -> Size:
    found: Size = transform.output(params, size) if hasattr(transform, "output") else size
    return found


def note(error: Exception, place: int, transform: object) -> None:
    """Add a note with the index and the transform to an error."""
    error.add_note(f"in transforms[{place}], {transform}")


@checked
@dataclass(frozen=True)
class Chain(_Composite):
    """Apply all transforms in sequence.

    Args:
        transforms: A list of transforms, or one transform. A nested list is also applied in sequence.

    >>> image = np.arange(4, dtype=np.uint8).reshape(2, 2)
    >>> Chain([FlipX(p=1), FlipY(p=1)])(image)
    array([[3, 2],
           [1, 0]], dtype=uint8)
    """

    def chosen(self, rng: Generator | None) -> Sequence[int]:
        return range(len(self._each))


@checked
@dataclass(frozen=True)
class Shuffled(_Composite):
    """Apply all transforms in random order. Without ``rng``, apply them in the order of the list.

    Args:
        transforms: A list of transforms, or one transform. A nested list counts as one transform, and keeps its order.

    >>> image = np.zeros((4, 6, 3), np.uint8)
    >>> Shuffled([Rotate90(), FlipX()])(image, np.random.default_rng(0)).shape
    (6, 4, 3)
    """

    def chosen(self, rng: Generator | None) -> Sequence[int]:
        return range(len(self._each)) if rng is None else rng.permutation(len(self._each)).tolist()


@dataclass(frozen=True)
class _AtTimes:
    p: Probability


@checked
@dataclass(frozen=True)
class Sometimes(_Composite, _AtTimes):
    """With probability ``p``, apply all transforms in sequence. Otherwise, apply none. Without ``rng``, apply them only if ``p`` is 1.

    Args:
        transforms: A list of transforms, or one transform. A nested list is also applied in sequence.
        p: Probability, from 0 to 1.

    >>> image = np.array([[1, 2, 3]], np.uint8)
    >>> Sometimes(0.5, [FlipX(p=1), Brightness()])(image, np.random.default_rng(1))
    array([[1, 2, 3]], dtype=uint8)
    """

    def chosen(self, rng: Generator | None) -> Sequence[int]:
        return range(len(self._each)) if happens(self.p, rng) else ()


@checked
@dataclass(frozen=True)
class OneOf(_Composite):
    """Apply one random transform. Without ``rng``, the image does not change.

    Args:
        transforms: The transforms. A nested list counts as one transform. If it is selected, all its elements are applied in order.
        weights: Relative probability of each transform, at least 0. At least one must be above 0. By default, all transforms are equally
            likely.

    >>> image = np.array([[10, 20, 30]], np.uint8)
    >>> OneOf([FlipX(p=1), Invert(p=1)], weights=[1, 3])(image, np.random.default_rng(0))
    array([[245, 235, 225]], dtype=uint8)
    """

    weights: Annotated[tuple[float, ...], Range(ge=0)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(len(self._each) > 0, self, "transforms", "at least one")
        fit = self.weights is None or (len(self.weights) == len(self._each) and 0 < sum(self.weights) < math.inf)
        require(fit, self, "weights", f"{len(self._each)} numbers, one for each transform, not all 0")

    def chosen(self, rng: Generator | None) -> Sequence[int]:
        if rng is None:
            return ()
        if self.weights is None:
            return (below(len(self._each), rng),)
        ends = np.cumsum(self.weights)
        return (int(np.searchsorted(ends, rng.random() * ends[-1], side="right")),)


@dataclass(frozen=True)
class _SoMany:
    n: int | Least


@checked
@dataclass(frozen=True)
class SomeOf(_Composite, _SoMany):
    """Apply ``n`` random transforms, each at most once, in the order of the list. Without ``rng``, the image does not change.

    Args:
        transforms: The transforms. A nested list counts as one transform.
        n: Number of transforms to apply, or the (minimum, maximum) from which a random number is drawn.

    >>> image = np.array([[10, 20, 30]], np.uint8)
    >>> SomeOf((1, 2), [FlipX(p=1), Invert(p=1), Brightness()])(image, np.random.default_rng(0))
    array([[ 6, 12, 18]], dtype=uint8)
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
        return sorted(rng.permutation(len(self._each))[: least + below(most - least + 1, rng)].tolist())
