import io
import itertools
import struct
import subprocess
import sys
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from highway.data import photos
from highway.errors import ImageError
from highway.images.decode import backend, checked_header, decode, decode_crop, extension_or_none, simplejpeg_or_none
from highway.images.header import read_header
from highway.images.ops import cv2_or_none, scale

MODULES = {"highway._jpeg": "highway.images._jpeg", "simplejpeg": "simplejpeg", "cv2": "cv2", "pillow": "PIL"}  # best first
CACHED = (cv2_or_none, extension_or_none, simplejpeg_or_none)


@pytest.fixture(params=MODULES)
def decoder(request, monkeypatch):
    pytest.importorskip(MODULES[request.param])
    for name in itertools.takewhile(lambda name: name != request.param, MODULES):
        monkeypatch.setitem(sys.modules, MODULES[name], None)  # what an import finds where nothing is installed
    for cached in CACHED:
        cached.cache_clear()
    yield request.param
    for cached in CACHED:
        cached.cache_clear()


def scene(height=60, width=90):
    """A smooth picture whose four corners differ: JPEG keeps it within a few levels."""
    y, x = np.mgrid[0:height, 0:width] / [[[height]], [[width]]]
    return (np.stack([x, y, 1 - x], axis=-1) * 220 + 10).astype(np.uint8)


def encoded(image, format, **options):
    buffer = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(buffer, format, **options)
    return buffer.getvalue()


def jpeg(image=None, **options):
    return encoded(scene() if image is None else image, "JPEG", **{"quality": 95, **options})


def png_of(bits, kind, rows):
    """A PNG with one filter byte (none) per row; Pillow cannot write 16-bit colour."""
    height, width = rows.shape[:2]
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0))]
    chunks += [(b"IDAT", zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))), (b"IEND", b"")]
    body = b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + body


def grey_of(image):
    return np.asarray(Image.fromarray(image).convert("L"))


def three(grey):
    return np.repeat(np.asarray(grey)[..., None], 3, axis=2)


def exact_files():
    rgb, grey = scene(), grey_of(scene())
    alpha = np.dstack([rgb, np.full(rgb.shape[:2], 7, np.uint8)])
    palette = Image.fromarray(rgb).quantize(16)
    wide = np.random.default_rng(0).integers(0, 65536, (6, 5, 3), dtype=np.uint16)
    bits = Image.fromarray(grey > 100)
    return {
        "png rgb": (encoded(rgb, "PNG"), rgb),
        "png rgba": (encoded(alpha, "PNG"), rgb),
        "png grey": (encoded(grey, "PNG"), three(grey)),
        "png grey and alpha": (encoded(Image.fromarray(alpha).convert("LA"), "PNG"), three(grey)),
        "png palette": (encoded(palette, "PNG"), np.asarray(palette.convert("RGB"))),
        "png palette with a transparent colour": (encoded(palette, "PNG", transparency=3), np.asarray(palette.convert("RGB"))),
        "png 1 bit": (encoded(bits, "PNG"), three(np.asarray(bits).astype(np.uint8) * 255)),
        "png 16 bit grey": (png_of(16, 0, wide[..., 0].astype(">u2")), three((wide[..., 0] >> 8).astype(np.uint8))),
        "png 16 bit rgb": (png_of(16, 2, wide.astype(">u2")), (wide >> 8).astype(np.uint8)),
        "bmp rgb": (encoded(rgb, "BMP"), rgb),
        "bmp grey": (encoded(grey, "BMP"), three(grey)),
        "bmp palette": (encoded(palette, "BMP"), np.asarray(palette.convert("RGB"))),
        "bmp 32 bit": (encoded(alpha, "BMP"), rgb),
        "ppm": (encoded(rgb, "PPM"), rgb),
        "webp": (encoded(rgb, "WEBP", lossless=True), rgb),
        "tiff": (encoded(rgb, "TIFF"), rgb),
    }


@pytest.mark.parametrize("name", exact_files())
def test_every_lossless_kind_comes_out_as_its_rgb(decoder, name):
    data, expected = exact_files()[name]
    pixels = decode(data)
    assert pixels.dtype == np.uint8 and pixels.flags.c_contiguous
    np.testing.assert_array_equal(pixels, expected)


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_comes_out_as_rgb(decoder, subsampling, progressive):
    pixels = decode(jpeg(subsampling=subsampling, progressive=progressive))
    assert pixels.dtype == np.uint8
    assert np.abs(pixels.astype(int) - scene()).mean() < 2.5


