"""Runs of images: whatever the extension takes, pixels and errors are those of decoding one by one."""

import contextlib
import io
import os
import threading
import warnings

import numpy as np
import pytest
from PIL import Image
from waiting import wait_until

from highway.data import photos
from highway.errors import ImageError
from highway.images import run as runs
from highway.images.decode import MAX_PIXELS, checked_header, extension_or_none
from highway.images.run import decode_run

PHOTO = Image.open(f"{photos()}/train/coffee/00.jpg").resize((90, 70))
needs_extension = pytest.mark.skipif(extension_or_none() is None, reason="highway.images._jpeg is not built")


def encoded(kind="JPEG", mode="RGB", picture=PHOTO, **options):
    buffer = io.BytesIO()
    picture.convert(mode).save(buffer, kind, **options)
    return buffer.getvalue()


def turned(orientation, **options):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(exif=exif, **options)


def sixteen_bits():
    buffer = io.BytesIO()
    Image.fromarray(np.arange(80 * 60, dtype=np.uint16).reshape(80, 60) * 13).save(buffer, "PNG")
    return buffer.getvalue()


GOOD = {
    "rgb": encoded(quality=90, subsampling=0),
    "grey": encoded(mode="L"),
    "progressive": encoded(progressive=True),
    "cmyk": encoded(mode="CMYK"),
    **{f"turned {n}": turned(n) for n in range(1, 9)},
    "png": encoded("PNG"),
    "png, 16 bits": sixteen_bits(),
    "gif": encoded("GIF", mode="P"),
}
BAD = {
    "cut short": GOOD["rgb"][:-300],
    "cut in the header": GOOD["rgb"][:100],
    "damaged": GOOD["rgb"][: len(GOOD["rgb"]) // 2] + b"\xff\xdd" + GOOD["rgb"][len(GOOD["rgb"]) // 2 + 2 :],
    "empty": b"",
    "text": b"no image at all",
    "too large": encoded(picture=Image.new("L", (9000, 9000)), mode="L", quality=1),
}
ALL = [data for pair in zip([*GOOD.values()] * 2, [*BAD.values()] * 5, strict=False) for data in pair]


def boxes_of(sizes):
    """A box for each image that has a size, which hangs on that alone."""
    boxes = np.concatenate([sizes // 7, sizes - 2 * (sizes // 7)], axis=1)
    return boxes, {int(place): ValueError("no box") for place in np.flatnonzero(sizes[:, 0] == 13)}


def decoded(files, shape=(32, 48), antialias=False, first=0):
    """Return the rows, every second one flipped, and the errors by their place."""
    rows = np.full((len(files), *shape, 3), 77, np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        errors = decode_run(files, boxes_of, (first + np.arange(len(files))) % 2 == 1, rows, MAX_PIXELS, antialias)
    rows[list(errors)] = 0
    return rows, {place: (type(error), str(error)) for place, error in errors.items()}


def alone(files, **options):
    """Return what :func:`decoded` does where each image is decoded by itself, without runs of the extension."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "extension_or_none", lambda: None)
        return decoded(files, **options)


@pytest.fixture
def stored(tmp_path):
    def store(files):
        for number, data in enumerate(files):
            (tmp_path / f"{number:04}").write_bytes(data)
        return [str(tmp_path / f"{number:04}") for number in range(len(files))]

    return store


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("kind", ["bytes", "files", "views", "views of every second byte"])
def test_pixels_and_errors_are_those_of_decoding_one_by_one(stored, kind, antialias):
    files = stored(ALL) if kind == "files" else ALL
    if "views" in kind:
        step = 2 if "second" in kind else 1
        files = [memoryview(np.repeat(np.frombuffer(data, np.uint8), step))[::step] for data in ALL]
    (rows, errors), (expected, same) = decoded(files, antialias=antialias), alone(files, antialias=antialias)
    np.testing.assert_array_equal(rows, expected)
    assert errors == same and len(errors) == sum(data in BAD.values() for data in ALL)
    assert all(kind is ImageError for kind, _ in errors.values())


def test_rows_do_not_hang_on_how_images_are_cut_into_runs():
    files = [*GOOD.values()] * 3
    whole, _ = decoded(files)
    for size in (1, 2, 10):
        parts = [decoded(files[first : first + size], first=first)[0] for first in range(0, len(files), size)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_files_that_cannot_be_read_are_errors_of_their_own_rows(stored, tmp_path):
    good = stored([GOOD["rgb"]])[0]
    files = [good, str(tmp_path / "gone"), good, str(tmp_path), good, "a\0b", None, good]
    (rows, errors), (expected, same) = decoded(files), alone(files)
    np.testing.assert_array_equal(rows[[0, 2, 4, 7]], expected[[0, 2, 4, 7]])
    assert errors == same and [(place, kind) for place, (kind, _) in errors.items()] == [
        (1, FileNotFoundError),
        (3, IsADirectoryError),
        (5, ValueError),
    ]
    assert (rows[6] == 77).all()  # left out


def test_an_image_without_a_box_is_an_error_of_its_row():
    odd = encoded(picture=PHOTO.resize((20, 13)))
    rows, errors = decoded([GOOD["rgb"], odd, GOOD["png"]])
    assert errors == {1: (ValueError, "no box")}
    np.testing.assert_array_equal(rows[[0, 2]], alone([GOOD["rgb"], odd, GOOD["png"]])[0][[0, 2]])


def test_files_that_do_not_fit_into_memory_together_are_decoded_one_after_the_other(stored):
    """Three of 6 MB, of which two fit; and one of 17 MB, which is decoded by itself."""
    padded = [GOOD["rgb"] + bytes(size) + b"\xff\xd9" for size in (6 << 20, 17 << 20, 6 << 20, 6 << 20)]
    rows, errors = decoded(stored(padded))
    assert not errors
    np.testing.assert_array_equal(rows, decoded([GOOD["rgb"]] * 4)[0])


def test_a_list_of_rows_gets_the_boxes_as_they_are():
    rows = [np.empty((0, 0, 3), np.uint8)] * 2
    assert not decode_run([GOOD["rgb"], GOOD["png"]], boxes_of, np.zeros(2, bool), rows, MAX_PIXELS, False)
    assert [row.shape for row in rows] == [(50, 66, 3)] * 2


def test_a_tuple_of_rows_is_filled_as_an_array_of_them_is():
    files = [GOOD["rgb"], BAD["damaged"], GOOD["png"], GOOD["turned 6"]]
    together, rows = np.full((4, 24, 32, 3), 77, np.uint8), tuple(np.full((24, 32, 3), 77, np.uint8) for _ in range(4))
    for out in (together, rows):
        assert decode_run(files, boxes_of, np.array([True, False] * 2), out, MAX_PIXELS, False).keys() == {1}
    np.testing.assert_array_equal(np.stack(rows)[[0, 2, 3]], together[[0, 2, 3]])
    assert (rows[0] != 77).any()


# --- the extension's part ---


@pytest.fixture
def run():
    return extension_or_none().Run()


@needs_extension
def test_it_finds_the_size_of_all_plain_jpegs_and_of_nothing_else(run):
    """Headers are parsed as in Python, however damaged they are."""
    seeds = [GOOD["rgb"], GOOD["grey"], GOOD["progressive"], GOOD["cmyk"], turned(1, comment=b"x" * 40), turned(6), GOOD["png"]]
    exif = seeds[4].replace(b"II*\0", b"MM\0*", 1)
    rng, files = np.random.default_rng(0), [*seeds, exif, *BAD.values(), b"\xff\xd8", b"\xff\xd8\xff", b"\xff\xd8\xff\xe1\0\x02\xff\xd9"]
    for _ in range(6000):
        data = bytearray(seeds[rng.integers(len(seeds))])
        for at in rng.integers(0, 120, rng.integers(1, 5)):
            data[at] = rng.choice([0, 1, 2, 8, 0x12, 0xC0, 0xD8, 0xE1, 0xFF, rng.integers(256)])
        files.append(bytes(data[: rng.integers(2, 700)]))
    sizes = np.full((len(files), 2), -1)
    assert run.read(files, sizes, MAX_PIXELS) == (len(files), np.count_nonzero(sizes[:, 0]))
    expected = []
    for data in files:
        try:
            header = checked_header(data)
        except ImageError:
            header = None
        plain = header is not None and header.format == "JPEG" and header.orientation == 1 and header.channels in (1, 3)
        expected.append(header.size if plain else (0, 0))
    np.testing.assert_array_equal(sizes, expected)
    assert 500 < np.count_nonzero(sizes[:, 0]) < len(files) - 500


@needs_extension
def test_what_is_no_regular_file_is_not_waited_for(run, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    files = [str(tmp_path / "fifo"), "/dev/zero", str(tmp_path)]
    assert run.read(files, sizes := np.ones((3, 2), np.int64), MAX_PIXELS) == (3, 0)
    assert not sizes.any() and [run.data(place) for place in range(3)] == [None] * 3


@needs_extension
def test_the_bytes_of_a_file_can_be_had_until_it_is_forgotten(run, stored):
    files = [*stored([GOOD["png"], GOOD["rgb"]]), GOOD["gif"], None]
    assert run.read(files, np.empty((4, 2), np.int64), MAX_PIXELS) == (4, 1)
    assert [run.data(place) for place in range(4)] == [GOOD["png"], GOOD["rgb"], GOOD["gif"], None]
    run.forget()
    for place in (0, -1):
        with pytest.raises(IndexError):
            run.data(place)


def arguments(count=2, **changed):
    given = {
        "boxes": np.tile([0, 0, 70, 90], (count, 1)),
        "flipped": np.zeros(count, bool),
        "wanted": np.ones(count, bool),
        "out": np.full((count, 24, 32, 3), 77, np.uint8),
    }
    return [*(given | changed).values(), False]


@needs_extension
@pytest.mark.parametrize("box", [(-1, 0, 9, 9), (0, 0, 0, 9), (0, 0, 71, 90), (2**40, 0, 9, 9), (0, 2**32, 9, 9), (60, 0, 2**62, 9)])
def test_a_box_outside_of_its_image_fails_and_writes_nothing(run, box):
    run.read([GOOD["rgb"]] * 3, np.empty((3, 2), np.int64), MAX_PIXELS)
    given = arguments(3)
    given[0][1] = box
    assert run.decode(*given) == [1]
    assert (given[3][1] == 77).all() and (given[3][[0, 2]] != 77).any(axis=(1, 2, 3)).all()


@needs_extension
def test_only_what_is_wanted_and_is_a_plain_jpeg_is_decoded(run):
    run.read([GOOD["rgb"], GOOD["png"], GOOD["rgb"]], np.empty((3, 2), np.int64), MAX_PIXELS)
    given = arguments(3, wanted=np.array([True, True, False]))
    assert run.decode(*given) == [1]
    assert (given[3][1:] == 77).all() and (given[3][0] != 77).any()


@needs_extension
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"boxes": np.zeros((3, 4), np.int64)}, "boxes: 3, but 2 files were read"),
        ({"boxes": np.zeros((2, 4), np.int32)}, "boxes: expected 2 rows of 4, of format lq"),
        ({"boxes": np.zeros((2, 5), np.int64)}, "boxes: expected 2 rows of 4"),
        ({"flipped": np.zeros(3, bool)}, "flipped: expected 2 rows of 1"),
        ({"wanted": np.zeros(2, np.uint8)}, "wanted: expected 2 rows of 1, of format ?"),
        ({"out": np.zeros((3, 4, 4, 3), np.uint8)}, r"out: expected uint8 \(2, H, W, 3\)"),
        ({"out": np.zeros((2, 4, 4, 3), np.int8)}, r"out: expected uint8 \(2, H, W, 3\)"),
        ({"out": np.zeros((2, 0, 4, 3), np.uint8)}, r"out: expected uint8 \(2, H, W, 3\)"),
        ({"out": np.zeros((2, 4, 8, 3), np.uint8)[:, :, ::2]}, "contiguous"),
        ({"out": np.frombuffer(bytes(96), np.uint8).reshape(2, 4, 4, 3)}, "read-only"),
        ({"out": (np.zeros((4, 4, 3), np.uint8),) * 3}, "out: 3 arrays, but 2 boxes"),
        ({"out": (np.zeros((4, 4, 3), np.uint8), np.zeros((4, 4), np.uint8))}, r"out: expected uint8 \(H, W, 3\)"),
        ({"out": (np.zeros((4, 4, 3), np.uint8), np.frombuffer(bytes(48), np.uint8).reshape(4, 4, 3))}, "read-only"),
    ],
)
def test_arrays_of_another_kind_are_refused(run, changed, message):
    run.read([GOOD["rgb"]] * 2, np.empty((2, 2), np.int64), MAX_PIXELS)
    with pytest.raises((ValueError, BufferError), match=message):
        run.decode(*arguments(**changed))
    for files, sizes, error in (([1], (1, 2), TypeError), ([b""], (2, 2), ValueError), (5, (1, 2), TypeError)):
        with pytest.raises(error):
            run.read(files, np.zeros(sizes, np.int64), MAX_PIXELS)


@needs_extension
def test_a_second_thread_is_refused(run):
    ended = threading.Event()

    def stay_in_the_run():
        while not ended.is_set():
            with contextlib.suppress(RuntimeError, ValueError):  # a call of the other thread is in there, or has made it forget the file
                run.read([GOOD["rgb"]], np.empty((1, 2), np.int64), MAX_PIXELS)
                run.decode(*arguments(1), 50_000)

    def is_refused(call):
        try:
            call()
        except RuntimeError as error:
            return str(error) == "another thread is in this run"
        except (IndexError, ValueError):
            pass
        return False

    thread = threading.Thread(target=stay_in_the_run)
    thread.start()
    try:
        for call in (
            lambda: run.data(0),
            run.forget,
            lambda: run.read([], np.empty((0, 2), np.int64), 1),
            lambda: run.decode(*arguments(1)),
        ):
            wait_until(lambda call=call: is_refused(call))
    finally:
        ended.set()
        thread.join()
