import io
import struct
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from highway.data import photos
from highway.errors import ImageError
from highway.images.decode import backend, checked_header, decode, decode_crop
from highway.images.header import read_header

reason = "highway.images._jpeg is not built: it needs a C compiler and the headers of libjpeg-turbo when highway is installed"
extension = pytest.importorskip("highway.images._jpeg", reason=reason, exc_type=ImportError)

SIZES = [(375, 500), (61, 97), (16, 16), (1, 1), (200, 3), (17, 333)]
KINDS = [(mode, subsampling, progressive) for mode in ("RGB", "L") for subsampling in (0, 1, 2) for progressive in (False, True)]


def jpeg(size=(120, 160), mode="RGB", subsampling=2, progressive=False, **options):
    buffer = io.BytesIO()
    picture = Image.open(f"{photos()}/train/coffee/00.jpg").convert(mode).resize(size[::-1], Image.Resampling.BICUBIC)
    picture.save(buffer, "JPEG", quality=92, subsampling=subsampling, progressive=progressive, **options)
    return buffer.getvalue()


def crop(data, box, shape=None, reduction=1, flipped=False, antialias=False, size=None):
    out = np.full((*(shape or box[2:]), 3), 77, np.uint8)
    extension.decode_crop(data, size or read_header(data)[1:3], box, reduction, out, flipped, antialias)
    return out


def whole(data):
    return crop(data, (0, 0, *read_header(data)[1:3]))


