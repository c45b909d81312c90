"""PASCAL VOC, and datasets in VOC's format. An XML file for each image describes the objects in the image."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from highway.data import resolve_data_dir
from highway.datasets.detection.voc_xml import read_objects
from highway.datasets.image_files import ImageFiles, named_files
from highway.datasets.labels import lines_of
from highway.datasets.opened import opened
from highway.errors import DatasetError
from highway.images.decode import checked_header
from highway.images.header import opened as opened_image
from highway.parameters.checks import checked, require
from highway.stores.file import fingerprint_of, names_in
from highway.stores.url import join, parent, shown

CLASSES = (  # noqa: SIM905  # one line, not twenty
    "aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike person pottedplant sheep sofa train tvmonitor"
).split()

_MASKS = {"class": "SegmentationClass", "object": "SegmentationObject"}


@checked
@dataclass
class VOC:
    """The images of PASCAL VOC, or of a dataset in VOC's format, with a box for each object.

    Args:
        data_dir: The folder that contains ``Annotations``, ``ImageSets`` and ``JPEGImages``, such as ``VOCdevkit/VOC2012``; or the URL of
            this folder. ``highway:objects`` is a folder in the highway package with a few annotated photographs.
        split: The name of the list of images in ``ImageSets/Main``. If ``masks`` is given, the list is in ``ImageSets/Segmentation``.
        classes: The names of the labels, indexed by label. The default is the 20 classes of VOC, which begin with ``aeroplane``.
        masks: The mask in each sample. ``"class"``: a mask of the classes. ``"object"``: a mask of the objects. ``None``: samples have no
            mask.

    A sample is a dict:

    - ``image``: the ``bytes`` of the encoded image;
    - ``boxes``: float32 ``(N, 4)``: x1, y1, x2, y2 in pixels from the upper left corner of the image. In the XML files, pixels are numbered
      from 1, and xmax and ymax are the last pixels of a box. Therefore x1 = xmin - 1, y1 = ymin - 1, x2 = xmax and y2 = ymax;
    - ``labels``: int32 ``(N,)``, indexes into ``classes``;
    - ``difficult``, ``truncated``: bool ``(N,)``, from the XML file. VOC's evaluation ignores difficult objects, but samples contain them;
    - ``mask``, if ``masks`` is given: uint8 ``(H, W)``. 0 is the background, and 255 is the border of an object. For ``masks="class"``, the
      value of other pixels is the label + 1. For ``masks="object"``, this value is the index of the object + 1.

    Raises:
        OSError: a file does not exist or cannot be read.
        DatasetError: the list of images or an XML file is not valid (when it is read). The message names the file, and the line or object.
        DatasetError: the class of an object is not in ``classes``.
        DatasetError: a mask is not a PNG image with a palette.

    >>> classes = ["person", "cat", "cup", "spoon", "rocket", "tower", "helmet", "light"]
    >>> dataset = VOC("highway:objects", "train", classes)
    >>> sample = dataset[0]
    >>> len(dataset), sorted(sample), sample["boxes"].shape
    (16, ['boxes', 'difficult', 'image', 'labels', 'truncated'], (3, 4))
    """

    data_dir: str
    split: str = "train"
    classes: list[str] = dataclasses.field(default_factory=CLASSES.copy)
    masks: Literal["class", "object"] | None = None

    def __post_init__(self) -> None:
        require(len(set(self.classes)) == len(self.classes), self, "classes", "different names")

    @property
    def _list(self) -> str:
        return join(resolve_data_dir(self.data_dir), f"ImageSets/{'Segmentation' if self.masks else 'Main'}/{self.split}.txt")

    def _names(self) -> list[str]:
        names = list[str]()
        try:
            for number, text in lines_of(self._list):
                if len(words := text.split()) > 1 or "/" in text:
                    raise DatasetError(
                        f"{shown(self._list)}, line {number}: {' '.join(words)!r}; expected the name of an image: use a list of all images"
                    )
                names.append(text)
        except FileNotFoundError as error:
            there = sorted(name.removesuffix(".txt") for name in names_in(parent(self._list)) if name.endswith(".txt"))
            found = f"the existing lists are {', '.join(map(repr, there))}" if there else "data_dir must be the folder of ImageSets"
            raise FileNotFoundError(f"{shown(self._list)!r}: there is no such list of images; {found}") from error
        if twice := [name for name, times in Counter(names).items() if times > 1]:
            raise DatasetError(f"{shown(self._list)}: {twice[0]!r} occurs more than once; remove the other lines")
        return names

    @opened
    def keys(self) -> list[str]:
        """The names of the images, such as ``2007_000027``."""
        return self._names()

    @opened
    def _files(self) -> list[ImageFiles]:
        return self._found(self.keys)

    def _found(self, names: Sequence[str]) -> list[ImageFiles]:
        """Return the image files, the XML files, and (if requested) the mask files."""
        parts = [("JPEGImages", "jpg"), ("Annotations", "xml"), *([(_MASKS[self.masks], "png")] if self.masks else [])]
        return [
            named_files(join(resolve_data_dir(self.data_dir), folder), [f"{name}.{suffix}" for name in names], self._list)
            for folder, suffix in parts
        ]

    @opened
    def _labels(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.classes)}

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return several samples. Files in an object store are requested concurrently."""
        contents = [files.contents(numbers) for files in self._files]
        return [self._sample(number, *parts) for number, parts in zip(numbers, zip(*contents, strict=True), strict=True)]

    def _sample(self, number: int, image: bytes, annotation: bytes, *masks: bytes) -> dict[str, Any]:
        path = self._files[1].path(number)
        objects = read_objects(path, annotation)
        try:
            labels = [self._labels[one] for one in objects.names]
        except KeyError as error:
            raise DatasetError(f"{path}: {error} is not one of the classes; add it to classes=[...]") from None
        sample: dict[str, Any] = {"image": image, "boxes": objects.boxes, "labels": np.array(labels, np.int32)}
        sample |= {"difficult": objects.difficult, "truncated": objects.truncated}
        for mask in masks:
            sample["mask"] = _mask(self._files[2].path(number), mask)
        return sample

    def locate(self, number: int) -> str:
        """Return the path of an image."""
        return self._files[0].path(number)

    def fingerprint(self) -> str:
        """Return a string that changes when one of the files, ``split``, ``classes`` or ``masks`` changes."""
        files = " ".join(files.fingerprint() for files in self._found(self._names()))
        return f"{fingerprint_of([(shown(self._list), self._list)])} {files} {self.classes}"


def _mask(path: str, data: bytes) -> np.ndarray:
    """Return the palette index of each pixel of a PNG image, uint8 ``(H, W)``. Raises DatasetError."""
    try:
        checked_header(data)
        with opened_image(data) as image:
            if image.mode not in ("P", "L"):
                raise ValueError(f"the pixels have the mode {image.mode}; expected a palette, whose indexes are the classes or objects")
            return np.array(image)
    except (ValueError, OSError, SyntaxError) as error:
        raise DatasetError(f"{path}: {error}") from error
