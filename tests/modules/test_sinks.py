import os

import numpy as np
import pytest
from PIL import Image, ImageDraw

from highway import Passport, Pipeline, Stamped, check_cancelled
from highway.errors import ConfigError
from highway.images.drawing import COLORS
from highway.images.items import file_name, to_pillow
from highway.modules import Batch, ContactSheet, DumpImages, ImageFileReader, ImageSink

KEYS = ("cat/00.jpg", "cat/01.jpg", "dog/00.jpg")


def batch():
    return np.random.default_rng(0).integers(0, 256, (3, 6, 5, 3), dtype=np.uint8), np.array([0, 0, 1], np.int32)


def source(*items, keys=KEYS):
    return [Stamped(item, Passport(0, index, keys=keys)) for index, item in enumerate(items)]


def written(folder):
    return {name: np.asarray(Image.open(folder / name)) for name in sorted(os.listdir(folder))}


def test_every_image_becomes_a_file_that_is_exactly_it(tmp_path):
    images, labels = batch()
    Pipeline([source((images, labels), (images[::-1], labels)), ImageSink(str(tmp_path / "deep" / "out"))]).run()
    files = written(tmp_path / "deep" / "out")
    assert list(files) == [f"{n:06d}-{key}.png" for n, key in enumerate(["cat-00", "cat-01", "dog-00"] * 2)]
    np.testing.assert_array_equal(list(files.values()), [*images, *images[::-1]])


def test_dump_images_hands_on_what_it_writes(tmp_path):
    images, labels = batch()
    with Pipeline([source((images, labels)), DumpImages(str(tmp_path))]) as pipeline:
        (item,) = pipeline
    assert item[0] is images and item[1] is labels
    assert len(written(tmp_path)) == 3


def test_without_keys_a_number_is_the_name(tmp_path):
    Pipeline([[batch()], ImageSink(str(tmp_path), format="jpg")]).run()
    assert sorted(os.listdir(tmp_path)) == ["000000.jpg", "000001.jpg", "000002.jpg"]


def test_the_images_of_a_dict_or_a_sample_are_found(tmp_path):
    images, labels = batch()
    Pipeline([[{"label": labels, "image": images}], ImageSink(str(tmp_path / "dict"))]).run()
    Pipeline([[(labels[0], images[0])], ImageSink(str(tmp_path / "sample"), field=1)]).run()
    Pipeline([[[images[0], images[1][:2]]], ImageSink(str(tmp_path / "list"), field=1)]).run()
    assert [len(written(tmp_path / name)) for name in ("dict", "sample", "list")] == [3, 1, 1]


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("../../etc/passwd", "000003-etc-passwd.png"),
        ("/data/x.jpg", "000003-data-x.png"),
        ("a\\b\0c\n.png", "000003-a-b-c.png"),
        ("...", "000003.png"),
        ("ünï/ß.jpg", "000003-ünï-ß.png"),
        ("x" * 500 + ".jpg", f"000003-{'x' * 100}.png"),
    ],
)
def test_a_key_from_outside_cannot_leave_the_folder(key, name):
    assert file_name(3, key, "png") == name


def test_floats_are_shown_from_0_to_1_or_from_least_to_greatest():
    ramp = np.linspace(0, 1, 5, dtype=np.float32)[None]
    assert np.asarray(to_pillow(ramp)).tolist() == [[0, 64, 128, 191, 255]]
    assert np.asarray(to_pillow(ramp * 0.5)).tolist() == [[0, 32, 64, 96, 128]]
    assert np.asarray(to_pillow(ramp * 4 - 2)).tolist() == [[0, 64, 128, 191, 255]]
    assert np.asarray(to_pillow(np.full((1, 2, 1), 700, np.int32))).tolist() == [[0, 0]]
    assert np.asarray(to_pillow(np.full((1, 1), np.nan, np.float32))).tolist() == [[0]]


@pytest.mark.parametrize("sink", [ImageSink, ContactSheet])
@pytest.mark.parametrize(
    ("item", "error", "message"),
    [
        ((np.zeros((4, 5, 6, 7)),), ValueError, r"field 0 contains float64 \(5, 6, 7\), which is not an image: .* select another field="),
        (("text",), ValueError, "field 0 contains str, which is not an image"),
        ({}, ValueError, "an item without fields has no images"),
    ],
)
def test_what_is_no_image_is_an_error_that_says_so(tmp_path, sink, item, error, message):
    with pytest.raises(error, match=message):
        Pipeline([[item], sink(str(tmp_path / "out"))]).run()


@pytest.mark.parametrize("sink", [ImageSink, ContactSheet])
def test_a_place_that_cannot_be_written_is_named(tmp_path, sink):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file") as raised:
        Pipeline([[batch()], sink(str(tmp_path / "file" / "out"))]).run()
    assert any(str(tmp_path / "file" / "out") in note and "choose another path" in note for note in raised.value.__notes__)


def test_a_full_disk_is_named_and_leaves_no_half_a_file(tmp_path, monkeypatch):
    def full(self, name, *_, **__):
        with open(name, "wb") as file:
            file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", full)
    with pytest.raises(OSError, match="No space left") as raised:
        Pipeline([[batch()], ContactSheet(str(tmp_path / "sheet.png"))]).run()
    assert any("sheet.png: free space, or choose another path" in note for note in raised.value.__notes__)
    assert os.listdir(tmp_path) == []


# --- the contact sheet ---


def flat(colour, count=1):
    return np.full((count, 10, 20, 3), colour, np.uint8)