def boxes(size, count, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        starts = [int(rng.integers(0, length)) for length in size]
        yield (*starts, *(int(rng.integers(1, length - start + 1)) for length, start in zip(size, starts, strict=True)))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_box_differs_from_the_crop_of_the_whole_in_no_pixel(size, kind):
    """Colour is upsampled by repeating, so that a border needs no neighbours: 0 pixels differ, by 0 levels."""
    data = jpeg(size, *kind)
    full = whole(data)
    for top, left, rows, columns in boxes(size, 20):
        different = (crop(data, (top, left, rows, columns)) != full[top : top + rows, left : left + columns]).any(axis=-1)
        assert different.sum() == 0, f"{different.sum()} of {rows * columns} pixels at {(top, left, rows, columns)}"


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_is_what_simplejpeg_decodes(kind):
    simplejpeg = pytest.importorskip("simplejpeg")
    data = jpeg((125, 167), *kind)
    theirs = simplejpeg.decode_jpeg(data, fastdct=True, fastupsample=True)
    assert np.abs(whole(data).astype(int) - theirs).max() <= 2  # equal on x86; other processors' fast inverse DCT may round otherwise


def sampled(image, axis, places):
    """The values between pixels in one direction, in floating point; places count from the first pixel's centre."""
    first = np.minimum(np.floor(places).astype(int), image.shape[axis] - 2)
    part = (places - first).reshape([-1 if a == axis else 1 for a in range(3)])
    return image.take(first, axis) * (1 - part) + image.take(first + 1, axis) * part


def between(image, axis, start, length, size):
    """Bilinear interpolation: each output pixel is sampled at its centre, no further out than the box's outermost centres."""
    places = start + (np.arange(size) + 0.5) * length / size - 0.5
    return sampled(image, axis, places.clip(np.floor(start), np.ceil(start + length) - 1))


def mean(image, axis, start, length, size):
    """The mean over all that falls on each output pixel: differences of the running sum."""
    total = np.insert(np.cumsum(image, axis, dtype=float), 0, 0, axis)
    return np.diff(sampled(total, axis, start + np.arange(size + 1) * length / size), axis=axis) * size / length


@pytest.mark.parametrize("by", [1, 2, 4, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_scaling_interpolates_exactly_but_for_the_rounding(kind, by):
    height, width = 176, 240
    data = jpeg((height, width), *kind)
    pixels = crop(data, (0, 0, height, width), (height // by, width // by), by).astype(float)  # as reduced: nothing is mixed
    for seed, (top, left, rows, columns) in enumerate(boxes((height, width), 20)):
        shape = np.random.default_rng(seed).integers(1, 90, 2).tolist()
        exact = between(between(pixels, 0, top / by, rows / by, shape[0]), 1, left / by, columns / by, shape[1])
        assert np.abs(crop(data, (top, left, rows, columns), shape, by) - exact).max() < 0.53


def test_antialiasing_takes_the_mean_of_all_that_falls_together_but_for_the_rounding():
    data = jpeg((176, 240))
    pixels = whole(data)
    for seed, (top, left, rows, columns) in enumerate(boxes((176, 240), 40)):
        shape = np.random.default_rng(seed).integers(1, 90, 2).tolist()
        down, across = (mean if shape[0] < rows else between), (mean if shape[1] < columns else between)
        exact = across(down(pixels, 0, top, rows, shape[0]), 1, left, columns, shape[1])
        assert np.abs(crop(data, (top, left, rows, columns), shape, antialias=True) - exact).max() < 0.6


def test_an_even_picture_stays_even():
    buffer = io.BytesIO()
    Image.new("RGB", (333, 77), (255, 0, 128)).save(buffer, "JPEG", quality=100, subsampling=0)
    colour = whole(buffer.getvalue())[0, 0]
    for antialias in (False, True):
        scaled = crop(buffer.getvalue(), (3, 5, 70, 301), (31, 97), antialias=antialias)
        np.testing.assert_array_equal(scaled, np.broadcast_to(colour, scaled.shape))


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("shape", [(50, 71), (33, 40), (90, 100), (1, 1)])
def test_a_flipped_box_is_the_mirror_image(shape, antialias):
    data, box = jpeg(), (11, 13, 50, 71)
    np.testing.assert_array_equal(crop(data, box, shape, 1, True, antialias), crop(data, box, shape, 1, False, antialias)[:, ::-1])


def test_threads_and_what_was_decoded_before_make_no_difference():
    """One decompressor of libjpeg for several images would remember the one before: see docs/adr/0008."""
    files = [jpeg((120 + n, 160), *kind) for n, kind in enumerate(KINDS)]
    work = [(data, box) for data in files for box in boxes((120, 160), 6)]
    alone = [crop(data, box, (32, 48)) for data, box in work]
    order = np.random.default_rng(0).permutation(len(work) * 8) % len(work)
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda n: crop(*work[n], (32, 48)), order))
    for n, image in zip(order, together, strict=True):
        np.testing.assert_array_equal(image, alone[n])


def test_nothing_is_written_beside_the_row():
    batch = np.full((3, 33, 47, 3), 77, np.uint8)
    extension.decode_crop(jpeg(), (120, 160), (0, 0, 120, 160), 1, batch[1], False, False)
    assert (batch[[0, 2]] == 77).all() and (batch[1] != 77).any()


@pytest.mark.parametrize("part", [0.3, 0.6, 0.99])
@pytest.mark.parametrize("progressive", [False, True])
def test_a_file_that_is_cut_short_is_an_error_even_where_the_box_ends_before(part, progressive):
    data = jpeg(progressive=progressive)
    with pytest.raises(ValueError, match="it has no end marker"):
        crop(data[: int(len(data) * part)], (0, 0, 4, 4), size=(120, 160))


def test_damage_that_shows_above_the_box_is_an_error_and_the_next_image_is_none_the_worse():
    data = jpeg(subsampling=0)
    at = data.rindex(b"\xff\xda") + (len(data) - data.rindex(b"\xff\xda")) // 2
    damaged = data[:at] + b"\xff\xdd" + data[at + 2 :]  # a marker that has no place there
    box = (100, 0, 20, 160)
    expected = crop(data, box)
    for _ in range(3):
        with pytest.raises(ValueError, match="Corrupt JPEG data"):
            crop(damaged, box)
        np.testing.assert_array_equal(crop(data, box), expected)


def many_scans(count):
    """An image of one grey block, 8 x 8 pixels, whose scans, one for each colour, are repeated; every code is of one bit."""

    def segment(marker, body):
        return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body

    head = b"\xff\xd8" + segment(0xDB, bytes([0, *[1] * 64]))
    head += segment(0xC0, struct.pack(">BHHB", 8, 8, 8, 3) + bytes([1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0]))
    head += segment(0xC4, bytes([0x00, 1, *[0] * 15, 0])) + segment(0xC4, bytes([0x10, 1, *[0] * 15, 0]))
    scans = [segment(0xDA, bytes([1, colour, 0, 0, 63, 0])) + b"\x3f" for colour in (1, 2, 3)]
    return head + b"".join(scans[n % 3] for n in range(count)) + b"\xff\xd9"


def test_a_file_with_more_scans_than_any_photograph_is_refused():
    np.testing.assert_array_equal(whole(many_scans(450)), np.full((8, 8, 3), 128, np.uint8))
    with pytest.raises(ValueError, match="more scans than any photograph has"):
        whole(many_scans(502))


def test_an_image_of_another_size_than_announced_is_refused():
    with pytest.raises(ValueError, match="of another size than it announces"):
        crop(jpeg(), (0, 0, 4, 4), size=(120, 161))


@pytest.mark.parametrize("box", [(-1, 0, 4, 4), (0, -1, 4, 4), (0, 0, 0, 4), (0, 0, 4, 161), (117, 0, 4, 4), (2**31 - 1, 0, 4, 4)])
def test_a_box_outside_the_image_is_refused(box):
    with pytest.raises(ValueError, match="expected a box within the image of 120 x 160 pixels"):
        crop(jpeg(), box, (4, 4))


def test_a_reduction_that_libjpeg_has_not_is_refused():
    with pytest.raises(ValueError, match="reduction=3: expected"):
        crop(jpeg(), (0, 0, 9, 9), (3, 3), 3)


@pytest.mark.parametrize(
    "out", [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 4), np.uint8), np.zeros((4, 4, 3), np.int8), np.zeros((0, 4, 3), np.uint8)]
)
def test_an_output_of_another_kind_is_refused(out):
    with pytest.raises(ValueError, match=r"out: expected uint8 \(H, W, 3\)"):
        extension.decode_crop(jpeg(), (120, 160), (0, 0, 4, 4), 1, out, False, False)


@pytest.mark.parametrize("out", [np.zeros((4, 4, 6), np.uint8)[..., ::2], np.frombuffer(bytes(48), np.uint8).reshape(4, 4, 3)])
def test_an_output_that_cannot_be_written_row_by_row_is_refused(out):
    with pytest.raises((ValueError, BufferError), match=r"contiguous|read-only"):
        extension.decode_crop(jpeg(), (120, 160), (0, 0, 4, 4), 1, out, False, False)


def test_the_seam_decodes_with_it_and_raises_its_errors_as_its_own():
    assert backend() == "highway._jpeg"
    data, row = jpeg(), np.empty((24, 32, 3), np.uint8)
    decode_crop(data, checked_header(data), (10, 20, 80, 90), row, flipped=True)
    np.testing.assert_array_equal(row, crop(data, (10, 20, 80, 90), (24, 32), 2, True))
    np.testing.assert_array_equal(decode(data), whole(data))
    with pytest.raises(ImageError, match="the JPEG is damaged or truncated: it has no end marker"):
        decode_crop(data[:-2], checked_header(data), (10, 20, 80, 90), row)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_through_the_seam_a_turned_image_is_cut_and_flipped_as_it_is_seen(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = jpeg((96, 64), subsampling=0, exif=exif)
    box = (9, 5, 48, 40)
    row = np.empty((48, 40, 3), np.uint8)
    decode_crop(data, checked_header(data), box, row, flipped=True)
    np.testing.assert_array_equal(row, decode(data)[9:57, 5:45][:, ::-1])
