"""Detection end to end, by pipelines/detection.yaml and without links, on the photographs whose objects are marked by hand."""

import dataclasses
import threading
from pathlib import Path

import numpy as np
import pytest

from highway import Pipeline, Stage
from highway.datasets import COCO, VOC
from highway.modules import Augmentations, Batch, DecodeImage, Processes, Reader
from highway.topology import load
from highway.transforms import ColorJitter, FlipX, LargeScaleJitter, Paste, RandomIoUCrop, SanitizeBoxes

ROOT = Path(__file__).parents[1]
FILE = ROOT / "pipelines" / "detection.yaml"
OBJECTS = ["boxes", "labels", "iscrowd", "area", "masks", "keypoints", "visibility"]
SETTINGS = {"epochs": 1, "masks": True, "mask": "masks", "keypoints": True, "points": "keypoints", "objects": OBJECTS}
SETTINGS |= {"swap": [[0, 1]], "visibility": "visibility"}


def augment():
    chain = [
        LargeScaleJitter((128, 128), (0.8, 1.25)),
        RandomIoUCrop(),
        Paste((128, 128), "random"),
        FlipX(),
        ColorJitter(),
        SanitizeBoxes(min_size=2, min_visibility=0.1),
    ]
    eyes = {"swap_points": [(0, 1)], "visibility": "visibility"}
    return Augmentations(chain, boxes="boxes", points="keypoints", mask="masks", with_boxes=OBJECTS, **eyes)


def samples(*maps):
    """Return the samples of an epoch by their keys, without links."""
    dataset = COCO("highway:objects/JPEGImages", "highway:objects/instances_train.json", masks=True, keypoints=True)
    with Pipeline([Reader(dataset, epochs=1), *maps, Batch(4, ragged="pad", fields=OBJECTS)]) as pipeline:
        return by_key(pipeline)


def by_key(pipeline):
    """Return the samples in padded batches by their keys, without the padding."""
    found = {}
    for batch, passport in pipeline.stamped():
        assert len(passport.keys) == len(batch["image"])
        for row, key in enumerate(passport.keys):
            assert key not in found
            rows = {name: batch[name][row, : batch[f"{name}_count"][row]] for name in OBJECTS}
            found[key] = {name: batch[name][row] for name in ("image", "image_id")} | rows
    return found


def assert_same(found, expected):
    assert sorted(found) == sorted(expected) and len(found) == 16
    for key, sample in expected.items():
        for name, value in sample.items():
            assert found[key][name].dtype == value.dtype, (key, name)
            np.testing.assert_array_equal(found[key][name], value, err_msg=f"{key}: {name}")


@pytest.fixture(scope="module")
def expected():
    """The samples for one worker; they are what they should be as far as that is to be seen without knowing what was drawn."""
    found = samples(Stage(DecodeImage(), num_workers=1), Stage(augment(), num_workers=1))
    assert sum(len(sample["boxes"]) for sample in found.values()) > 16
    for sample in found.values():
        assert sample["image"].shape == (128, 128, 3)
        assert {len(sample[name]) for name in OBJECTS} == {len(sample["boxes"])}
        assert sample["masks"].shape[1:] == (128, 128) and sample["keypoints"].shape[1:] == (3, 2)
        seen = sample["keypoints"][sample["visibility"] > 0]
        assert ((seen >= 0) & (seen <= 128)).all()
        faces = sample["keypoints"][(sample["visibility"] > 0).all(axis=1)]
        assert (faces[:, 0, 0] < faces[:, 1, 0]).all(), "in a mirror, too, the right eye is on the left"
        assert (sample["boxes"] >= 0).all() and (sample["boxes"] <= 128).all()
        for (left, top, right, bottom), mask in zip(sample["boxes"], sample["masks"], strict=True):
            rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))  # a mask may be smaller than what is left of its box
            assert left - 1 <= columns[0] and columns[-1] <= right and top - 1 <= rows[0] and rows[-1] <= bottom
    return found


@pytest.mark.parametrize("num_workers", [2, 4])
def test_samples_are_the_same_for_any_number_of_workers(expected, num_workers):
    assert_same(samples(Stage(DecodeImage(), num_workers=num_workers), Stage(augment(), num_workers=num_workers)), expected)


def test_samples_are_the_same_from_processes(expected):
    assert_same(samples(Processes([DecodeImage(), augment()], num_processes=2)), expected)


def test_coco_and_voc_give_the_same_samples():
    coco = COCO("highway:objects/JPEGImages", "highway:objects/instances_train.json")
    found = []
    for dataset, crowds in ((coco, "iscrowd"), (VOC("highway:objects", "train", classes=coco.classes), "difficult")):
        rows = ["boxes", "labels", crowds]
        chain = dataclasses.replace(augment(), points=None, mask=None, with_boxes=rows, swap_points=[], visibility=None)
        with Pipeline([Reader(dataset, epochs=1), DecodeImage(), chain]) as pipeline:
            found.append([[sample[name] for name in ("image", *rows)] for sample in pipeline])
    for one, other in zip(*found, strict=True):
        for left, right in zip(one, other, strict=True):
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("transport", ["tcp", "ipc", "shm"])
def test_samples_are_the_same_by_way_of_two_workers(expected, transport, own_address, tmp_path):
    over = tmp_path / "over.yaml"
    over.write_text(
        f"hosts: {{here: {own_address}}}\nroles: {{reader: {{hosts: here}}, worker: {{hosts: here}}, trainer: {{hosts: here}}}}"
    )
    topology = load([FILE, over], {**SETTINGS, "transport": transport})
    others = [topology.pipeline(*role) for role in (("reader", 0), ("worker", 0), ("worker", 1))]
    threads = [threading.Thread(target=pipeline.run) for pipeline in others]
    with topology.pipeline("trainer") as trainer:
        for thread in threads:
            thread.start()
        found = by_key(trainer)
    for thread in threads:
        thread.join(30)
    assert_same(found, expected)