def test_a_grey_jpeg_comes_out_as_rgb(decoder):
    pixels = decode(jpeg(grey_of(scene())))
    np.testing.assert_array_equal(pixels, three(pixels[..., 0]))
    assert np.abs(pixels[..., 0].astype(int) - grey_of(scene())).mean() < 2


def test_a_cmyk_jpeg_comes_out_as_rgb(decoder):
    pixels = decode(jpeg(Image.fromarray(scene()).convert("CMYK")))
    assert pixels.shape == scene().shape
    assert np.abs(pixels.astype(int) - scene()).mean() < 4


def turned(orientation, format="JPEG"):
    image = Image.fromarray(scene())
    exif = image.getexif()
    exif[0x0112] = orientation
    return encoded(image, format, exif=exif, **({"quality": 95, "subsampling": 0} if format == "JPEG" else {}))


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_of_exif_is_applied(decoder, orientation, format):
    data = turned(orientation, format)
    upright = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))
    assert read_header(data).size == upright.shape[:2]
    pixels = decode(data)
    assert pixels.shape == upright.shape
    assert np.abs(pixels.astype(int) - upright).mean() < 2


def crop(data, box, shape, **options):
    out = np.full((*shape, 3), 77, np.uint8)
    decode_crop(data, checked_header(data), box, out, **options)
    return out


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_box_of_the_output_size_is_a_slice_of_the_whole(decoder, orientation):
    data = turned(orientation)
    np.testing.assert_array_equal(crop(data, (11, 7, 40, 30), (40, 30)), decode(data)[11:51, 7:37])


def test_a_flipped_box_is_its_mirror_image(decoder):
    box = (3, 5, 50, 70)
    np.testing.assert_array_equal(crop(jpeg(), box, (50, 70), flipped=True), crop(jpeg(), box, (50, 70))[:, ::-1])
    np.testing.assert_array_equal(crop(jpeg(), box, (24, 24), flipped=True), crop(jpeg(), box, (24, 24))[:, ::-1])


@pytest.mark.parametrize("by", [2, 4, 8])
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_box_decoded_at_a_part_of_the_size_looks_like_one_decoded_whole(decoder, by, orientation):
    image = Image.open(f"{photos()}/train/cat/00.jpg").resize((1003, 777), Image.Resampling.BICUBIC)
    exif = image.getexif()
    exif[0x0112] = orientation
    data = jpeg(image, exif=exif)
    height, width = read_header(data).size
    box = (31, 17, height - 50, width - 40)
    shape = (box[2] // by - 1, box[3] // by - 1)
    reduced = crop(data, box, shape).astype(int)
    whole = scale(decode(data)[31 : height - 19, 17 : width - 23], shape, "area").astype(int)
    assert not np.array_equal(reduced, whole)  # the reduction did happen
    assert np.abs(reduced - whole).mean() < 3


def test_a_box_outside_the_image_is_refused(decoder):
    with pytest.raises(ValueError, match=r"\(20, 0, 41, 90\) extends beyond the image of 60 x 90"):
        crop(jpeg(), (20, 0, 41, 90), (8, 8))


def test_the_fastest_installed_decoder_is_named(decoder):
    assert backend() == decoder


@pytest.mark.parametrize("part", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("format", ["JPEG", "PNG", "BMP"])
def test_a_file_that_is_cut_short_is_an_error(decoder, format, part):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = encoded(noise, format)
    with pytest.raises(ImageError, match=r"truncated|ends within its header"):
        decode(data[: int(len(data) * part)])


def test_a_progressive_jpeg_that_is_cut_short_is_an_error(decoder):
    data = jpeg(progressive=True)
    with pytest.raises(ImageError, match="truncated"):
        decode(data[: int(len(data) * 0.7)])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"this is a text, whatever its name says\n", "not an image: the file begins with b'this is a te'"),
        (b"\xff\xd8", "the file ends within its header, after 2 bytes"),
        (b"\xff\xd8\xff\xff\xff", "the file ends within its header"),
        (b"\xff\xd8 no marker", "expected a marker .0xff. at byte 2, found 0x20"),
        (b"\x89PNG\r\n\x1a\n", "the file ends within its header"),
        (b"\x89PNG\r\n\x1a\n" + bytes(30), "expected the chunk IHDR first"),
        (b"BM", "the file ends within its header"),
        (png_of(8, 0, np.zeros((0, 5), np.uint8)), "a PNG of height 0 and width 5"),
    ],
)
def test_what_is_no_image_is_an_error_that_says_so(data, message):
    with pytest.raises(ImageError, match=message):
        decode(data)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "BMP"])
