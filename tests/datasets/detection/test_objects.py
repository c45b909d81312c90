"""The photographs with annotations that come with the package: COCO and VOC say the same of them, and what they say fits."""

import json
from pathlib import Path

import numpy as np
import pytest

from highway.data import photos, resolve_data_dir
from highway.datasets import COCO, VOC

IMAGES = "highway:objects/JPEGImages"


@pytest.fixture(params=["train", "val"])
def both(request):
    coco = COCO(IMAGES, f"highway:objects/instances_{request.param}.json", masks=True, keypoints=True)
    return coco, VOC("highway:objects", request.param, classes=coco.classes, masks="object")


def test_coco_and_voc_of_the_same_photographs_give_the_same_boxes(both):
    coco, voc = both
    assert coco.keys == [f"{key}.jpg" for key in voc.keys]
    for one, other in zip(coco, voc, strict=True):
        assert one["image"] == other["image"]
        for field, same in {"boxes": "boxes", "labels": "labels", "iscrowd": "difficult"}.items():
            assert one[field].dtype == other[same].dtype
            np.testing.assert_array_equal(one[field], other[same])


def test_each_box_is_that_of_its_mask_and_holds_its_keypoints(both):
    coco, voc = both
    for sample, other in zip(coco, voc, strict=True):
        assert sample["area"].tolist() == sample["masks"].sum(axis=(1, 2)).tolist()
        for number, (box, mask) in enumerate(zip(sample["boxes"], sample["masks"], strict=True)):
            rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
            assert box.tolist() == [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
            seen = sample["keypoints"][number][sample["visibility"][number] > 0]
            assert ((box[:2] < seen) & (seen < box[2:])).all()
            assert (mask[other["mask"] == number + 1] == 1).all()


def test_each_kind_of_annotation_is_among_them():
    text = Path(resolve_data_dir("highway:objects/instances_train.json")).read_text()
    found = json.loads(text)["annotations"]
    assert {one["iscrowd"] for one in found if isinstance(one["segmentation"], dict)} == {1}
    assert {len(one["segmentation"]) for one in found if not one["iscrowd"]} == {1, 2}
    samples = list(COCO(IMAGES, "highway:objects/instances_train.json", keypoints=True))
    assert [len(sample["boxes"]) for sample in samples].count(0) == 1
    assert {int(value) for sample in samples for value in sample["visibility"].flat} == {0, 2}
    truncated = np.concatenate([sample["truncated"] for sample in VOC("highway:objects", "train", classes=_classes(text))])
    assert set(truncated.tolist()) == {False, True}


def _classes(text):
    return [category["name"] for category in json.loads(text)["categories"]]


def test_the_photographs_are_those_of_the_package():
    for path in sorted(Path(resolve_data_dir(IMAGES)).iterdir()):
        label, *split, number = path.stem.split("_")
        assert path.read_bytes() == Path(photos(), *(split or ["train"]), label, f"{number}.jpg").read_bytes()


@pytest.mark.parametrize("dataset", [COCO("nowhere", "highway:objects/instances_val.json"), VOC("here")], ids=["coco", "voc"])
def test_a_folder_that_is_not_there_is_named_with_the_way_out(dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here" / "ImageSets" / "Main").mkdir(parents=True)
    (tmp_path / "here" / "ImageSets" / "Main" / "train.txt").write_text("2008_000001\n")
    with pytest.raises(
        FileNotFoundError,
        match=r"lists files in '(nowhere|here/JPEGImages)', but this folder does not exist \(the current directory is .*\);",
    ):
        dataset[0]
