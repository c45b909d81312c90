"""tensormon, tensorshow and tensorstat on real streams."""

import io
import json
import re

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image

from highway import Passport
from highway.cli.streams import mon, show, stat
from highway.datasets import COCO
from highway.engine.ragged import RaggedOptions
from highway.images.decode import decode
from highway.images.drawing import COLORS
from highway.wire.codec import named
from highway.wire.envelope import Envelope
from highway.wire.transports.zmq.socket import ZMQSender
from highway.wire.url import parse

NO_PASSPORT = Passport()
IMAGES = np.zeros((2, 8, 6, 3), np.uint8)


def batches(count, size=4, shape=(8, 6, 3)):
    for n in range(count):
        yield np.full((size, *shape), n % 256, np.uint8), np.arange(size, dtype=np.int32)


# --- tensormon ---


def test_mon_counts_what_came_and_ends_with_its_senders(send, capsys):
    assert mon.main([send(batches(7))]) == 0
    *_, ended, totals = capsys.readouterr().out.splitlines()
    assert ended == "the senders have ended"
    assert totals.startswith("7 batches, 0.0 MB; gaps 0")


def test_mon_prints_a_line_of_rates_for_each_so_many_batches(send, capsys):
    assert mon.main([send(batches(200_000)), "-r", "1000", "-c", "3400"]) == 0
    *lines, total = [line for line in capsys.readouterr().out.splitlines() if "batches/s" in line]
    assert [line.split()[0] for line in lines] == ["1000", "2000", "3000"]
    assert re.fullmatch(r"3400 batches, 3\.0 MB; gaps 0; [\d.]+ batches/s, [\d.]+ samples/s, [\d.]+ MB/s", total)
    words = lines[0].split()
    assert [words[i] for i in (1, 3, 5, 7, 8)] == ["batches", "batches/s", "samples/s", "MB/s", "gaps"]
    assert float(words[4]) == pytest.approx(4 * float(words[2]), abs=0.4) and words[9] == "0"


