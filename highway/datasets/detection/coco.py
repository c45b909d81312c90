"""COCO, and datasets in COCO's format. One JSON file describes the objects in all images."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from highway.data import resolve_data_dir
from highway.datasets.detection.coco_json import Annotations, EmptyBoxes, load
from highway.datasets.detection.masks import Segmentation, draw
from highway.datasets.image_files import ImageFiles, named_files
from highway.datasets.opened import opened
from highway.errors import DatasetError, ImageError
from highway.images.decode import MAX_PIXELS
from highway.images.header import read_header
from highway.parameters.checks import checked
from highway.stores.file import fingerprint_of
from highway.stores.url import shown

log = logging.getLogger("highway")


class _Loaded:
    """The annotations of a file, and the selected images."""

    def __init__(self, annotations: Annotations, files: ImageFiles, images: np.ndarray) -> None:
        self.annotations, self.files, self.images = annotations, files, images
        self.decode_mask = msgspec.json.Decoder(Segmentation).decode
        self.has_warned = False  # whether the warning of _compare_sizes() was logged


@checked
@dataclass
class COCO:
    """The images of COCO, or of a dataset in COCO's format, with boxes, and optionally masks and keypoints.

    The annotations are read on the first access, once per process.

    Args:
        data_dir: The folder of the images, such as ``coco/train2017``, or the URL of this folder. Paths ``highway:objects/...`` refer to a
            few annotated photographs in the highway package.
        annotations: The JSON file, such as ``coco/annotations/instances_train2017.json``, or its URL. For the photographs in the highway
            package, the file is ``highway:objects/instances_val.json``.
        masks: Whether samples contain masks.
        keypoints: Whether samples contain keypoints, for example from ``person_keypoints_train2017.json``.
        crowds: Whether to include annotations of a whole crowd (``iscrowd`` is 1 in the file).
        skip_empty: Whether to skip images without boxes.
        empty_boxes: How to treat empty boxes. A box is empty if it has no area, or is completely outside the image. ``"drop"`` removes
            objects with empty boxes, and logs the number of these objects. ``"keep"`` keeps these objects. ``"raise"`` raises a
            DatasetError.

    A sample is a dict:

    - ``image``: the ``bytes`` of the encoded image;
    - ``image_id``: int64, the id of the image in the JSON file;
    - ``boxes``: float32 ``(N, 4)``: x1, y1, x2, y2 in pixels from the upper left corner of the image;
    - ``labels``: int32 ``(N,)``. Labels are numbered from 0, in the order of the category ids. ``dataset.category_ids[label]`` is the
      category id in the file;
    - ``iscrowd``: bool ``(N,)``;
    - ``area``: float32 ``(N,)`` in pixels, from the file. If the file has no area for an object, this is the area of the box;
    - ``masks``, if ``masks`` is true: uint8 ``(N, H, W)``, 1 for pixels of the object. H and W are the height and width of the image in the
      JSON file. If the actual image has a different size, highway logs a warning. The masks are equal to the masks of pycocotools;
    - ``keypoints``, if ``keypoints`` is true: float32 ``(N, K, 2)``: x and y. highway adds 0.5 to the numbers in the file, so that a
      keypoint is at the centre of a pixel;
    - ``visibility``, if ``keypoints`` is true: uint8 ``(N, K)``: 0 if a keypoint is not labelled, 1 if it is hidden, 2 if it is visible.

    Raises:
        OSError: a file does not exist or cannot be read.
        DatasetError: the JSON file is not valid. The message gives the index of the annotation, from 0.
        DatasetError: the JSON file has changed since it was first read.
        DatasetError: masks or keypoints are requested, but the JSON file has none.
        DatasetError: a ``file_name`` in the JSON file is outside ``data_dir``.

    >>> dataset = COCO("highway:objects/JPEGImages", "highway:objects/instances_val.json")
    >>> sample = dataset[0]
    >>> len(dataset), sorted(sample), sample["boxes"].shape
    (4, ['area', 'boxes', 'image', 'image_id', 'iscrowd', 'labels'], (3, 4))
    """

    data_dir: str
    annotations: str
    masks: bool = False
    keypoints: bool = False
    crowds: bool = True
    skip_empty: bool = False
    empty_boxes: EmptyBoxes = "drop"

    @opened
    def _loaded(self) -> _Loaded:
        root, annotations = resolve_data_dir(self.data_dir), resolve_data_dir(self.annotations)
        found = load(annotations, self.masks, self.keypoints, self.crowds, self.empty_boxes)
        for name in found.names:
            if os.path.isabs(name) or ".." in name.split("/"):
                raise DatasetError(
                    f"{shown(self.annotations)}: the file_name {name!r} is outside data_dir; pass a parent folder as data_dir, and use "
                    f"paths in it"
                )
        counts = np.diff(found.begins)
        images = np.flatnonzero(counts) if self.skip_empty else np.arange(len(counts))
        return _Loaded(found, named_files(root, found.names, annotations), images)

    @opened
    def keys(self) -> list[str]:
        """The file names of the images, in the order of the JSON file."""
        loaded = self._loaded
        return [loaded.files.keys[image] for image in loaded.images.tolist()]

    @property
    def classes(self) -> list[str]:
        """The names of the categories, indexed by label."""
        return self._loaded.annotations.classes

    @property
    def category_ids(self) -> list[int]:
        """The category ids in the JSON file, indexed by label."""
        return self._loaded.annotations.category_ids

    @property
    def keypoint_names(self) -> list[str]:
        """The names of the keypoints, indexed by keypoint. The list is empty if ``keypoints`` is false."""
        return self._loaded.annotations.points

    def costs(self, kind: str) -> np.ndarray | None:
        """Return the number of pixels of each image, int64 ``(N,)``, from the JSON file.

        Return ``None`` if ``kind`` is not ``"pixels"``, or if the file lacks the size of an image.
        """
        pixels: np.ndarray = self._loaded.annotations.sizes[self._loaded.images].prod(1)
        return pixels if kind == "pixels" and pixels.all() else None

    def __len__(self) -> int:
        return len(self._loaded.images)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return several samples. Images in an object store are requested concurrently."""
        images = self._loaded.images[list(numbers)].tolist()
        return [self._sample(*one) for one in zip(images, self._loaded.files.contents(images), strict=True)]

    def _sample(self, image: int, data: bytes) -> dict[str, Any]:
        found = self._loaded.annotations
        rows = slice(int(found.begins[image]), int(found.begins[image + 1]))
        sample: dict[str, Any] = {"image": data, "image_id": found.ids[image]}
        columns = {"boxes": found.boxes, "labels": found.labels, "iscrowd": found.iscrowd, "area": found.areas}
        sample |= {name: column[rows].copy() for name, column in columns.items()}
        if self.masks:
            sample["masks"] = self._masks(image, rows)
            self._compare_sizes(image, data)
        if found.keypoints is not None:
            sample["keypoints"] = found.keypoints[rows, :, :2] + np.float32(0.5)
            sample["visibility"] = found.keypoints[rows, :, 2].astype(np.uint8)
        return sample

    def _masks(self, image: int, rows: slice) -> np.ndarray:
        loaded = self._loaded
        found = loaded.annotations
        height, width = found.sizes[image].tolist()
        if not (height > 0 and width > 0 and height * width <= MAX_PIXELS):
            raise DatasetError(
                f"{shown(self.annotations)}: the image {found.names[image]!r} has height {height} and width {width}; expected a size of "
                f"{MAX_PIXELS} pixels at most, to draw its masks"
            )
        assert found.masks is not None
        masks = np.zeros((rows.stop - rows.start, height, width), np.uint8)
        for mask, (offset, size), number in zip(masks, found.masks[rows].tolist(), found.numbers[rows], strict=True):
            try:
                draw(loaded.decode_mask(found.file.read(offset, size)), mask)
            except (msgspec.ValidationError, ValueError) as error:
                if isinstance(error, DatasetError):
                    raise
                raise DatasetError(f"{shown(self.annotations)}: annotation {number}: the segmentation cannot be drawn: {error}") from error
        return masks

    def _compare_sizes(self, image: int, data: bytes) -> None:
        """Log a warning for the first image whose size differs from the size of its masks."""
        loaded, size = self._loaded, self._loaded.annotations.sizes[image].tolist()
        if loaded.has_warned:
            return
        with suppress(ImageError):  # the user gets this error when the image is decoded
            if (found := list(read_header(data).size)) != size:
                loaded.has_warned = True
                log.warning(
                    f"{shown(self.annotations)}: the image {loaded.annotations.names[image]!r} and its masks have height and width "
                    f"{size} in the annotations, but the image file has {found}; masks and boxes do not fit such images: use the image "
                    f"files for which the annotations were made (only the first such image is reported)"
                )

    def locate(self, number: int) -> str:
        """Return the path of an image."""
        return self._loaded.files.path(int(self._loaded.images[number]))

    def fingerprint(self) -> str:
        """Return a string that changes when one of the files is written to, or when a parameter changes the samples."""
        files, keys = self._loaded.files, self._loaded.images.tolist()
        described = fingerprint_of([(shown(self.annotations), resolve_data_dir(self.annotations))])
        described += f" {files.select(keys).fingerprint()}"
        return f"{described} {self.masks} {self.keypoints} {self.crowds} {self.skip_empty} {self.empty_boxes}"
