"""COCO: boxes, labels, masks and keypoints of annotations written by hand."""

import json
import logging
import pickle
from pathlib import Path

import fsspec
import numpy as np
import pytest

from highway import Pipeline
from highway.data import photos
from highway.datasets import COCO
from highway.errors import DatasetError
from highway.images.header import read_header
from highway.modules import DecodeImage, Reader

PHOTOS = [str(path.relative_to(photos())) for path in sorted(Path(photos(), "val", "cat").glob("*.jpg"))[:3]]
POINTS = [10, 20, 2, 0, 0, 0, 12, 30.5, 1]


def content():
    """Three photographs: the first has two objects, the second none, the third a crowd."""
    return {
        "info": {"year": 2017},
        "images": [
            {"id": 42, "file_name": PHOTOS[0], "height": 6, "width": 8, "license": 3},
            {"id": 7, "file_name": PHOTOS[1], "height": 6, "width": 8},
            {"id": 11, "file_name": PHOTOS[2], "height": 6, "width": 8},
        ],
        "annotations": [
            {
                "id": 3,
                "image_id": 11,
                "category_id": 90,
                "bbox": [0, 1, 2, 3.5],
                "iscrowd": 1,
                "area": 5,
                "segmentation": {"size": [6, 8], "counts": [1, 3, 44]},
            },
            {
                "id": 1,
                "image_id": 42,
                "category_id": 90,
                "bbox": [1.5, 2.25, 3, 1.5],
                "iscrowd": 0,
                "area": 4.25,
                "segmentation": [[1, 1, 5, 1, 5, 4, 1, 4], [6, 0, 8, 0, 8, 6, 6, 6]],
                "keypoints": POINTS,
                "num_keypoints": 2,
            },
            {"id": 9, "image_id": 42, "category_id": 1, "bbox": [0, 0, 1, 1], "segmentation": {"size": [6, 8], "counts": "72930LL030"}},
        ],
        "categories": [{"id": 90, "name": "tooth brush"}, {"id": 1, "name": "person", "keypoints": ["nose", "left eye", "right eye"]}],
    }


@pytest.fixture
def write(tmp_path):
    """Write the annotations, maybe changed, and return the dataset."""

    def write(change=lambda _: None, **options):
        written = content()
        change(written)
        (tmp_path / "a.json").write_text(json.dumps(written))
        return COCO(photos(), str(tmp_path / "a.json"), **options)

    return write


def test_boxes_are_corners_and_labels_are_numbered_by_the_categories_ids(write):
    dataset = write()
    assert (len(dataset), dataset.keys, dataset.classes, dataset.category_ids) == (3, PHOTOS, ["person", "tooth brush"], [1, 90])
    first, second, third = dataset
    assert {name: value.dtype for name, value in first.items() if name != "image"} == {
        "image_id": np.int64,
        "boxes": np.float32,
        "labels": np.int32,
        "iscrowd": np.bool_,
        "area": np.float32,
    }
    assert first["image"] == Path(photos(), PHOTOS[0]).read_bytes() and first["image_id"] == 42
    assert first["boxes"].tolist() == [[1.5, 2.25, 4.5, 3.75], [0, 0, 1, 1]] and first["labels"].tolist() == [1, 0]
    assert first["iscrowd"].tolist() == [False, False] and first["area"].tolist() == [4.25, 1]
    assert {name: value.shape for name, value in second.items() if name not in ("image", "image_id")} == {
        "boxes": (0, 4),
        "labels": (0,),
        "iscrowd": (0,),
        "area": (0,),
    }
    assert third["boxes"].tolist() == [[0, 1, 2, 4.5]] and third["iscrowd"].tolist() == [True]
    first["boxes"] += 1  # it is memory of its own
    assert dataset[0]["boxes"][1].tolist() == [0, 0, 1, 1]