def test_a_decompression_bomb_is_refused_by_its_header(format):
    data = bytearray(encoded(scene(), format))
    at, layout = {"JPEG": (data.find(b"\xff\xc0") + 5, ">HH"), "PNG": (16, ">II"), "BMP": (18, "<ii")}[format]
    struct.pack_into(layout, data, at, 60000, 50000)
    with pytest.raises(ImageError, match=r"the header declares \d+ x \d+ pixels, more than max_pixels=67108864; raise max_pixels"):
        decode(bytes(data))


def test_a_png_chunk_that_announces_more_than_the_file_holds_is_refused_before_room_is_made_for_it(decoder):
    data = encoded(scene(), "PNG")
    text = struct.pack(">I4s", 2**31 - 1, b"tEXt") + b"Comment\0"
    with pytest.raises(ImageError, match=r"truncated: the chunk at byte 33 extends beyond the end of the file"):
        decode(data[:33] + text + data[33:])


def test_the_limit_on_pixels_is_the_callers():
    assert decode(jpeg(), max_pixels=60 * 90).shape == (60, 90, 3)
    with pytest.raises(ImageError, match="the header declares 60 x 90 pixels, more than max_pixels=5399"):
        decode(jpeg(), max_pixels=60 * 90 - 1)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF:UserWarning")
def test_a_broken_exif_block_does_not_make_a_broken_image(decoder):
    data = jpeg(exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    assert read_header(data).orientation == 1
    assert decode(data).shape == (60, 90, 3)


SAMPLES = [jpeg(), jpeg(progressive=True), turned(6), encoded(scene(), "PNG"), encoded(scene(), "BMP"), turned(6, "PNG")]


@settings(deadline=None)  # the first example imports a decoder
@given(
    sample=st.sampled_from(SAMPLES), edits=st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=20), cut=st.floats(0, 1)
)
def test_hostile_bytes_give_an_image_or_an_image_error(sample, edits, cut):
    data = bytearray(sample[: max(1, int(len(sample) * max(cut, 0.3)))])
    for at, value in edits:
        data[at % min(len(data), 800)] = value
    try:
        pixels = decode(bytes(data), max_pixels=1 << 20)
    except ImageError:
        return
    assert pixels.dtype == np.uint8 and pixels.shape[2] == 3


def test_decoders_are_imported_when_they_are_needed():
    code = "import sys, highway.modules; print(sorted({'cv2', 'simplejpeg', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n0 0 8 8 rectfill\nshowpage\n%%EOF\n"


def of_format(name, size=(8, 6)):
    file = io.BytesIO()
    Image.new("RGB", size, (10, 20, 30)).save(file, name)
    return file.getvalue()


@pytest.mark.parametrize("name", ["BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP"])
def test_the_formats_that_are_promised_are_decoded(name):
    assert decode(of_format(name)).shape == (6, 8, 3)


@pytest.mark.parametrize("data", [EPS, of_format("PDF"), of_format("TGA"), of_format("ICNS", (16, 16)), of_format("JPEG2000")])
def test_other_formats_that_pillow_knows_are_refused_before_any_program_of_theirs_starts(data, monkeypatch):
    def started(*arguments, **_):
        raise AssertionError(f"started {arguments}")

    monkeypatch.setattr(subprocess, "Popen", started)
    with pytest.raises(ImageError, match=r"not an image: the file begins with b'.*'; expected one of BMP, GIF, JPEG, PNG, PPM, TIFF, WEBP"):
        decode(data)


@pytest.mark.parametrize("warnings_are", ["error", "ignore"])
@pytest.mark.parametrize("limit", [40, 20])  # 48 pixels are more, or more than twice as many
def test_what_pillow_calls_a_decompression_bomb_is_an_error(monkeypatch, limit, warnings_are):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with warnings.catch_warnings():
        warnings.simplefilter(warnings_are)
        with pytest.raises(ImageError, match=rf"a decompression bomb: .* raise PIL.Image.MAX_IMAGE_PIXELS \(now {limit}\) and max_pixels"):
            decode(of_format("GIF"))


def test_an_extension_that_was_built_from_another_version_is_not_used(monkeypatch, caplog):
    extension = pytest.importorskip("highway.images._jpeg")
    monkeypatch.delattr(extension, "API")
    extension_or_none.cache_clear()
    assert extension_or_none() is None and "is not used: install highway-data again" in caplog.text
    extension_or_none.cache_clear()