def test_mon_ends_after_the_count(send, capsys):
    assert mon.main([send(batches(10_000)), "--count", "5"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("5 batches")


def test_mon_raw_counts_bytes_without_decoding(send, capsys):
    assert mon.main([send(batches(10_000)), "--raw", "-c", "5"]) == 0
    assert "gaps are not counted with --raw" in capsys.readouterr().out


def test_a_message_that_is_no_batch_is_told_and_left_out(tmp_path, capsys):
    sender = ZMQSender(parse(f"zpush+ipc://{tmp_path}/s", "send"))
    try:
        sender.send([b"no header", b"no data"])
        sender.send([b"no header", b"no data"])
        sender.send(named("tensorcom").encode((IMAGES,), Envelope()))
        assert mon.main([f"zpull+ipc://{tmp_path}/s", "-c", "1"]) == 0
    finally:
        sender.close(0)
    captured = capsys.readouterr()
    assert captured.err.count("message skipped: ") == 2 and "array 0: the header has 9 bytes" in captured.err
    assert "1 batches, 0.0 MB; gaps 0, malformed 2 (could not be decoded)" in captured.out


# --- tensorstat ---


def test_stat_describes_each_field(send, capsys):
    assert stat.main([send(batches(5)), "-c", "3"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[1].startswith("3 batches, ")
    image, label = (line.split() for line in out[-2:])
    assert image == ["0", "uint8", "8x6x3", str(3 * 4 * 144), "0", "2", "1", "0.8165", "0", "0"]
    assert label == ["1", "int32", "scalar", "12", "0", "3", "1.5", "1.118", "0", "0"]


def test_stat_takes_samples_without_a_batch_axis(send, capsys):
    samples = ({"x": np.full((2, 3), n, np.float32), "y": np.array(n, np.int32)} for n in range(4))
    assert stat.main([send(samples), "--unbatched"]) == 0
    assert [line.split()[:4] for line in capsys.readouterr().out.splitlines()[-2:]] == [
        ["x", "float32", "2x3", "24"],
        ["y", "int32", "scalar", "4"],
    ]


def test_stat_saves_a_contract_that_the_same_stream_keeps_and_another_breaks(send, tmp_path, capsys):
    path = str(tmp_path / "ref.json")
    assert stat.main([send(batches(20)), "--save", path]) == 0
    assert json.loads((tmp_path / "ref.json").read_text())["fields"]["1"]["mean"] == 1.5
    assert stat.main([send(batches(20)), "--assert", path]) == 0
    assert f"the stream keeps the contract {path}" in capsys.readouterr().out
    brighter = ((images + 100, labels) for images, labels in batches(20))
    assert stat.main([send(brighter), "--assert", path]) == 1
    captured = capsys.readouterr()
    report = [line.split("; ")[0] for line in captured.out.splitlines() if line.startswith("BROKEN")]
    assert report == ["BROKEN  field 0: max 119", "BROKEN  field 0: mean 109.5"]
    assert captured.err == f"tensorstat: the stream breaks the contract {path} in 2 of 16 points\n"


def test_stat_refuses_a_contract_before_it_waits_for_a_stream(tmp_path, capsys):
    assert stat.main(["zsub://127.0.0.1:1", "--assert", str(tmp_path / "none.json")]) == 2
    assert "No such file or directory; `tensorstat --save" in capsys.readouterr().err
    assert stat.main(["zsub://127.0.0.1:1", "--raw", "--save", "x.json"]) == 2
    assert "--raw does not read values, which --save and --assert need" in capsys.readouterr().err
    assert stat.main(["zsub://127.0.0.1:1", "--save", str(tmp_path)]) == 2
    assert "it cannot be written" in capsys.readouterr().err


def test_stat_raw_gives_the_rate_alone(send, capsys):
    assert stat.main([send(batches(50)), "-r", "-c", "5"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("5 batches, ")


def test_stat_of_a_stream_without_batches_fails(send, capsys):
    assert stat.main([send([])]) == 1
    assert "all senders ended before a batch arrived" in capsys.readouterr().err


# --- tensorshow ---


@pytest.fixture
def no_display(monkeypatch, tmp_path):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def colors(path, count):
    """Return the colour in the middle of each image of a sheet."""
    picture = np.asarray(Image.open(path))
    return [tuple(picture[40 + 64 + n // 8 * (128 + 14 + 15), 24 + 64 + n % 8 * 142]) for n in range(count)]


def test_show_writes_a_picture_where_there_is_no_display_and_says_where(send, no_display, capsys):
    assert show.main([send(batches(20))]) == 0
    assert f"written to {no_display}/tensorshow.png" in capsys.readouterr().out
    assert colors(no_display / "tensorshow.png", 16) == [(n, n, n) for n in range(16)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [(["-B", "3", "-c", "5"], [0, 0, 0, 1, 1]), (["--perbatch", "9", "--count", "6"], [0, 0, 0, 0, 1, 1]), (["-c", "2"], [0, 1])],
)
def test_show_takes_so_many_of_each_batch_and_in_all(send, no_display, options, expected):
    assert show.main([send(batches(20)), "-o", "out/grid.png", *options]) == 0
    assert colors(no_display / "out/grid.png", len(expected)) == [(n, n, n) for n in expected]


def test_show_takes_what_there_is_when_the_senders_end(send, no_display):
    assert show.main([send(batches(3))]) == 0
    assert colors(no_display / "tensorshow.png", 3) == [(n, n, n) for n in range(3)]


@pytest.mark.parametrize(
    "image",
    [
        np.full((1, 3, 30, 40), 200, np.uint8),
        np.full((1, 30, 40, 3), 200 / 255, np.float32),
        np.full((1, 30, 40), 200, np.uint8),
        np.full((1, 30, 40, 1), 200, np.uint8),
        np.full((1, 1, 30, 40), 200, np.uint8),
    ],
)
def test_show_takes_every_layout_of_images(send, no_display, image):
    assert show.main([send([(image, np.zeros(1, np.int32))])]) == 0
    assert colors(no_display / "tensorshow.png", 1) == [(200, 200, 200)]


def cells(item, *options, passport=NO_PASSPORT, classes=None):
    """Return the label and key of each image that tensorshow would show of an item."""
    parser = show.argparse.ArgumentParser()
    show.add_arguments(parser)
    found = show.pictures(item, passport, parser.parse_args(list(options)), classes or {})
    return [[(cell.label, cell.key) for cell in picture] for picture in found]


def test_labels_are_named_by_the_classes_or_are_numbers(tmp_path):
    path = tmp_path / "classes.json"
    item = (IMAGES, np.array([1, 7], np.int32))
    for text in ('["cat", "dog"]', '{"0": "cat", "1": "dog"}', '{"1": ["n02084071", "dog"]}'):
        path.write_text(text)
        assert cells(item, classes=show.load_classes(str(path))) == [[("dog", "")], [("7", "")]]


def test_labels_may_be_one_hot_floats_or_absent_and_keys_are_shown():
    keys = Passport(keys=("a/1.jpg", "b/2.jpg"))
    assert cells((IMAGES, np.eye(3, dtype=np.float32)[[2, 0]]), passport=keys) == [[("2", "a/1.jpg")], [("0", "b/2.jpg")]]
    assert cells({"mask": IMAGES, "label": np.array([0.5, 2]), "image": IMAGES}) == [[("0.5", "")], [("2", "")]]
    assert cells((IMAGES,)) == [[("", "")], [("", "")]]


def test_unbatched_samples_are_one_image_each():
    assert cells((IMAGES[0], np.array(3, np.int32)), "-b") == [[("3", "")]]


def test_image_files_are_decoded_and_have_their_boxes():
    sample = COCO("highway:objects/JPEGImages", "highway:objects/instances_val.json")[1]
    (drawn,), (plain,) = picture_of(sample, "-b"), picture_of({"image": sample["image"]}, "-b")
    assert drawn.shape == (97, 128, 3) and (drawn != plain).any()
    decoded = {"image": decode(sample["image"])}
    assert_array_equal(plain, picture_of(decoded, "-b")[0])


def objects(ragged):
    """Return a batch of two grey images, with one object and two of these, in a dict."""
    boxes = [np.float32([[8, 16, 40, 48]]), np.float32([[0, 0, 16, 16], [32, 32, 64, 64]])]
    samples = []
    for of in boxes:
        masks, points = np.zeros((len(of), 64, 64), np.uint8), of.reshape(-1, 2, 2).mean(axis=1, keepdims=True)
        for mask, (x1, y1, x2, y2) in zip(masks, of.astype(int), strict=True):
            mask[y1:y2, x1:x2] = 1
        rows = {"boxes": of, "labels": np.arange(1, len(of) + 1, dtype=np.int32), "masks": masks, "keypoints": points}
        samples.append({"image": np.full((64, 64, 3), 90, np.uint8), **rows})
    return RaggedOptions(ragged, ["boxes", "labels", "masks", "keypoints"]).collated(samples)


def picture_of(item, *options, passport=NO_PASSPORT, classes=None):
    """Return the pixels of the images that tensorshow would show of an item."""
    parser = show.argparse.ArgumentParser()
    show.add_arguments(parser)
    found = show.pictures(item, passport, parser.parse_args(list(options)), classes or {})
    return [np.asarray(cell.image) for picture in found for cell in picture]


@pytest.mark.parametrize("ragged", ["pad", "offsets", "list"])
def test_boxes_masks_and_points_are_drawn_with_their_labels(ragged):
    item = objects(ragged)
    first, second = picture_of(item)
    plain, _ = picture_of({"image": item["image"]})
    assert (plain == 90).all() and first.shape == (128, 128, 3)
    color = COLORS[1]
    assert_array_equal(first[32:96, 79], [color] * 64)  # the right side of the box, twice as large
    assert (first[63:65, 47:49] == color).all(), "the point"
    assert not (first[60, 60] == 90).all(), "the mask"
    assert (first[:30] == 90).all() and (first[100:] == 90).all(), "no padding, and nothing of the others"
    assert (second[100:128, 127] == COLORS[2]).all()
    assert cells(item) == [[("", "")]] * 2, "the labels stand at the boxes"
    named, _ = picture_of(item, classes={"1": "mmmmm"})
    assert (named != first).any() and (named[60:] == first[60:]).all()


def test_a_tuple_has_its_boxes_masks_and_points_at_positions_that_options_name():
    item = objects("pad")
    expected = picture_of(item)
    named = tuple(item[name] for name in ("image", "labels", "boxes", "masks", "keypoints"))
    for shown, wanted in zip(picture_of(named, "--boxes", "2", "--mask=-2", "--points", "4"), expected, strict=True):
        assert_array_equal(shown, wanted)
    assert (picture_of(named)[0] == 90).all()
    renamed = {"image": item["image"], "gt": item["boxes"]}
    assert (picture_of(renamed, "--boxes", "gt")[0] != 90).any() and (picture_of(renamed)[0] == 90).all()


def test_the_label_of_an_image_stays_below_it_where_there_are_boxes_too():
    item = {"image": IMAGES, "boxes": np.ones((2, 3, 4), np.float32), "label": np.array([4, 5], np.int32)}
    assert cells(item) == [[("4", "")], [("5", "")]]
    assert cells({**item, "label": np.array(["cat", "dog"])}) == [[("cat", "")], [("dog", "")]]
    assert cells({"image": IMAGES, "boxes": item["boxes"], "area": np.ones((2, 3))}) == [[("", "")]] * 2


def test_images_may_be_a_list_of_different_sizes_or_of_files():
    images = [np.full((20, 40, 3), 90, np.uint8), np.full((30, 10, 3), 90, np.uint8)]
    files = []
    for image in images:
        Image.fromarray(image).save(file := io.BytesIO(), "PNG")
        files.append(file.getvalue())
    for given in (images, files):
        shown = picture_of({"image": given, "boxes": [np.float32([[5, 5, 9, 15]]), np.zeros((0, 4))]})
        assert [pixels.shape for pixels in shown] == [(64, 128, 3), (128, 43, 3)]
        assert (shown[0] != 90).any() and (shown[1] == 90).all()


def test_show_draws_what_passes_at_a_size(send, no_display):
    assert show.main([send([objects("pad")]), "-o", "sheet.jpg", "-s", "256", "-B", "2"]) == 0
    picture = Image.open(no_display / "sheet.jpg")
    assert picture.format == "JPEG" and picture.width == 24 + 256 + 14 + 256 + 24
    np.testing.assert_allclose(np.asarray(picture)[40 + 100, 24 + 159], COLORS[1], atol=60)


def test_img2img_shows_pairs_side_by_side(send, no_display):
    assert cells((IMAGES, IMAGES + 1), "-m", "img2img") == [[("0", ""), ("1", "")]] * 2
    pairs = [(np.full((1, 8, 6, 3), n, np.uint8), np.full((1, 8, 6, 3), 100 + n, np.uint8)) for n in range(3)]
    assert show.main([send(pairs), "--mode", "img2img", "-c", "2"]) == 0
    assert colors(no_display / "tensorshow.png", 4) == [(n, n, n) for n in (0, 100, 1, 101)]


@pytest.mark.parametrize(
    ("item", "options", "message"),
    [
        ((np.zeros((2, 8), np.float32), np.zeros(2, np.int32)), [], "which is not an image"),
        ((IMAGES, np.zeros(3, np.int32)), [], "field 1 has 3 values for 2 images"),
        ((IMAGES,), ["-m", "img2img"], "img2img needs two"),
        ((IMAGES,), ["--boxes", "1"], "no field 1; the item has 0"),
        (
            {"image": IMAGES, "gt": np.zeros((2, 4), np.float32)},
            ["--boxes", "gt"],
            "field 'gt' contains float32 (4,) for an image of height 8",
        ),
    ],
)
def test_show_says_what_cannot_be_shown(send, no_display, capsys, item, options, message):
    assert show.main([send([item]), *options]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"), [("{", "not JSON"), ("3", "expected a list"), (None, "No such file")], ids=["broken", "number", "missing"]
)
def test_show_refuses_classes_that_are_none(tmp_path, capsys, text, message):
    path = tmp_path / "classes.json"
    if text is not None:
        path.write_text(text)
    assert show.main(["zsub://127.0.0.1:1", "-C", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_show_refuses_an_output_that_is_no_picture(capsys):
    assert show.main(["zsub://127.0.0.1:1", "-o", "grid.gif"]) == 2
    assert "expected a name that ends in .png or .jpg" in capsys.readouterr().err