def test_masks_are_drawn_from_polygons_and_from_both_kinds_of_run_lengths(write):
    dataset = write(masks=True)
    polygons, compressed = dataset[0]["masks"]
    assert polygons.dtype == np.uint8
    assert_rows(polygons, "......##", ".####.##", ".####.##", ".####.##", "......##", "......##")
    assert_rows(compressed, "...#....", ".#.#....", ".#.#.##.", "...#....", "...#....", ".......#")
    assert dataset[1]["masks"].shape == (0, 6, 8)
    assert_rows(dataset[2]["masks"][0], "........", "#.......", "#.......", "#.......", "........", "........")


def assert_rows(mask, *rows):
    np.testing.assert_array_equal(mask, [[int(pixel == "#") for pixel in row] for row in rows])


def test_keypoints_are_the_middle_of_their_pixels(write):
    dataset = write(keypoints=True)
    assert dataset.keypoint_names == ["nose", "left eye", "right eye"]
    sample = dataset[0]
    assert sample["keypoints"].dtype == np.float32 and sample["visibility"].dtype == np.uint8
    np.testing.assert_array_equal(sample["keypoints"], [[[10.5, 20.5], [0.5, 0.5], [12.5, 31]], [[0.5, 0.5]] * 3])
    np.testing.assert_array_equal(sample["visibility"], [[2, 0, 1], [0, 0, 0]])
    assert dataset[1]["keypoints"].shape == (0, 3, 2) and dataset[1]["visibility"].shape == (0, 3)


def test_crowds_and_images_without_boxes_are_left_out_if_that_is_wanted(write):
    assert write(skip_empty=True).keys == [PHOTOS[0], PHOTOS[2]]
    assert write(crowds=False)[2]["boxes"].shape == (0, 4)
    both = write(crowds=False, skip_empty=True)
    assert (len(both), both[0]["image_id"], both[0]["labels"].tolist()) == (1, 42, [1, 0])
    with pytest.raises(IndexError):
        both[1]


@pytest.mark.parametrize("bbox", [[3, 3, 0, 2], [3, 3, 2, -1], [8, 3, 2, 2], [-2, 3, 2, 2], [3, 6.5, 1, 1], [500, 3, 1e-9, 1]])
def test_boxes_of_which_nothing_is_in_the_image_are_left_out_aloud_or_kept_or_an_error(write, bbox, caplog):
    def change(written):
        written["annotations"][2]["bbox"] = bbox

    with caplog.at_level(logging.WARNING, "highway"):
        assert write(change)[0]["labels"].tolist() == [1]
        assert write(change, keypoints=True)[0]["visibility"].shape == (1, 3)
    assert "1 of 3 boxes have no area or are outside their image, so they are removed; the first is annotation 2" in caplog.messages[0]
    caplog.clear()
    assert write(change, empty_boxes="keep")[0]["labels"].tolist() == [1, 0] and not caplog.messages
    with pytest.raises(DatasetError, match=r"a\.json: 1 of 3 boxes .*annotation 2.*empty_boxes='drop' removes them"):
        len(write(change, empty_boxes="raise"))


def test_a_box_that_reaches_over_the_edge_stays_as_it_is(write):
    def change(written):
        written["annotations"][2]["bbox"] = [-1, 5, 3, 4]

    assert write(change, empty_boxes="raise")[0]["boxes"].tolist()[1] == [-1, 5, 2, 9]


def test_the_costs_of_images_are_the_sizes_that_the_file_gives(write):
    assert write().costs("pixels").tolist() == [48] * len(content()["images"])
    assert write().costs("tokens") is None
    assert write(lambda written: written["images"][1].pop("height")).costs("pixels") is None


def test_samples_flow_through_a_reader_and_survive_a_pickle(write):
    dataset = pickle.loads(pickle.dumps(write()))
    with Pipeline([Reader(dataset, shuffle=False, epochs=1), DecodeImage()]) as pipeline:
        found = list(pipeline.stamped())
    assert [passport.keys for _, passport in found] == [(name,) for name in PHOTOS]
    assert [item["image"].ndim for item, _ in found] == [3, 3, 3] and [len(item["boxes"]) for item, _ in found] == [2, 0, 1]
    assert dataset.locate(1) == f"{photos()}/{PHOTOS[1]}"


