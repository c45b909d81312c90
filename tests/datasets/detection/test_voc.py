"""PASCAL VOC: boxes, labels, flags and masks of annotations written by hand."""

import os
import pickle
from pathlib import Path

import fsspec
import numpy as np
import pytest
from PIL import Image

from highway import Pipeline
from highway.data import photos
from highway.datasets import VOC
from highway.datasets.detection.voc import CLASSES
from highway.datasets.detection.voc_xml import read_objects
from highway.errors import DatasetError, ParameterError
from highway.modules import Augmentations, DecodeImage, Reader
from highway.transforms import FlipX

CAT = """<annotation>
    <folder>VOC2012</folder><filename>2008_000001.jpg</filename>
    <size><width>96</width><height>96</height><depth>3</depth></size><segmented>1</segmented>
    <object>
        <name>cat</name><pose>Left</pose><truncated>1</truncated><difficult>0</difficult>
        <bndbox><xmin>1</xmin><ymin>11</ymin><xmax>96</xmax><ymax>50</ymax></bndbox>
        <part><name>head</name><bndbox><xmin>3</xmin><ymin>3</ymin><xmax>7</xmax><ymax>7</ymax></bndbox></part>
    </object>
    <object>
        <name>person</name><difficult>1</difficult>
        <bndbox><xmax>20</xmax><xmin>20</xmin><ymin> 30.5 </ymin><ymax>40.25</ymax></bndbox>
    </object>
</annotation>
"""
NOTHING = "<annotation><filename>2008_000002.jpg</filename></annotation>"


@pytest.fixture
def root(tmp_path):
    """Two photographs; the first has two objects, the second none."""
    write(tmp_path, "JPEGImages/2008_000001.jpg", next(Path(photos(), "val", "cat").glob("*.jpg")).read_bytes())
    write(tmp_path, "JPEGImages/2008_000002.jpg", next(Path(photos(), "val", "brick").glob("*.jpg")).read_bytes())
    write(tmp_path, "Annotations/2008_000001.xml", CAT.encode())
    write(tmp_path, "Annotations/2008_000002.xml", NOTHING.encode())
    write(tmp_path, "ImageSets/Main/train.txt", b"2008_000001\n2008_000002\n\n")
    write(tmp_path, "ImageSets/Main/val.txt", b"2008_000002\n")
    return tmp_path


def write(root, name, data):
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(data)


def test_boxes_begin_at_the_corner_of_the_first_pixel_and_end_behind_the_last(root):
    sample = VOC(str(root))[0]
    assert sample["boxes"].dtype == np.float32
    np.testing.assert_array_equal(sample["boxes"], [[0, 10, 96, 50], [19, 29.5, 20, 40.25]])
    assert sample["labels"].dtype == np.int32 and sample["labels"].tolist() == [CLASSES.index("cat"), CLASSES.index("person")]
    assert sample["difficult"].dtype == np.bool_ and sample["difficult"].tolist() == [False, True]
    assert sample["truncated"].dtype == np.bool_ and sample["truncated"].tolist() == [True, False]
    assert sample["image"] == (root / "JPEGImages/2008_000001.jpg").read_bytes()


def test_an_image_without_objects_has_no_boxes(root):
    sample = VOC(str(root), "val")[0]
    assert {name: (value.shape, value.dtype) for name, value in sample.items() if name != "image"} == {
        "boxes": ((0, 4), np.float32),
        "labels": ((0,), np.int32),
        "difficult": ((0,), np.bool_),
        "truncated": ((0,), np.bool_),
    }


def test_there_are_twenty_classes_in_their_usual_order_or_those_that_were_named(root):
    assert VOC(str(root)).classes[:3] == ["aeroplane", "bicycle", "bird"] and len(CLASSES) == 20
    dataset = VOC(str(root), classes=["person", "cat"])
    assert dataset[0]["labels"].tolist() == [1, 0]
    assert VOC(str(root)).classes is not VOC(str(root)).classes
    with pytest.raises(DatasetError, match=r"2008_000001\.xml: 'person' is not one of the classes; add it to classes="):
        VOC(str(root), classes=["cat"])[0]
    with pytest.raises(ParameterError, match=r"classes=.*expected different names"):
        VOC(str(root), classes=["cat", "cat"])


def test_keys_places_and_pickles(root):
    dataset = VOC(str(root))
    assert (len(dataset), dataset.keys) == (2, ["2008_000001", "2008_000002"])
    assert dataset.locate(1) == str(root / "JPEGImages/2008_000002.jpg")
    again = pickle.loads(pickle.dumps(dataset))
    assert again == dataset and again[-1]["boxes"].shape == (0, 4)
    with pytest.raises(IndexError):
        dataset[2]


@pytest.mark.parametrize(("masks", "folder"), [("class", "SegmentationClass"), ("object", "SegmentationObject")])
def test_masks_are_the_numbers_of_the_palette(root, masks, folder):
    numbers = np.zeros((6, 5), np.uint8)
    numbers[1:3, 2:4], numbers[5] = 8, 255
    image = Image.fromarray(numbers).convert("P")
    image.putpalette([value for number in range(256) for value in (number, 255 - number, 7)])
    (root / folder).mkdir()
    image.save(root / folder / "2008_000001.png")
    write(root, "ImageSets/Segmentation/train.txt", b"2008_000001\n")
    dataset = VOC(str(root), masks=masks)
    assert len(dataset) == 1
    mask = dataset[0]["mask"]
    assert mask.dtype == np.uint8
    np.testing.assert_array_equal(mask, numbers)
    mask[:] = 1  # it is memory of its own
    Image.new("RGB", (4, 4)).save(root / folder / "2008_000001.png")
    with pytest.raises(DatasetError, match=rf"{folder}/2008_000001\.png: the pixels have the mode RGB; expected a palette"):
        dataset[0]
    (root / folder / "2008_000001.png").write_bytes(b"no PNG")
    with pytest.raises(DatasetError, match=rf"{folder}/2008_000001\.png: not an image"):
        dataset[0]


