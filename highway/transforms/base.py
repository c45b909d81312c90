"""What a transform is: it draws its parameters once, from the image's size, and applies them to the image and all that belongs to it.

A colour transform is a frozen dataclass with ``image``, and with ``draw`` if there is chance in it. A geometric one (:class:`Geometric`)
also says where a point goes; the boxes follow from that. A crop (:class:`Crop`) says which box it cuts. One whose draw hangs on the boxes
(:class:`SeeingCrop`) sets ``sees_boxes`` and has ``draw_for``.

Coordinates are pixels with (0, 0) at the upper left *corner* of the upper left pixel, x to the right and y down: an image has the points
``0 <= x <= width``, and the centre of its first pixel is (0.5, 0.5).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, Protocol, TypeGuard, runtime_checkable

import numpy as np
from numpy.random import Generator

from highway import functional as F
from highway.images.items import checked_image
from highway.images.ops import Box, Size
from highway.parameters.overrides import speaks_for


@runtime_checkable
class TransformLike(Protocol):
    """What has the methods of :class:`Transform`, derived from it or not."""

    def draw(self, size: Size, rng: Generator | None) -> Any: ...
    def image(self, image: np.ndarray, params: Any) -> np.ndarray: ...
    def boxes(self, boxes: np.ndarray, params: Any, size: Size) -> np.ndarray: ...
    def points(self, points: np.ndarray, params: Any, size: Size) -> np.ndarray: ...
    def mask(self, mask: np.ndarray, params: Any) -> np.ndarray: ...
    def __call__(self, image: np.ndarray, rng: Generator | None = None) -> np.ndarray: ...


class Seen(NamedTuple):
    """The boxes of an image that a draw may see.

    Args:
        boxes: float32 ``(N, 4)`` as x1, y1, x2, y2; those that are lost, and padding, are empty.
        visible: float32 ``(N,)``: which share of each is left in the image after the transforms so far.
    """

    boxes: np.ndarray
    visible: np.ndarray


class Transform(ABC):
    """Change one image, and the boxes, points and mask that belong to it, by parameters that are drawn once.

    An image is ``(H, W, C)`` or ``(H, W)``, uint8 or floats. Subclasses get all methods but ``image``: without chance, and leaving boxes,
    points and mask as they are. Subclassing is not needed; an object that has the methods will do (:class:`TransformLike`).

    No method writes into what it receives; a result may be the argument itself, or a view of it.

    ``rowwise = True`` says of a class, and not of those derived from it, that each row of pixels is changed by itself, that their number
    stays, and that its parameters can be the keys of a dict. Small images with the same parameters are then changed by one call.
    """

    rowwise: ClassVar[bool] = False

    @property
    def sees_boxes(self) -> bool:
        """Whether its draw hangs on the boxes, so that :meth:`draw_for` is asked instead of :meth:`draw`."""
        return False

    @property
    def removes_boxes(self) -> bool:
        """Whether boxes that are empty in the end are to be removed, with all that goes with them."""
        return False

    def draw(self, size: Size, rng: Generator | None) -> Any:
        """Return the parameters for an image of ``size``; without ``rng`` those of no chance: the identity, the centre."""
        return None

    def draw_for(self, size: Size, rng: Generator | None, seen: Seen | None) -> Any:
        """Return the parameters for an image of ``size`` with its boxes; ``None`` for an image that has none."""
        return self.draw(size, rng)

    def output(self, params: Any, size: Size) -> Size:
        """Return the size of what comes out for an image of ``size``."""
        return size

    @abstractmethod
    def image(self, image: np.ndarray, params: Any) -> np.ndarray:
        """Return the transformed image."""

    def boxes(self, boxes: np.ndarray, params: Any, size: Size) -> np.ndarray:
        """Return where the boxes, float32 ``(N, 4)`` as x1, y1, x2, y2, of an image of ``size`` go."""
        return boxes

    def points(self, points: np.ndarray, params: Any, size: Size) -> np.ndarray:
        """Return where the points, float32 ``(N, 2)`` as x, y, of an image of ``size`` go."""
        return points

    def visible(self, boxes: np.ndarray, params: Any, size: Size) -> np.ndarray | float:
        """Return which share of each box, after the transform, is within the image: ``(N,)``, or 1 for all."""
        return 1.0

    def mask(self, mask: np.ndarray, params: Any) -> np.ndarray:
        """Return the mask ``(H, W)`` of any dtype as it belongs to the transformed image; its values are never mixed."""
        return mask

    def __call__(self, image: np.ndarray, rng: Generator | None = None) -> np.ndarray:
        """Draw, and transform one image; what is none, such as a batch, is a ValueError."""
        checked_image(image, type(self).__name__)
        return self.image(image, self.draw(image.shape[:2], rng))


@runtime_checkable
class Writing(Protocol):
    """A transform that can write its result into an array: the row of a batch, if it comes last."""

    def into(self, image: np.ndarray, params: Any, out: np.ndarray) -> np.ndarray:
        """Transform ``image`` into ``out`` and return it if its shape and dtype fit, else return a new array."""


@runtime_checkable
class BoxCrop(Protocol):
    """A crop that draws its box from the image's size alone, so that a reader can draw it before decoding and decode no more than that.

    ``box`` returns (top, left, height, width) within the image; what it holds is resized to ``shape`` (height, width) if it differs.
    """

    @property
    def shape(self) -> Size: ...

    def box(self, size: Size, rng: Generator | None) -> Box: ...


@runtime_checkable
class RunCrop(BoxCrop, Protocol):
    """A crop that draws the boxes of many images at once, so that a reader need not ask for each one's.

    A class that has ``box`` of its own, and inherits ``draw_boxes`` from another, is asked for ``box`` alone.
    """

    def draw_boxes(self, sizes: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Return the boxes, int64 ``(N, 4)``: top, left, height and width in pixels; zeros where ``box`` raises an error.

        Args:
            sizes: int64 ``(N, 2)``: height and width of each image.
            numbers: float64 ``(N, 23)``, evenly between 0 and 1: what the box of each is drawn by. No box may hang on those of others.
        """