def test_it_is_read_from_a_store_as_from_a_disk(write):
    ours, files = write(masks=True), fsspec.filesystem("memory")
    files.put(photos(), "/coco/images", recursive=True)
    files.put(ours.annotations, "/coco/a.json")
    try:
        dataset = COCO("memory://coco/images", "memory://coco/a.json", masks=True)
        assert dataset.keys == ours.keys and dataset.locate(0) == f"memory://coco/images/{PHOTOS[0]}"
        for sample, expected in zip(dataset, ours, strict=True):
            assert sample["image"] == expected["image"]
            np.testing.assert_array_equal(sample["masks"], expected["masks"])
        assert dataset.fingerprint() == dataset.fingerprint()
    finally:
        files.rm("/coco", recursive=True)


def test_the_fingerprint_changes_with_the_file_and_what_is_read_of_it(write):
    before = write().fingerprint()
    assert write(masks=True).fingerprint() != before and write(skip_empty=True).fingerprint() != before
    assert write(lambda written: written["info"].clear()).fingerprint() != before


def cut(written):
    del written["annotations"][1]["bbox"]


def strange_image(written):
    written["annotations"][2]["image_id"] = 1


def strange_category(written):
    written["annotations"][2]["category_id"] = 2


def same_id(written):
    written["images"][2]["id"] = 42


def far(written):
    written["annotations"][1]["bbox"] = [0, 0, 1e300, 1]


def leads_out(written):
    written["images"][1]["file_name"] = "../../etc/passwd"


def few(written):
    written["annotations"][1]["keypoints"] = POINTS[:-1]


def half_seen(written):
    written["annotations"][1]["keypoints"] = [*POINTS[:-1], 0.5]


def no_points(written):
    del written["categories"][1]["keypoints"]


def other_points(written):
    written["categories"][0]["keypoints"] = ["handle"]


def no_mask(written):
    del written["annotations"][1]["segmentation"]


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (cut, {}, r"not annotations of COCO, or damaged or truncated: .*`bbox` - at `\$.annotations\[1\]`"),
        (strange_image, {}, "annotation 2 refers to the image 1, which does not exist"),
        (strange_category, {}, "annotation 2 refers to the category 2, which does not exist"),
        (same_id, {}, "the image id 42 occurs more than once"),
        (far, {}, r"annotation 1: the bbox is \[0.0, 0.0, 1e\+300, 1.0\]; expected finite numbers of pixels"),
        (leads_out, {}, r"the file_name '\.\./\.\./etc/passwd' is outside data_dir"),
        (few, {"keypoints": True}, "annotation 1: expected x, y and visibility .* of 3 keypoints"),
        (half_seen, {"keypoints": True}, "annotation 1: expected x, y and visibility .* of 3 keypoints"),
        (no_points, {"keypoints": True}, "no category of the file has keypoints"),
        (other_points, {"keypoints": True}, r"the categories have different numbers of keypoints \(person 3, tooth brush 1\)"),
        (no_mask, {"masks": True}, "annotation 1 has no segmentation; use masks=False"),
    ],
)
def test_annotations_that_do_not_fit_are_named(write, change, options, message):
    with pytest.raises(DatasetError, match=rf"a\.json: {message}"):
        len(write(change, **options))


