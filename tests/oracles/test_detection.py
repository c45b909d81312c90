"""VOC and COCO as torchvision and pycocotools read them; run by `tox -e oracles`."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from highway.data import photos
from highway.datasets import COCO, VOC
from highway.datasets.detection.masks import RunLengths, draw

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of pycocotools

ELSEWHERE = "runs by `tox -e oracles`"
HEIGHT, WIDTH = 60, 80


@pytest.fixture(scope="module")
def api():
    return pytest.importorskip("pycocotools.mask", reason=ELSEWHERE)


def polygon(rng, number):
    """Return a polygon as a list of numbers, which may cross itself, leave the image, repeat its points, or have whole numbers."""
    count, centre, radius = rng.integers(3, 30), rng.uniform(-5, 75, 2), rng.uniform(0.3, 50)
    angle = rng.uniform(0, 2 * np.pi, count) if number % 3 == 0 else np.sort(rng.uniform(0, 2 * np.pi, count))
    points = centre + (radius * rng.uniform(0.3, 1.2, count) * [np.cos(angle), np.sin(angle)]).T
    points = np.repeat(points, 2, axis=0) if number % 7 == 0 else points
    return points.round(0 if number % 5 == 0 else 2).ravel().tolist()


def test_polygons_are_filled_as_pycocotools_does(api):
    rng = np.random.default_rng(0)
    for number in range(2000):
        parts = [polygon(rng, number + part) for part in range(1 + number % 3)]
        mask = np.zeros((HEIGHT, WIDTH), np.uint8)
        draw(parts, mask)
        np.testing.assert_array_equal(mask, api.decode(api.merge(api.frPyObjects(parts, HEIGHT, WIDTH))), err_msg=str(parts))


def test_run_lengths_are_those_of_pycocotools(api):
    rng = np.random.default_rng(1)
    for number in range(500):
        pixels = (
            (rng.random((HEIGHT, WIDTH)) < rng.random() ** 3).astype(np.uint8) if number % 3 else np.full((HEIGHT, WIDTH), number % 2, "u1")
        )
        if number % 2:
            pixels = pixels.repeat(5, axis=0)[:HEIGHT]
        compressed = api.encode(np.asfortranarray(pixels))["counts"].decode()
        flat = pixels.T.ravel()
        changes = np.flatnonzero(np.diff(flat, prepend=0))
        for counts in (compressed, np.diff(changes, prepend=0, append=flat.size).tolist()):
            mask = np.zeros((HEIGHT, WIDTH), np.uint8)
            draw(RunLengths((HEIGHT, WIDTH), counts), mask)
            np.testing.assert_array_equal(mask, pixels)


def test_coco_is_what_pycocotools_reads(tmp_path, api):
    rng = np.random.default_rng(2)
    names = sorted(str(path.relative_to(photos())) for path in Path(photos(), "val").rglob("*.jpg"))
    ids = rng.permutation(1000)[: len(names)].tolist()
    images = [{"id": one, "file_name": name, "height": HEIGHT, "width": WIDTH} for one, name in zip(ids, names, strict=True)]
    annotations = []
    for number in range(200):
        x, y, width, height = rng.uniform(1, 40, 4).round(2).tolist()
        pixels = np.asfortranarray(rng.integers(0, 2, (HEIGHT, WIDTH), np.uint8))
        compressed = {"size": [HEIGHT, WIDTH], "counts": api.encode(pixels)["counts"].decode()}
        segmentation = compressed if number % 3 == 0 else [polygon(rng, number)]
        boxes = {"bbox": [x, y, width, height], "area": width * height / 2, "iscrowd": int(number % 3 == 0)}
        category, image = int(rng.choice([3, 90, 17])), int(rng.choice(ids[:-3]))
        points = rng.integers(0, 60, (4, 3)) % [100, 100, 3]
        annotations.append(
            {
                "id": number + 1,
                "image_id": image,
                "category_id": category,
                "segmentation": segmentation,
                "keypoints": points.ravel().tolist(),
            }
            | boxes
        )
    categories = [{"id": one, "name": f"c{one}", "keypoints": list("abcd")} for one in (90, 3, 17)]
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))

    from pycocotools.coco import COCO as Reference

    reference, ours = Reference(str(path)), COCO(photos(), str(path), masks=True, keypoints=True)
    assert ours.category_ids == sorted(reference.getCatIds())
    assert sum(len(sample["boxes"]) for sample in ours) == len(annotations)
    for sample in ours:
        expected = reference.loadAnns(reference.getAnnIds(imgIds=int(sample["image_id"])))
        boxes = np.array([one["bbox"] for one in expected]).reshape(-1, 4)
        np.testing.assert_array_equal(sample["boxes"], np.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]]).astype(np.float32))
        assert [ours.category_ids[label] for label in sample["labels"]] == [one["category_id"] for one in expected]
        assert sample["iscrowd"].tolist() == [one["iscrowd"] for one in expected]
        np.testing.assert_array_equal(sample["area"], np.array([one["area"] for one in expected], np.float32))
        masks = [reference.annToMask(one) for one in expected]
        np.testing.assert_array_equal(sample["masks"], np.array(masks, np.uint8).reshape(-1, HEIGHT, WIDTH))
        points = np.array([one["keypoints"] for one in expected]).reshape(-1, 4, 3)
        np.testing.assert_array_equal(sample["keypoints"] - 0.5, points[..., :2])
        np.testing.assert_array_equal(sample["visibility"], points[..., 2])


def test_voc_is_what_torchvision_reads(tmp_path, torchvision):
    rng, root = np.random.default_rng(3), tmp_path / "VOCdevkit" / "VOC2012"
    names = [f"2008_{number:06}" for number in range(6)]
    for folder in ("JPEGImages", "Annotations", "ImageSets/Main", "ImageSets/Segmentation", "SegmentationClass"):
        (root / folder).mkdir(parents=True)
    for folder in ("Main", "Segmentation"):
        (root / "ImageSets" / folder / "train.txt").write_text("\n".join(names) + "\n")
    for name, photo in zip(names, sorted(Path(photos(), "val").rglob("*.jpg")), strict=False):
        (root / "JPEGImages" / f"{name}.jpg").write_bytes(photo.read_bytes())
        mask = Image.fromarray(rng.integers(0, 21, (HEIGHT, WIDTH), np.uint8)).convert("P")
        mask.save(root / "SegmentationClass" / f"{name}.png")
        objects = "".join(
            f"<object><name>{rng.choice(['cat', 'dog'])}</name>"
            f"<difficult>{rng.integers(2)}</difficult><truncated>{rng.integers(2)}</truncated>"
            f"<bndbox><xmin>{x}</xmin><ymin>{y}</ymin><xmax>{x + w}</xmax><ymax>{y + h}</ymax></bndbox></object>"
            for x, y, w, h in rng.integers(1, 40, (1 + rng.integers(4), 4))
        )
        (root / "Annotations" / f"{name}.xml").write_text(f"<annotation>{objects}</annotation>")
    ours, theirs = VOC(str(root), masks="class"), torchvision.datasets.VOCDetection(str(tmp_path), "2012", "train")
    masks = torchvision.datasets.VOCSegmentation(str(tmp_path), "2012", "train")
    assert len(ours) == len(theirs) == len(masks) == 6
    for sample, (_, target), (_, mask) in zip(ours, theirs, masks, strict=True):
        objects = target["annotation"]["object"]
        boxes = [[int(one["bndbox"][side]) for side in ("xmin", "ymin", "xmax", "ymax")] for one in objects]
        np.testing.assert_array_equal(sample["boxes"], np.array(boxes) - [1, 1, 0, 0])
        assert [ours.classes[label] for label in sample["labels"]] == [one["name"] for one in objects]
        for flag in ("difficult", "truncated"):
            assert sample[flag].tolist() == [one[flag] == "1" for one in objects]
        np.testing.assert_array_equal(sample["mask"], np.array(mask))
