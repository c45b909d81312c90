"""The interface of transforms. A transform draws random parameters once per image, and applies them to the image and its annotations.

A colour transform is a frozen dataclass with a method ``image``. If it is random, it also defines ``draw``. A geometric transform
(:class:`Geometric`) also defines ``points``, which highway uses to transform boxes. A crop (:class:`Crop`) defines ``box`` instead. A crop
that depends on the boxes of the image (:class:`SeeingCrop`) defines ``draw_for`` instead.

Coordinates are in pixels, with x to the right and y down. (0, 0) is the upper left *corner* of the upper left pixel, so the centre of this
pixel is (0.5, 0.5). Points in an image have ``0 <= x <= width`` and ``0 <= y <= height``.
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
    """An object with the methods ``draw``, ``image``, ``boxes``, ``points``, ``mask`` and ``__call__`` of :class:`Transform`.

    Its class does not have to be a subclass of ``Transform``. All other methods of ``Transform`` are optional.

    >>> isinstance(FlipX(), TransformLike), isinstance(print, TransformLike)
    (True, False)
    """

    def draw(self, size: Size, rng: Generator | None) -> Any: ...
    def image(self, image: np.ndarray, params: Any) -> np.ndarray: ...
    def boxes(self, boxes: np.ndarray, params: Any, size: Size) -> np.ndarray: ...
    def points(self, points: np.ndarray, params: Any, size: Size) -> np.ndarray: ...
    def mask(self, mask: np.ndarray, params: Any) -> np.ndarray: ...
    def __call__(self, image: np.ndarray, rng: Generator | None = None) -> np.ndarray: ...


class Seen(NamedTuple):
    """The boxes of an image, for transforms whose parameters depend on the boxes.

    Args:
        boxes: float32 ``(N, 4)`` as x1, y1, x2, y2. Removed boxes and padding are empty.
        visible: float32 ``(N,)``: the fraction of each box that is still in the image after the preceding transforms.
    """

    boxes: np.ndarray
    visible: np.ndarray


class Transform(ABC):
    """Base class of transforms. A transform changes an image and its boxes, points and mask with the same random parameters.

    An image is ``(H, W, C)`` or ``(H, W)``, uint8 or floats. A subclass must define ``image``. By default, a transform has no random
    parameters, and does not change boxes, points and mask. Deriving from this class is optional: highway accepts any object with the
    methods of :class:`TransformLike`.

    A method must not modify its arguments. It can return an argument unchanged, or a view of an argument.

    Set ``rowwise = True`` in a class that changes each row of pixels independently. highway then transforms several small images with the
    same parameters in one call. The class must keep the number of rows, and its parameters must be hashable. Subclasses do not inherit
    ``rowwise``, because they might need whole images.

    >>> class Darken(Transform):
    ...     def draw(self, size, rng):
    ...         return 1 if rng is None else rng.uniform(0.5, 1)
    ...     def image(self, image, factor):
    ...         return (image * factor).astype(image.dtype)
    >>> Darken()(np.array([[100, 200]], np.uint8), np.random.default_rng(0))
    array([[ 81, 163]], dtype=uint8)
    """

    rowwise: ClassVar[bool] = False

    @property
    def sees_boxes(self) -> bool:
        """Whether the parameters depend on the boxes. If so, highway calls :meth:`draw_for` instead of :meth:`draw`."""
        return False

    @property
    def removes_boxes(self) -> bool:
        """Whether highway removes empty boxes after the last transform, and also their rows in other fields, such as labels."""
        return False

    def draw(self, size: Size, rng: Generator | None) -> Any:
        """Return random parameters for an image of ``size``. If ``rng`` is ``None``, return fixed parameters, such as a centred box."""
        return None

    def draw_for(self, size: Size, rng: Generator | None, seen: Seen | None) -> Any:
        """Return the parameters for an image of ``size`` and its boxes. ``seen`` is ``None`` if the image has no boxes."""
        return self.draw(size, rng)

    def output(self, params: Any, size: Size) -> Size:
        """Return the size of the result for an image of ``size``."""
        return size

    @abstractmethod
    def image(self, image: np.ndarray, params: Any) -> np.ndarray:
        """Return the transformed image."""

    def boxes(self, boxes: np.ndarray, params: Any, size: Size) -> np.ndarray:
        """Return the transformed boxes, float32 ``(N, 4)`` as x1, y1, x2, y2. ``size`` is the size of the original image."""
        return boxes

    def points(self, points: np.ndarray, params: Any, size: Size) -> np.ndarray:
        """Return the transformed points, float32 ``(N, 2)`` as x, y. ``size`` is the size of the original image."""
        return points

    def visible(self, boxes: np.ndarray, params: Any, size: Size) -> np.ndarray | float:
        """Return the fraction of each transformed box that is in the new image: ``(N,)``, or 1 for all boxes."""
        return 1.0

    def mask(self, mask: np.ndarray, params: Any) -> np.ndarray:
        """Return the transformed mask. ``mask`` is ``(H, W)`` of any dtype. Its values must not be interpolated."""
        return mask

    def __call__(self, image: np.ndarray, rng: Generator | None = None) -> np.ndarray:
        """Draw parameters, and transform one image. Raises ValueError if ``image`` is not one image, for example a batch."""
        checked_image(image, type(self).__name__)
        return self.image(image, self.draw(image.shape[:2], rng))


@runtime_checkable
class Writing(Protocol):
    """A transform that can write its result into a given array. The last transform can then write into a row of the output batch.

    >>> isinstance(Normalize(), Writing)
    True
    >>> row = np.empty((2, 2, 3), np.float32)
    >>> Normalize().into(np.zeros((2, 2, 3), np.uint8), None, row) is row
    True
    """

    def into(self, image: np.ndarray, params: Any, out: np.ndarray) -> np.ndarray:
        """If the shape and dtype of ``out`` fit, write the transformed image into ``out``, and return ``out``.

        Otherwise, return a new array.
        """


@runtime_checkable
class BoxCrop(Protocol):
    """A crop for the parameter ``crop`` of readers (the stages that read and decode images).

    The reader first draws the box, and then decodes only the pixels in the box.

    ``box`` returns (top, left, height, width) of a box in the image. The box can depend only on the size of the image and on random
    numbers. ``shape`` is the (height, width) of the results. If the box has another size, the reader resizes its pixels.

    >>> isinstance(RandomCrop((32, 32)), BoxCrop), isinstance(Slicer(), BoxCrop)
    (True, False)
    """

    @property
    def shape(self) -> Size: ...

    def box(self, size: Size, rng: Generator | None) -> Box: ...


@runtime_checkable
class RunCrop(BoxCrop, Protocol):
    """A crop that can draw the boxes of many images in one call of ``draw_boxes``. Readers then do not call ``box`` for each image.

    If a class defines ``box``, but inherits ``draw_boxes``, readers call ``box``.

    >>> crop = RandomResizedCrop((224, 224))
    >>> isinstance(crop, RunCrop)
    True
    >>> boxes = crop.draw_boxes(np.array([[300, 400]]), np.random.default_rng(0).random((1, 23)))
    >>> boxes.shape
    (1, 4)
    """

    def draw_boxes(self, sizes: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Return the boxes, int64 ``(N, 4)``: top, left, height and width in pixels.

        If ``box`` would raise an error, the box is (0, 0, 0, 0).

        Args:
            sizes: int64 ``(N, 2)``: height and width of each image.
            numbers: Random numbers, float64 ``(N, 23)``, uniform between 0 and 1. Each box must depend only on its own row.
        """