def draws_runs(crop: BoxCrop) -> TypeGuard[RunCrop]:
    """Say whether a crop draws the boxes of many images at once, by the same rule as one."""
    return speaks_for("draw_boxes", "box", crop)


class Geometric(Transform):
    """A transform that moves pixels: says where points go, and has boxes and mask follow.

    A box becomes the smallest one around its moved corners (:meth:`outlines`), clipped to the output. Boxes keep their number and order,
    since labels go with them: one of which nothing is left becomes (0, 0, 0, 0), and empty boxes (the padding of a batch) stay as they are.
    """

    @abstractmethod
    def points(self, points: np.ndarray, params: Any, size: Size) -> np.ndarray:
        """Return where the points go; they may leave the image."""

    def outlines(self, boxes: np.ndarray) -> np.ndarray:
        """Return the points of each box, float32 ``(N, K, 2)``, that say where it goes: the corners, enough where lines stay lines."""
        return boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)

    def boxes(self, boxes: np.ndarray, params: Any, size: Size) -> np.ndarray:
        _, cut = self._moved(boxes, params, size)
        left = np.where(areas(cut)[:, None] > 0, cut, 0)
        return np.where(areas(boxes)[:, None] > 0, left, boxes).astype(np.float32)

    def visible(self, boxes: np.ndarray, params: Any, size: Size) -> np.ndarray:
        moved, cut = map(areas, self._moved(boxes, params, size))
        share: np.ndarray = np.divide(cut, moved, out=np.ones_like(moved), where=moved > 0)
        return share

    def _moved(self, boxes: np.ndarray, params: Any, size: Size) -> tuple[np.ndarray, np.ndarray]:
        """Return the boxes around the moved outlines, float32 ``(N, 4)``: whole, and clipped to the image."""
        outlines = self.outlines(boxes)
        moved = self.points(outlines.reshape(-1, 2), params, size).reshape(outlines.shape)
        height, width = self.output(params, size)
        whole = np.hstack([moved.min(axis=1), moved.max(axis=1)])
        return whole, np.clip(whole, 0, np.array([width, height, width, height], whole.dtype))

    def mask(self, mask: np.ndarray, params: Any) -> np.ndarray:
        """Return the mask moved like the image; a transform that interpolates overrides this with nearest neighbours."""
        return self.image(mask, params)


class _Cutting(Geometric):
    """A transform that cuts out a box, whose top, left, height and width its parameters begin with."""

    def output(self, params: Any, size: Size) -> Size:
        return params[2], params[3]

    def image(self, image: np.ndarray, params: Any) -> np.ndarray:
        return F.crop(image, params[:2], params[2:4])

    def points(self, points: np.ndarray, params: Any, size: Size) -> np.ndarray:
        return placed(points, offset=(-params[1], -params[0]))


class Crop(_Cutting):
    """A transform that cuts out a box, which it draws from the image's size alone."""

    @abstractmethod
    def box(self, size: Size, rng: Generator | None) -> Box:
        """Return top, left, height and width of the box for an image of ``size``; the centre without ``rng``."""

    def draw(self, size: Size, rng: Generator | None) -> Box:
        return self.box(size, rng)


class SeeingCrop(_Cutting):
    """A transform that cuts out a box which hangs on the boxes of the image; readers cannot draw it before they decode."""

    why_no_BoxCrop: ClassVar = "its draw hangs on the boxes, and a reader draws before it decodes: put it into Augmentations behind it"

    @property
    def sees_boxes(self) -> bool:
        return True

    @abstractmethod
    def draw_for(self, size: Size, rng: Generator | None, seen: Seen | None) -> Any:
        """Return top, left, height and width of the box, and what else the transform needs to know, for an image of ``size``."""

    def draw(self, size: Size, rng: Generator | None) -> Any:
        return self.draw_for(size, rng, None)


def areas(boxes: np.ndarray) -> np.ndarray:
    """Return the area of each box, ``(N,)``; 0 for those without width or height."""
    width, height = np.maximum(boxes[:, 2:] - boxes[:, :2], 0).T
    area: np.ndarray = width * height
    return area


def placed(points: np.ndarray, scale: tuple[float, float] = (1, 1), offset: tuple[float, float] = (0, 0)) -> np.ndarray:
    """Return points times ``scale`` plus ``offset``, both for x and y, as float32."""
    moved: np.ndarray = points * np.array(scale, np.float32) + np.array(offset, np.float32)
    return moved.astype(np.float32, copy=False)


def happens(p: float, rng: Generator | None) -> bool:
    """Say whether something of probability ``p`` is to happen; without ``rng`` only what is certain does, which costs no draw."""
    return p >= 1 or (rng is not None and rng.random() < p)


def uniform(low: float, high: float, rng: Generator) -> float:
    """Return a number from ``low`` to ``high``, evenly drawn: as ``rng.uniform()``, in a quarter of the time."""
    return low + (high - low) * rng.random()


def below(count: int, rng: Generator) -> int:
    """Return a whole number from 0 to below ``count``, evenly drawn (to 2**-53): as ``rng.integers()``, in a third of the time."""
    return int(rng.random() * count)
