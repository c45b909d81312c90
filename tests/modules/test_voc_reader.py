"""The reader of PASCAL VOC: decoded images, and boxes that follow them."""

from pathlib import Path

import numpy as np
import pytest

from highway import Pipeline
from highway.data import photos
from highway.datasets.detection.voc import CLASSES
from highway.errors import DatasetError
from highway.modules import Augmentations, VOCReader
from highway.transforms import FlipX

ANNOTATION = """<annotation><object><name>cat</name><difficult>0</difficult>
<bndbox><xmin>1</xmin><ymin>11</ymin><xmax>40</xmax><ymax>50</ymax></bndbox></object></annotation>"""


@pytest.fixture
def root(tmp_path):
    for number, path in enumerate(sorted(Path(photos(), "val", "cat").glob("*.jpg"))[:3]):
        for name, data in (
            (f"JPEGImages/{number}.jpg", path.read_bytes()),
            (f"Annotations/{number}.xml", ANNOTATION.encode() if number else b"<annotation/>"),
        ):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(data)
    (tmp_path / "ImageSets" / "Main").mkdir(parents=True)
    (tmp_path / "ImageSets" / "Main" / "train.txt").write_text("0\n1\n2\n")
    return str(tmp_path)


def test_images_come_decoded_with_their_boxes_and_keys(root):
    with Pipeline([VOCReader(root, epochs=1, shuffle=False)]) as pipeline:
        found = list(pipeline.stamped())
    assert [passport.keys for _, passport in found] == [("0",), ("1",), ("2",)]
    assert [sample["boxes"].tolist() for sample, _ in found] == [[], [[0, 10, 40, 50]], [[0, 10, 40, 50]]]
    assert [sample["labels"].tolist() for sample, _ in found] == [[], [CLASSES.index("cat")], [CLASSES.index("cat")]]
    assert all(sample["image"].dtype == np.uint8 and sample["image"].shape[2:] == (3,) for sample, _ in found)


def test_labels_are_numbered_by_the_classes_that_are_named():
    classes = ["light", "tower", "rocket"]
    with Pipeline(
        [VOCReader("highway:objects", "val", epochs=1, shuffle=False, classes=["cat", "cup", "helmet", "person", "spoon", *classes])]
    ) as pipeline:
        found = [sample["labels"].tolist() for sample in pipeline]
    assert found == [[3, 2, 7], [0], [1, 4], [7, 6, 6]]
    with (
        Pipeline([VOCReader("highway:objects", "val", epochs=1, classes=classes)]) as pipeline,
        pytest.raises(DatasetError, match=r"add it to classes="),
    ):
        list(pipeline)


def test_boxes_follow_the_image(root):
    with Pipeline([VOCReader(root, epochs=1, shuffle=False), Augmentations([FlipX(p=1)], field="image", boxes="boxes")]) as pipeline:
        _, flipped, _ = pipeline
    width = flipped["image"].shape[1]
    assert flipped["boxes"].tolist() == [[width - 40, 10, width, 50]]