def test_a_sheet_shows_the_first_images_in_rows(tmp_path, capsys):
    path = tmp_path / "out" / "sheet.png"
    reds, greens = flat((200, 0, 0), 3), flat((0, 200, 0), 3)
    Pipeline([[(reds,), (greens,)], ContactSheet(str(path), columns=2, limit=4, size=40)]).run()
    sheet = np.asarray(Image.open(path))
    masks = {"red": (sheet == (200, 0, 0)).all(-1), "green": (sheet == (0, 200, 0)).all(-1)}
    assert masks["red"].sum() == 3 * 40 * 20 and masks["green"].sum() == 40 * 20
    rows, columns = np.nonzero(masks["green"])
    assert rows.min() > np.nonzero(masks["red"])[0].min() and columns.min() > np.nonzero(masks["red"])[1].min()
    assert capsys.readouterr().out == f"The first 4 images are in {path}\n"
    assert os.listdir(path.parent) == ["sheet.png"]


def test_a_sheet_of_an_endless_stream_is_written_as_soon_as_it_is_full(tmp_path):
    path = tmp_path / "sheet.png"

    def endless():
        while not path.exists():
            check_cancelled()
            yield (flat(9),)

    Pipeline([endless, ContactSheet(str(path), limit=5)]).run()
    with Image.open(path) as sheet:
        assert sheet.mode == "RGB"


def test_a_sheet_says_which_labels_and_keys(tmp_path, monkeypatch):
    drawn = []
    original = ImageDraw.ImageDraw.text
    monkeypatch.setattr(ImageDraw.ImageDraw, "text", lambda self, xy, text, **rest: drawn.append(text) or original(self, xy, text, **rest))
    Pipeline([source(batch()), ContactSheet(str(tmp_path / "sheet.png"), classes=["cat"])]).run()
    assert drawn == ["The first 3 images", "cat", "cat/00.jpg", "cat", "cat/01.jpg", "1", "dog/00.jpg"]


def test_a_field_that_is_no_label_is_left_out_unless_it_was_named(tmp_path):
    item = (batch()[0], batch()[0])
    Pipeline([[item], ContactSheet(str(tmp_path / "sheet.png"))]).run()
    with pytest.raises(ValueError, match="field 1 contains uint8 for 3 images; expected a whole number for each"):
        Pipeline([[item], ContactSheet(str(tmp_path / "sheet.png"), label=1)]).run()
    with pytest.raises(KeyError, match="no field 'class'"):
        Pipeline([[item], ContactSheet(str(tmp_path / "sheet.png"), label="class")]).run()


@pytest.mark.parametrize("ragged", ["pad", "list", "offsets"])
def test_boxes_masks_and_points_are_drawn_on_a_sheet_with_the_labels_of_the_boxes(tmp_path, monkeypatch, ragged):
    texts = []
    original = ImageDraw.ImageDraw.text
    monkeypatch.setattr(ImageDraw.ImageDraw, "text", lambda self, xy, text, **rest: texts.append(text) or original(self, xy, text, **rest))
    boxes = [np.float32([[4, 4, 40, 36]]), np.float32([[0, 0, 9, 9], [20, 20, 30, 30]])]
    image = np.full((40, 40, 3), 90, np.uint8)
    samples = [{"image": image, "boxes": of, "labels": np.arange(len(of), dtype=np.int32)} for of in boxes]
    path = tmp_path / "sheet.png"
    Pipeline([samples, Batch(2, ragged=ragged, fields=["boxes", "labels"]), ContactSheet(str(path), size=40, classes=["cat"])]).run()
    assert texts[:3] == ["cat", "cat", "1"]
    with Image.open(path) as sheet:
        first = np.asarray(sheet)[40:80, 24:64]
    assert (first[20:36, 4] == COLORS[0]).all() and (first[38:] == 90).all()
    Pipeline([samples[:1], ContactSheet(str(path), size=40)]).run()
    with Image.open(path) as sheet:
        np.testing.assert_array_equal(np.asarray(sheet)[40 + 20 : 40 + 40, 24:64], first[20:])
    with pytest.raises(ValueError, match=r"field 'labels' contains int32 \(1,\) for an image of height 40 and width 40; expected points"):
        Pipeline([samples[:1], ContactSheet(str(path), points="labels")]).run()


def test_a_sheet_of_nothing_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"ContactSheet: no images arrived, .*sheet.png was not written"):
        Pipeline([[], ContactSheet(str(tmp_path / "sheet.png"))]).run()
    assert os.listdir(tmp_path) == []


def test_a_sheet_of_photographs_holds_them(tmp_path):
    reader = ImageFileReader("highway:photos/val", 16, (60, 80), epochs=1)
    Pipeline([reader, ContactSheet(str(tmp_path / "sheet.png"), columns=8, limit=32, classes=reader.classes)]).run()
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width == 2 * 24 + 8 * 142 - 14
        assert len(sheet.getcolors(1 << 24)) > 5000


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ContactSheet("x", columns=0), "columns=0; expected at least 1"),
        (lambda: ContactSheet("x", limit=0), "limit=0; expected at least 1"),
        (lambda: ContactSheet("x", size=5), "size=5; expected at least 16"),
        (lambda: ImageSink("x", format="gif"), "format='gif'; expected 'png' or 'jpg'"),
    ],
)
def test_a_wrong_parameter_is_named(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_type_of_file_in_place_of_a_field_names_format():
    for sink in (ImageSink, DumpImages):
        with pytest.raises(
            ConfigError, match=r"field='\.jpg'; expected the field of the images; to select the file type, pass format='jpg'"
        ):
            sink("out", ".jpg")
