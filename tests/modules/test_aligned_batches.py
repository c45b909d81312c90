"""Every array of a batch begins at a multiple of 64 bytes, whoever has made it, and whatever it came over if ``writable``."""

import itertools
import threading

import numpy as np
import pytest
from waiting import wait_until

from highway import Pipeline
from highway.engine.batch import collate, fields, stacked
from highway.modules import (
    Augmentations,
    Batch,
    BatchByShape,
    Bucket,
    Cache,
    DecodeBatch,
    EncodedImageReader,
    ImageFileReader,
    ImageReader,
    Noise,
    Processes,
    Reader,
    TenSink,
    TenSource,
    ZMQSink,
    ZMQSource,
)
from highway.parameters.hints import parameters_of
from highway.process.aligned import ALIGNMENT
from highway.tenbin import load, save
from highway.topology.components import built_in
from highway.transforms import FlipX, RandomResizedCrop

DTYPES = ["bool", "u1", "i2", "f2", "i4", "f4", "i8", "f8", "c8", "U5", "S3", "M8[s]"]
SHAPES = [(), (1,), (7,), (3, 5), (5, 3, 3), (31, 17, 3), (225, 223, 3)]
NAMES = itertools.count()


def addresses(item):
    """Return where the arrays of a batch begin, beyond a multiple of 64 bytes; those of a list, too."""
    arrays = [array for value in fields(item) for array in (value if isinstance(value, list) else [value])]
    return [array.__array_interface__["data"][0] % ALIGNMENT for array in arrays if array.nbytes]


def expect_aligned(*stages, batches=None):
    """Run a pipeline, keep all that comes out, so that no memory is used again, and look at each array."""
    with Pipeline(list(stages), seed=1) as pipeline:
        items = list(pipeline)
    assert items and all(addresses(item) for item in items)
    assert [addresses(item) for item in items] == [[0] * len(addresses(item)) for item in items]
    assert batches is None or len(items) == batches
    return items


# --- what makes batches ---


BY_READER = {"HDF5Source", "LMDBSource", "LevelDBSource", "TFRecordSource"}  # which are Reader over a dataset


def test_bucket():
    samples = [{"tokens": np.arange(length), "label": length} for length in (3, 9, 4, 8, 5, 7)]
    expect_aligned(samples, Bucket([6], [3, 3], by="tokens"))


def test_no_component_that_makes_batches_is_missing_here():
    found = {
        name
        for name, cls in built_in("highway.modules").items()
        if "batch_size" in parameters_of(cls) or getattr(cls, "makes", None) == "batches" or name.startswith(("Noise", "Ten"))
    }
    assert found - set(globals()) - BY_READER == set() and len(found) >= 12


@pytest.mark.parametrize("dtype", DTYPES)
def test_collate(dtype):
    for shape, size in itertools.product(SHAPES, [1, 3]):
        samples = [(np.full(shape, number).astype(dtype), number, 0.5) for number in range(size)]
        batch = collate(samples)
        assert addresses(batch) == [0, 0, 0]
        np.testing.assert_array_equal(batch[0], np.stack([array for array, _, _ in samples]))
        assert [array.dtype for array in batch[1:]] == [np.int32, np.float32] and batch[1].tolist() == list(range(size))


@pytest.mark.parametrize(
    "arrays",
    [
        [np.array("a"), np.array("bcd")],
        [np.array([b"a", b"bc"]), np.array([b"def", b"g"])],
        [np.zeros((), "i4,f8"), np.ones((), "i4,f8")],
        [np.array([1, "x"], object), np.array([{}, None], object)],
        [np.array({}, object), np.array({1: 2}, object)],
        [np.zeros((2, 3), ">f4"), np.ones((2, 3), ">f4")],
        [np.arange(12.0).reshape(3, 4).T[::2]] * 2,
        [np.zeros((3, 0), "u1")] * 2,
    ],
    ids=lambda arrays: f"{arrays[0].dtype}-{arrays[0].shape}",
)
def test_stacking_is_numpys(arrays):
    expected, batch = np.stack(arrays), stacked(arrays)
    assert (batch.dtype, batch.shape, batch.dtype.byteorder) == (expected.dtype, expected.shape, expected.dtype.byteorder)
    np.testing.assert_array_equal(batch, expected)