def test_samples_flow_through_a_reader_and_boxes_follow_the_image(root):
    stages = [Reader(VOC(str(root)), shuffle=False, epochs=1), DecodeImage(), Augmentations([FlipX(p=1)], boxes="boxes")]
    with Pipeline(stages) as pipeline:
        found = list(pipeline.stamped())
    assert [passport.keys for _, passport in found] == [("2008_000001",), ("2008_000002",)]
    first = found[0][0]
    width = first["image"].shape[1]
    np.testing.assert_array_equal(first["boxes"], [[width - 96, 10, width, 50], [width - 20, 29.5, width - 19, 40.25]])


def test_it_is_read_from_a_store_as_from_a_disk(root):
    files = fsspec.filesystem("memory")
    files.put(str(root), "/voc", recursive=True)
    try:
        dataset = VOC("memory://voc")
        assert dataset.keys == VOC(str(root)).keys and dataset.locate(1) == "memory://voc/JPEGImages/2008_000002.jpg"
        for sample, expected in zip(dataset, VOC(str(root)), strict=True):
            assert sample.keys() == expected.keys() and sample["image"] == expected["image"]
            np.testing.assert_array_equal(sample["boxes"], expected["boxes"])
        assert dataset.fingerprint() == VOC("memory://voc").fingerprint()
    finally:
        files.rm("/voc", recursive=True)


def test_the_fingerprint_changes_with_the_files_and_what_is_read_of_them(root):
    dataset = VOC(str(root))
    before = dataset.fingerprint()
    assert VOC(str(root)).fingerprint() == before
    assert VOC(str(root), classes=["cat", "person"]).fingerprint() != before and VOC(str(root), "val").fingerprint() != before
    (root / "Annotations/2008_000002.xml").write_text(NOTHING + " ")
    assert dataset.fingerprint() != before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not XML, or damaged or truncated:"),
        (CAT[:300], "not XML, or damaged or truncated:"),
        ("<html/>", "the outermost element is <html>; expected <annotation>"),
        (CAT.replace("<name>cat</name>", ""), "object 0 has no <name>"),
        (CAT.replace("bndbox><xmax>", "box><xmax>").replace("40.25</ymax></bndbox>", "40.25</ymax></box>"), "object 1 has no <bndbox>"),
        (
            CAT.replace("<xmax>20", "<xmax>19"),
            "object 1: the box is xmin '20', .*, xmax '19', .*; expected numbers with xmin <= xmax and ymin <= ymax",
        ),
        (
            CAT.replace("<xmax>96</xmax>", ""),
            "object 0: the box is xmin '1', ymin '11', xmax '', ymax '50'; expected numbers with xmin <= xmax and ymin <= ymax",
        ),
        (CAT.replace("<xmax>20", "<xmax>nan"), "object 1: the box is .* 'nan'"),
        (CAT.replace("<difficult>1", "<difficult>yes"), "object 1: <difficult> is 'yes'; expected 0 or 1"),
    ],
)
def test_an_annotation_that_is_not_whole_is_named_with_its_place(root, content, message):
    (root / "Annotations/2008_000001.xml").write_text(content)
    with pytest.raises(DatasetError, match=rf"2008_000001\.xml: {message}"):
        VOC(str(root))[0]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_entities_are_refused_before_they_grow_or_name_files(tmp_path, encoding):
    bomb = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 30))
    for declared in (f'<!ENTITY e0 "text">{bomb}', '<!ENTITY e29 SYSTEM "file:///etc/passwd">'):
        text = f'<?xml version="1.0" encoding="{encoding}"?><!DOCTYPE a [{declared}]>{CAT.replace("person", "&e29;")}'
        (tmp_path / "a.xml").write_text(text, encoding=encoding)
        with pytest.raises(DatasetError, match=r"a\.xml: a document type \('a'\) is declared, but annotations have no document type:"):
            read_objects(str(tmp_path / "a.xml"), (tmp_path / "a.xml").read_bytes())


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("2008_000001 -1\n", r"train\.txt, line 1: '2008_000001 -1'; expected the name of an image: use a list of all images"),
        ("2008_000001\n../x\n", r"train\.txt, line 2: '\.\./x'; expected the name of an image"),
        ("2008_000001\n2008_000001\n", r"train\.txt: '2008_000001' occurs more than once"),
    ],
)
def test_a_list_of_something_else_is_refused(root, lines, message):
    (root / "ImageSets/Main/train.txt").write_text(lines)
    with pytest.raises(DatasetError, match=message):
        len(VOC(str(root)))


def test_files_that_are_not_there_are_named(root):
    with pytest.raises(
        FileNotFoundError, match=r"ImageSets/Main/none\.txt': there is no such list of images; the existing lists are 'train', 'val'"
    ):
        len(VOC(str(root), "none"))
    with pytest.raises(FileNotFoundError, match=r"JPEGImages/ImageSets/.* data_dir must be the folder of ImageSets"):
        len(VOC(f"{root}/JPEGImages"))
    os.remove(root / "JPEGImages/2008_000001.jpg")
    with pytest.raises(FileNotFoundError, match=r"JPEGImages/2008_000001\.jpg"):
        VOC(str(root))[0]
    os.remove(root / "Annotations/2008_000002.xml")
    with pytest.raises(FileNotFoundError, match=r"Annotations/2008_000002\.xml"):
        VOC(str(root))[1]