def draws_runs(crop: BoxCrop) -> TypeGuard[RunCrop]:
    """Return whether readers can call ``draw_boxes`` of a crop. Return ``False`` if its class overrides ``box``, but not ``draw_boxes``."""
    return speaks_for("draw_boxes", "box", crop)


class Geometric(Transform):
    """Base class of transforms that move pixels. A subclass defines how points move. Boxes are moved in the same way.

    A box becomes the smallest box around its moved corners (:meth:`outlines`), and is clipped to the new image. A box outside the new image
    becomes (0, 0, 0, 0). It is not removed, because labels refer to boxes by their index. Empty boxes (the padding of a batch) do not
    change. A mask is transformed by :meth:`image`, unless the subclass defines ``mask``.

    >>> class UpsideDown(Geometric):
    ...     def image(self, image, params):
    ...         return image[::-1, ::-1]
    ...     def points(self, points, params, size):
    ...         return np.float32([size[1], size[0]]) - points
    >>> UpsideDown().boxes(np.float32([[0, 0, 10, 20]]), None, (100, 100))
    array([[ 90.,  80., 100., 100.]], dtype=float32)
    """

    @abstractmethod
    def points(self, points: np.ndarray, params: Any, size: Size) -> np.ndarray:
        """Return the transformed points. They can be outside the image."""

    def outlines(self, boxes: np.ndarray) -> np.ndarray:
        """Return the points that determine each new box, float32 ``(N, K, 2)``. By default, these are the corners of the box."""
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
        """Return two arrays, float32 ``(N, 4)``: the boxes around the moved outlines, and these boxes clipped to the new image."""
        outlines = self.outlines(boxes)
        moved = self.points(outlines.reshape(-1, 2), params, size).reshape(outlines.shape)
        height, width = self.output(params, size)
        whole = np.hstack([moved.min(axis=1), moved.max(axis=1)])
        return whole, np.clip(whole, 0, np.array([width, height, width, height], whole.dtype))

    def mask(self, mask: np.ndarray, params: Any) -> np.ndarray:
        """Return the transformed mask. Transforms that interpolate override this method, and use nearest neighbour sampling."""
        return self.image(mask, params)