@pytest.mark.parametrize("size", [1, 3])
def test_streams_that_batch(size):
    samples = [(np.zeros((5, number % 2 + 2, 3), np.uint8), number, np.float64(2)) for number in range(12)]
    expect_aligned(samples, BatchByShape(size), batches=12 // size)
    expect_aligned([sample[1:] for sample in samples], Batch(size), batches=12 // size)


@pytest.mark.parametrize("size", [1, 3])
def test_readers(photos, size):
    expect_aligned(Reader([(np.zeros((3, 5), "u1"), number) for number in range(7)], size, epochs=1))
    expect_aligned(Reader(np.arange(21, dtype="f4").reshape(7, 3), size, epochs=1))
    images = str(photos)
    for reader, folder in ((ImageReader, str(photos / "a")), (ImageFileReader, images)):
        expect_aligned(reader(folder, size, (33, 31), epochs=1))
        expect_aligned(reader(folder, size, epochs=1))  # every image has its own size
        expect_aligned(reader(folder, size, crop=RandomResizedCrop((17, 19)), epochs=1))
    expect_aligned(ImageFileReader(images, size, (9, 7), epochs=1, one_hot=True))
    expect_aligned(EncodedImageReader(images, size, epochs=1))
    expect_aligned(EncodedImageReader(images, size, epochs=1), DecodeBatch((13, 11)))


@pytest.mark.parametrize("dtype", ["bool", "i1", "u1", "i2", "u2", "i4", "u8", "f2", "f4", "f8"])
def test_noise(dtype):
    expect_aligned(Noise([(3, 7, 5, 3), (3,), (1,)], dtype=dtype, count=3), batches=3)


@pytest.mark.parametrize("deterministic", [True, False])
def test_augmentations(deterministic):
    source = [
        (np.zeros((3, 31, 29, 3), np.uint8), np.full((3, 2, 4), 5.0, np.float32), np.zeros((3, 31, 29), np.int16)),
        (np.zeros((1, 31, 29, 3), np.float32), np.full((1, 5, 4), 5.0, np.float32), np.zeros((1, 31, 29), np.uint8)),
    ]
    for transforms in ([], [FlipX()], [RandomResizedCrop((17, 13)), FlipX()]):
        expect_aligned(source, Augmentations(transforms, deterministic, boxes=1, mask=2), batches=2)


@pytest.mark.parametrize("stack", [True, False])
@pytest.mark.parametrize("size", [1, 3])
def test_caches(tmp_path, size, stack):
    samples = [{"image": np.zeros((5, 7, 3), np.uint8), "box": np.zeros(4, np.float32), "label": number} for number in range(6)]
    fields_of_batches = ["label", *(["image", "box"] if stack else [])]
    for path in (None, str(tmp_path / "cache")):
        cache = Cache(path, key="samples", batch_size=size, stack=stack, epochs=3)
        with Pipeline([samples, cache], seed=1) as pipeline:
            items = [item for item, _ in pipeline.stamped()]
        assert len(items) == 3 * 6 // size
        assert {address for item in items for name in fields_of_batches for address in addresses((item[name],))} == {0}


@pytest.mark.parametrize("size", [1, 3])
def test_processes(size):
    expect_aligned(Noise([(size, 31, 29, 3), (size,)], count=4), Processes([Augmentations([FlipX()])], num_processes=1), batches=4)


def test_ten_files(tmp_path):
    expected = [(np.full((3, 31, number, 3), number, np.uint8), np.arange(3, dtype=np.int32)) for number in range(1, 4)]
    Pipeline([expected, TenSink(str(tmp_path))]).run()
    for made, read in zip(expected, expect_aligned(TenSource(str(tmp_path)), batches=3), strict=True):
        for saved, array in zip(made, read, strict=True):
            np.testing.assert_array_equal(saved, array)
    save(tmp_path / "x.ten", *map(np.arange, (1, 9, 100)))
    assert addresses(load(tmp_path / "x.ten")) == [0, 0, 0]


# --- what came over a link ---

BATCHES = [
    {
        "images": np.full((size, 31, 29, 3), size, np.uint8),
        "labels": np.arange(size, dtype=np.int32),
        "each": np.full((size, 1), 0.5, np.float32),
    }
    for size in (1, 3, 70)
]


def received(transport, place, codec, writable):
    """Return what comes over a link, all of it kept at once."""
    sending = Pipeline([BATCHES, ZMQSink(f"zrpush+{transport}://{place}", codec=codec, allow64=True)])
    thread = threading.Thread(target=sending.run)
    thread.start()
    try:
        (address,) = wait_until(lambda: sending.stats().stages[1].counters.get("bound"))
        return list(Pipeline([ZMQSource(f"zrpull+{address}", codec=codec, writable=writable)]))
    finally:
        sending.stop()
        thread.join(30)


@pytest.mark.parametrize("codec", ["tensorcom", "tenbin", "msgpack"])
@pytest.mark.parametrize("transport", ["tcp", "ipc", "inproc", "shm"])
def test_what_came_over_a_link_is_aligned_if_writable(tmp_path, transport, codec):
    place = {"tcp": "127.0.0.1:0", "inproc": f"aligned-{next(NAMES)}"}.get(transport, tmp_path / "socket")
    items = received(transport, place, codec, writable=True)
    assert [addresses(item) for item in items] == [[0] * len(BATCHES[0])] * len(BATCHES)
    for item, sent in zip(items, BATCHES, strict=True):
        for name, array in sent.items():
            np.testing.assert_array_equal(item[name], array)
            assert item[name].flags.writeable


def test_what_came_over_a_same_host_link_is_aligned_without_a_copy(tmp_path):
    items = received("shm", tmp_path / "socket", "tensorcom", writable=False)
    assert [addresses(item) for item in items] == [[0] * len(BATCHES[0])] * len(BATCHES)
    assert not any(array.flags.writeable for item in items for array in item.values())
