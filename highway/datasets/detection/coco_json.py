"""Read a COCO JSON file. An annotation describes an object. The annotations become arrays, grouped by image."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from highway.engine.cancel import check_cancelled
from highway.errors import DatasetError
from highway.stores.file import open_file
from highway.stores.unchanging import UnchangingFile

log = logging.getLogger("highway")

EmptyBoxes = Literal["drop", "keep", "raise"]


class _Image(msgspec.Struct, gc=False):
    id: int
    file_name: str
    height: int = 0
    width: int = 0


class _Category(msgspec.Struct):
    id: int
    name: str
    keypoints: list[str] = []


class _Box(msgspec.Struct, gc=False):
    """An annotation. To save memory, the other members of the JSON object are not decoded."""

    image_id: int
    category_id: int
    bbox: tuple[float, float, float, float]
    area: float = -1
    iscrowd: int | bool = 0


class _Full(_Box, gc=False):
    """An annotation with keypoints, and with a mask as JSON that is not decoded."""

    segmentation: msgspec.Raw = msgspec.Raw()
    keypoints: list[float] = []


class _Boxes(msgspec.Struct):
    images: list[_Image]
    annotations: list[_Box]
    categories: list[_Category]


class _Fulls(_Boxes):
    annotations: list[_Full]  # type: ignore[assignment]  # the list is never written to


class _Apart(msgspec.Struct):
    annotations: list[msgspec.Raw]


class Annotations(NamedTuple):
    """The content of a JSON file. Skipped annotations are not included.

    Args:
        file: The file.
        names: The file names of the images.
        ids: The ids of the images, int64.
        sizes: Height and width of each image in pixels, int64 ``(images, 2)``; 0 if the file does not contain the size.
        begins: Index of the first annotation of each image, int64 ``(images + 1,)``. The last value is the number of annotations.
        boxes: float32 ``(N, 4)``: x1, y1, x2, y2 in pixels.
        labels: int32 ``(N,)``: indexes into ``classes``.
        iscrowd: bool ``(N,)``.
        areas: float32 ``(N,)``, in pixels.
        keypoints: float32 ``(N, K, 3)``: x, y and visibility, as in the file; ``None`` if keypoints are not read.
        masks: int64 ``(N, 2)``: position and number of bytes of each mask's description in the file; ``None`` if masks are not read.
        numbers: The index of each annotation in the file, int64 ``(N,)``.
        classes: The names of the categories, in the order of their ids.
        category_ids: The ids of the categories, in ascending order.
        points: The names of the keypoints.
    """

    file: UnchangingFile
    names: list[str]
    ids: np.ndarray
    sizes: np.ndarray
    begins: np.ndarray
    boxes: np.ndarray
    labels: np.ndarray
    iscrowd: np.ndarray
    areas: np.ndarray
    keypoints: np.ndarray | None
    masks: np.ndarray | None
    numbers: np.ndarray
    classes: list[str]
    category_ids: list[int]
    points: list[str]


def load(path: str, masks: bool, keypoints: bool, crowds: bool, empty_boxes: EmptyBoxes) -> Annotations:
    """Read a JSON file.

    Args:
        path: The file, or its URL.
        masks: Whether to find the descriptions of the masks in the file.
        keypoints: Whether to read keypoints.
        crowds: Whether to read annotations of a whole crowd.
        empty_boxes: How to treat empty boxes; see :class:`~highway.datasets.COCO`.

    Raises:
        OSError: the file cannot be read.
        DatasetError: the file is not valid. The message gives the index of the annotation, from 0.
    """
    file = open_file(path)
    data = file.read(0, file.state.size)
    try:
        parsed: _Boxes = msgspec.json.decode(data, type=_Fulls if masks or keypoints else _Boxes)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DatasetError(f"{file.path}: not annotations of COCO, or damaged or truncated: {_placed(data, error)}") from error
    try:
        return _Reading(parsed, data).annotations(file, masks, keypoints, crowds, empty_boxes)
    except (DatasetError, OverflowError) as error:
        raise DatasetError(f"{file.path}: {error}") from None


class _Reading:
    """The annotations of a file while they are converted to arrays."""

    def __init__(self, parsed: _Boxes, data: bytes) -> None:
        self.parsed, self.data = parsed, data
        self.images, self.found = parsed.images, parsed.annotations
        self.categories = sorted(parsed.categories, key=lambda category: category.id)

    def annotations(self, file: UnchangingFile, masks: bool, keypoints: bool, crowds: bool, empty_boxes: EmptyBoxes) -> Annotations:
        ids, category_ids = [image.id for image in self.images], [category.id for category in self.categories]
        image = self._places("image_id", ids, "image")
        label = self._places("category_id", category_ids, "category")
        sizes = np.array([(one.height, one.width) for one in self.images], np.int64).reshape(-1, 2)
        boxes, areas = self._boxes()
        iscrowd = np.array([bool(one.iscrowd) for one in self.found], np.bool_)
        names = _point_names(self.categories) if keypoints else []
        points = self._keypoints(len(names)) if keypoints else None
        where = self._masks() if masks else None
        left = self._not_empty(boxes, sizes[image], empty_boxes)
        if not crowds:
            left &= ~iscrowd
        order = np.argsort(image, kind="stable")
        order = order[left[order]]
        return Annotations(
            file=file,
            names=[one.file_name for one in self.images],
            ids=np.array(ids, np.int64),
            sizes=sizes,
            begins=np.searchsorted(image[order], np.arange(len(ids) + 1)),
            boxes=boxes[order],
            labels=label[order].astype(np.int32),
            iscrowd=iscrowd[order],
            areas=areas[order],
            keypoints=None if points is None else points[order],
            masks=None if where is None else where[order],
            numbers=order,
            classes=[category.name for category in self.categories],
            category_ids=category_ids,
            points=names,
        )

    def _places(self, name: str, ids: Sequence[int], what: str) -> np.ndarray:
        """Return the index of each annotation's id in ``ids``. The id is the attribute ``name`` of the annotation."""
        places = {one: place for place, one in enumerate(ids)}
        if len(places) != len(ids):
            twice = next(one for place, one in enumerate(ids) if places[one] != place)
            raise DatasetError(f"the {what} id {twice} occurs more than once")
        check_cancelled()
        try:
            return np.fromiter((places[getattr(one, name)] for one in self.found), np.int64, len(self.found))
        except KeyError as error:
            number = next(number for number, one in enumerate(self.found) if getattr(one, name) not in places)
            raise DatasetError(f"annotation {number} refers to the {what} {error}, which does not exist") from None

    def _boxes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the boxes as x1, y1, x2, y2, and the areas."""
        boxes = np.array([one.bbox for one in self.found], np.float64).reshape(-1, 4)
        areas = np.array([one.area for one in self.found], np.float64)
        areas = np.where(areas < 0, boxes[:, 2] * boxes[:, 3], areas)
        boxes[:, 2:] += boxes[:, :2]
        with np.errstate(over="ignore"):
            corners = boxes.astype(np.float32)
        if not (finite := np.isfinite(corners).all(axis=1)).all():
            number = int(np.argmin(finite))
            raise DatasetError(f"annotation {number}: the bbox is {list(self.found[number].bbox)}; expected finite numbers of pixels")
        return corners, areas.astype(np.float32)

    def _not_empty(self, boxes: np.ndarray, sizes: np.ndarray, empty_boxes: EmptyBoxes) -> np.ndarray:
        """Return whether to keep each box, as an array of bool. Log the number of removed boxes."""
        unknown = sizes[:, ::-1] == 0
        inside = (boxes[:, 2:] > 0) & ((boxes[:, :2] < sizes[:, ::-1]) | unknown)
        fine: np.ndarray = ((boxes[:, :2] < boxes[:, 2:]) & inside).all(axis=1)
        if empty_boxes == "keep" or fine.all():
            return np.ones(len(fine), np.bool_)
        number = int(np.argmin(fine))
        many = f"{np.count_nonzero(~fine)} of {len(fine)} boxes have no area or are outside their image"
        first = f"the first is annotation {number}, with the bbox {list(self.found[number].bbox)}"
        if empty_boxes == "raise":
            raise DatasetError(f"{many}; {first}; empty_boxes='drop' removes them")
        log.warning("%s, so they are removed; %s; pass empty_boxes='keep' to keep them", many, first)
        return fine

    def _keypoints(self, count: int) -> np.ndarray:
        found: list[Any] = [one.keypoints or [0.0] * 3 * count for one in self.found]  # type: ignore[attr-defined]
        for number, values in enumerate(found):
            if len(values) != 3 * count or not {0.0, 1.0, 2.0}.issuperset(values[2::3]):
                raise DatasetError(f"annotation {number}: expected x, y and visibility (0, 1, 2) of {count} keypoints, found {values}")
        return np.array(found, np.float32).reshape(-1, count, 3)

    def _masks(self) -> np.ndarray:
        base = _address(self.data)
        where = np.empty((len(self.found), 2), np.int64)
        for number, one in enumerate(self.found):
            raw = one.segmentation  # type: ignore[attr-defined]
            if not len(raw):
                raise DatasetError(f"annotation {number} has no segmentation; use masks=False")
            where[number] = _address(raw) - base, len(raw)
        return where


def _address(buffer: Any) -> int:
    return int(np.frombuffer(buffer, np.uint8).__array_interface__["data"][0])


def _point_names(categories: Sequence[_Category]) -> list[str]:
    with_points = [category for category in categories if category.keypoints]
    if not with_points:
        raise DatasetError("no category of the file has keypoints; use a file such as person_keypoints_val2017.json, or keypoints=False")
    if len({len(category.keypoints) for category in with_points}) > 1:
        numbers = ", ".join(f"{category.name} {len(category.keypoints)}" for category in with_points)
        raise DatasetError(f"the categories have different numbers of keypoints ({numbers}); expected the same number")
    return with_points[0].keypoints


def _placed(data: bytes, error: Exception) -> str:
    """Return the message of a decoding error, with the index of the annotation if the error is in an annotation."""
    if isinstance(error, msgspec.ValidationError) and "$.annotations[...]" in str(error):
        for number, raw in enumerate(msgspec.json.decode(data, type=_Apart).annotations):
            try:
                msgspec.json.decode(raw, type=_Full)
            except msgspec.ValidationError:
                return str(error).replace("[...]", f"[{number}]", 1)
    return str(error)