class _Cutting(Geometric):
    """A transform that crops a box. Its first four parameters are top, left, height and width of the box."""

    def output(self, params: Any, size: Size) -> Size:
        return params[2], params[3]

    def image(self, image: np.ndarray, params: Any) -> np.ndarray:
        return F.crop(image, params[:2], params[2:4])

    def points(self, points: np.ndarray, params: Any, size: Size) -> np.ndarray:
        return placed(points, offset=(-params[1], -params[0]))


class Crop(_Cutting):
    """Base class of crops whose box depends only on the size of the image and on random numbers.

    A subclass that also defines ``shape``, the (height, width) of the results, is a :class:`BoxCrop`.

    >>> class LeftHalf(Crop):
    ...     def box(self, size, rng):
    ...         return 0, 0, size[0], size[1] // 2
    >>> LeftHalf()(np.array([[1, 2, 3, 4]], np.uint8))
    array([[1, 2]], dtype=uint8)
    """

    @abstractmethod
    def box(self, size: Size, rng: Generator | None) -> Box:
        """Return (top, left, height, width) of the box for an image of ``size``. If ``rng`` is ``None``, return a box at the centre."""

    def draw(self, size: Size, rng: Generator | None) -> Box:
        return self.box(size, rng)


class SeeingCrop(_Cutting):
    """Base class of crops that depend on the boxes of the image.

    Readers do not accept such a crop as ``crop=``, because they draw the crop before they know the boxes.

    >>> class FirstBox(SeeingCrop):
    ...     def draw_for(self, size, rng, seen):
    ...         x1, y1, x2, y2 = map(int, seen.boxes[0])
    ...         return y1, x1, y2 - y1, x2 - x1
    >>> sample = {"image": np.zeros((100, 100, 3), np.uint8), "boxes": np.float32([[10, 10, 40, 30]])}
    >>> Augmentations([FirstBox()], boxes="boxes")(sample, rng=None)["image"].shape
    (20, 30, 3)
    """

    why_no_BoxCrop: ClassVar = (
        "this crop depends on the boxes, but a reader selects crops before it decodes: put the crop into Augmentations after the reader"
    )

    @property
    def sees_boxes(self) -> bool:
        return True

    @abstractmethod
    def draw_for(self, size: Size, rng: Generator | None, seen: Seen | None) -> Any:
        """Return top, left, height and width of the crop for an image of ``size``, followed by other parameters if needed."""

    def draw(self, size: Size, rng: Generator | None) -> Any:
        return self.draw_for(size, rng, None)


def areas(boxes: np.ndarray) -> np.ndarray:
    """Return the area of each box, ``(N,)``. The area is 0 for boxes without width or height."""
    width, height = np.maximum(boxes[:, 2:] - boxes[:, :2], 0).T
    area: np.ndarray = width * height
    return area


def placed(points: np.ndarray, scale: tuple[float, float] = (1, 1), offset: tuple[float, float] = (0, 0)) -> np.ndarray:
    """Return ``points * scale + offset`` as float32. ``scale`` and ``offset`` have one value for x and one for y."""
    moved: np.ndarray = points * np.array(scale, np.float32) + np.array(offset, np.float32)
    return moved.astype(np.float32, copy=False)


def happens(p: float, rng: Generator | None) -> bool:
    """Return ``True`` with probability ``p``. Without ``rng``, return whether ``p`` is 1."""
    return p >= 1 or (rng is not None and rng.random() < p)


def uniform(low: float, high: float, rng: Generator) -> float:
    """Return a uniform random number from ``low`` to ``high``. Four times as fast as ``rng.uniform()``."""
    return low + (high - low) * rng.random()


def below(count: int, rng: Generator) -> int:
    """Return a random integer from 0 to ``count - 1``. Three times as fast as ``rng.integers()``, but uniform only up to 2**-53."""
    return int(rng.random() * count)