@pytest.mark.parametrize(
    ("segmentation", "message"),
    [
        ([], "it is empty; expected polygons or run lengths"),
        ([[1, 2, 3, 4]], "one of its polygons has 4 numbers"),
        ([[1, 2, 3, 4, 5, 6, 7]], "one of its polygons has 7 numbers"),
        ([[1, 2, 1e18, 4, 5, 6]], "one of its polygons is too large; expected coordinates in pixels"),
        ({"size": [6, 7], "counts": [42]}, r"run lengths are for height and width \(6, 7\), but the image has \(6, 8\)"),
        ({"size": [6, 8], "counts": []}, "expected run lengths with the sum 48, because the image .*; the list is empty, or"),
        ({"size": [6, 8], "counts": [40, 9]}, "expected run lengths with the sum 48, .*; the sum is 49"),
        ({"size": [6, 8], "counts": [49, -1]}, "a length is out of range"),
        ({"size": [6, 8], "counts": [10**18] * 100}, "a length is out of range"),
        ({"size": [6, 8], "counts": [10**30]}, "a length is out of range|Integer value out of range"),
        ({"size": [6, 8], "counts": ""}, "'' is not a compressed list of run lengths"),
        ({"size": [6, 8], "counts": "1P"}, "'1P' is not a compressed list of run lengths"),
        ({"size": [6, 8], "counts": "P" * 20 + "0"}, "a length has 21 characters"),
        ({"size": [6, 8], "counts": "ä"}, "'ä' is not a compressed list of run lengths"),
        (3, "Expected `object | array`, got `int`"),
    ],
)
def test_a_mask_that_cannot_be_drawn_is_named_before_memory_is_spent_on_it(write, segmentation, message):
    def change(written):
        written["annotations"][1]["segmentation"] = segmentation

    dataset = write(change, masks=True)
    with pytest.raises(DatasetError, match=rf"a\.json: annotation 1: the segmentation cannot be drawn: .*{message}"):
        dataset[0]
    assert dataset[2]["masks"].shape == (1, 6, 8)


@pytest.mark.parametrize("size", [(0, 8), (10**6, 10**6)])
def test_masks_of_an_image_of_no_size_or_too_large_a_one_are_refused(write, size):
    def change(written):
        written["images"][0] |= {"height": size[0], "width": size[1]}

    with pytest.raises(DatasetError, match=rf"the image '{PHOTOS[0]}' has height {size[0]} and width {size[1]}; expected a size of"):
        write(change, masks=True)[0]
    assert write(change)[0]["labels"].tolist() == [1, 0]


def test_a_file_that_is_cut_short_or_changes_is_named(write, tmp_path):
    dataset = write(masks=True)
    assert len(dataset) == 3
    text = (tmp_path / "a.json").read_text()
    (tmp_path / "a.json").write_text(text[:-20])
    with pytest.raises(DatasetError, match=r"a\.json: it had \d+ bytes when it was first read"):
        dataset[0]
    with pytest.raises(DatasetError, match=r"a\.json: not annotations of COCO, or damaged or truncated: Input data was truncated"):
        len(COCO(photos(), str(tmp_path / "a.json")))
    with pytest.raises(FileNotFoundError, match=r"none\.json"):
        len(COCO(photos(), str(tmp_path / "none.json")))


def test_an_image_that_is_not_as_large_as_its_masks_is_warned_of_once(write, caplog):
    height, width = read_header((Path(photos()) / PHOTOS[0]).read_bytes()).size

    def resize(written):
        for image in written["images"][:2]:
            image.update(height=height, width=width)
        for annotation in written["annotations"]:
            annotation["segmentation"] = [[1, 1, 5, 1, 5, 4]]

    with caplog.at_level(logging.WARNING, "highway"):
        dataset = write(resize, masks=True)
        assert dataset[0]["masks"].shape == (2, height, width) and not caplog.messages
        for _ in range(2):
            assert dataset[2]["masks"].shape == (1, 6, 8)
    assert len(caplog.messages) == 1
    assert f"{PHOTOS[2]!r} and its masks have height and width [6, 8] in the annotations, but the image file has [" in caplog.messages[0]
    caplog.clear()
    assert write(resize)[2].keys() and not caplog.messages  # without masks nothing is compared
