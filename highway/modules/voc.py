"""Images and boxes of PASCAL VOC."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from highway.datasets.dataset import Dataset
from highway.datasets.detection.voc import CLASSES, VOC
from highway.modules.decode import DecodeImage
from highway.parameters.checks import checked
from highway.parameters.ranges import Epochs
from highway.reading.sampling import Sampling


@dataclass
class _OfVOC:
    data_dir: str
    split: str = "train"
    epochs: Epochs = None
    masks: Literal["class", "object"] | None = None
    classes: list[str] = dataclasses.field(default_factory=CLASSES.copy)


@checked
@dataclass
class VOCReader(Sampling, _OfVOC):
    """Read and decode images of PASCAL VOC, with the boxes and labels of their objects.

    This reader yields single samples, because images differ in size and number of objects. To create batches, use
    ``Augmentations(transforms, field="image", boxes="boxes")`` and ``Batch``. To get encoded images, use ``Reader(VOC(...))``.

    Args:
        data_dir: The folder of one year, such as ``VOCdevkit/VOC2012``.
        split: ``"train"``, ``"val"``, ``"trainval"``, ``"test"``, or another list in ``ImageSets``.
        epochs: Number of passes over the images, or ``None`` to repeat indefinitely.
        masks: With ``"class"`` or ``"object"``, samples also have the field ``mask``; see :class:`~highway.datasets.VOC`.
        classes: Names of the labels, indexed by label. By default, the 20 classes of VOC.

    Yields:
        Dicts with the following fields. ``image`` is uint8 ``(H, W, 3)`` in RGB. ``boxes`` is float32 ``(N, 4)``: x1, y1, x2, y2 in pixels.
        ``labels`` is int32 ``(N,)``. ``difficult`` and ``truncated`` are bool ``(N,)``. If ``masks`` is given, ``mask`` is uint8 ``(H,
        W)``.

    Raises:
        OSError: a file is missing or cannot be read.
        DatasetError: the list of images or an annotation file is not valid.
        ImageError: an image is damaged.

    >>> classes = ["person", "cat", "cup", "spoon", "rocket", "tower", "helmet", "light"]
    >>> reader = VOCReader("highway:objects", "val", epochs=1, classes=classes, shuffle=False)
    >>> with Pipeline([reader]) as pipeline:
    ...     sample = pipeline.dequeue()
    >>> sample["image"].shape, sample["boxes"].shape
    ((258, 300, 3), (3, 4))
    """

    def open(self) -> Dataset:
        """Return the dataset."""
        return VOC(self.data_dir, self.split, self.classes, self.masks)

    def stages(self) -> list[Any]:
        return [*super().stages(), DecodeImage("image")]
