import ctypes
import gc
import io
import os
import shutil
import weakref
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
from PIL import Image

from highway import Pipeline, Stage
from highway.data import photos
from highway.datasets.image_files import labelled_files
from highway.errors import ConfigError, DatasetError, EndOfStream, ImageError
from highway.images.buffers import BufferPool
from highway.images.decode import checked_header, decode_crop
from highway.modules import Augmentations, ImageFileReader, ImageReader
from highway.transforms import CenterCrop, RandomCrop, RandomResizedCrop, Resize
from highway.transforms.crop import covering_box

VAL = f"{photos()}/val"


def batches(reader, **stage):
    with Pipeline([Stage(reader, **stage)]) as pipeline:
        return [item for item, _ in pipeline.stamped()]


def stamped(reader, **stage):
    with Pipeline([Stage(reader, **stage)]) as pipeline:
        return list(pipeline.stamped())


@pytest.fixture
def folder(tmp_path):
    """Two labels; the image of key KEY is of one colour, by which it is known again."""
    for number in range(12):
        path = tmp_path / "data" / "ab"[number % 2] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 7), (number * 20, 0, 255)).save(path)
    return tmp_path / "data"


def numbers(images):
    return (images[:, 0, 0, 0] // 20).tolist()


def spoil(folder, *names):
    for name in names:
        next(folder.rglob(name)).write_text("not an image")


def test_a_batch_is_rgb_bytes_and_labels_in_the_order_of_the_folders():
    reader = ImageFileReader(VAL, 16, (24, 32), epochs=1)
    found = batches(reader)
    assert [images.shape for images, _ in found] == [(16, 24, 32, 3)] * 2
    assert {(images.dtype, labels.dtype) for images, labels in found} == {(np.dtype("u1"), np.dtype("i4"))}
    assert sorted(np.concatenate([labels for _, labels in found])) == sorted(list(range(8)) * 4)
    assert reader.classes == ["astronaut", "brick", "cat", "coffee", "galaxies", "grass", "gravel", "rocket"]


def test_each_image_is_scaled_and_centre_cropped_and_has_the_label_of_its_folder():
    expected = np.empty((24, 32, 3), np.uint8)
    reader = ImageFileReader(VAL, 16, (24, 32), epochs=1)
    for (images, labels), passport in stamped(reader):
        for image, label, key in zip(images, labels, passport.keys, strict=True):
            with open(f"{VAL}/{key}", "rb") as file:
                data = file.read()
            header = checked_header(data)
            decode_crop(data, header, covering_box(header.size, 32 / 24), expected)
            np.testing.assert_array_equal(image, expected)
            assert reader.classes[label] == key.split("/")[0]


def test_every_image_comes_once_in_each_epoch_and_each_epoch_has_its_own_order(folder):
    found = stamped(ImageFileReader(str(folder), 5, (7, 9), epochs=3))
    assert [(passport.epoch, passport.index) for _, passport in found] == [(e, i) for e in range(3) for i in range(3)]
    orders = [[n for (images, _), passport in found if passport.epoch == epoch for n in numbers(images)] for epoch in range(3)]
    assert [sorted(order) for order in orders] == [list(range(12))] * 3
    assert len({tuple(order) for order in orders}) == 3


def test_without_shuffle_the_order_is_that_of_the_paths(folder):
    found = stamped(ImageFileReader(str(folder), 12, (7, 9), epochs=1, shuffle=False))
    ((images, labels), passport) = found[0]
    assert passport.keys == tuple(sorted(f"{'ab'[n % 2]}/{n:02}.png" for n in range(12)))
    assert numbers(images) == [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11]
    assert labels.tolist() == [0] * 6 + [1] * 6


def test_the_last_batch_of_an_epoch_is_kept_unless_told_otherwise(folder):
    sizes = [[len(images) for images, _ in batches(ImageFileReader(str(folder), 5, (7, 9), epochs=2, drop_last=d))] for d in (False, True)]
    assert sizes == [[5, 5, 2, 5, 5, 2], [5, 5, 5, 5]]


def test_without_epochs_it_repeats_for_ever(folder):
    with Pipeline([ImageFileReader(str(folder), 12, (7, 9))]) as pipeline:
        for _ in range(20):
            assert sorted(numbers(pipeline.dequeue()[0])) == list(range(12))


@dataclass(frozen=True)
class Quarter(RandomCrop):
    """A crop of a user's, with a box of its own."""

    def box(self, size, rng):
        top, left, height, width = RandomResizedCrop(self.shape).box((size[0] // 2, size[1] // 2), rng)
        return top + size[0] // 2, left, height, width


@pytest.mark.parametrize("crop", [RandomResizedCrop((20, 28)), RandomCrop((20, 28)), Quarter((20, 28))])
@pytest.mark.parametrize("rows", [1, 5, 64])
def test_the_bytes_are_the_same_however_batches_are_cut_into_runs_and_without_runs_of_the_extension(monkeypatch, crop, rows):
    """Crops that draw boxes for a run, and one that draws them one by one."""
    reader = ImageFileReader(f"{photos()}/train", 24, epochs=2, crop=crop, flip=0.5, seed=3, num_workers=2)
    as_usual = [(images.tobytes(), labels.tobytes()) for images, labels in batches(reader)]
    for name, value in (("LEAST_ROWS", rows), ("MOST_ROWS", rows), ("QUICK", 0)):
        monkeypatch.setattr(f"highway.reading.plan.{name}", value)
    if rows == 5:
        monkeypatch.setattr("highway.images.run.extension_or_none", lambda: None)
    assert [(images.tobytes(), labels.tobytes()) for images, labels in batches(reader)] == as_usual


@pytest.mark.parametrize("crop", [None, RandomResizedCrop((20, 28)), RandomCrop((20, 28)), CenterCrop((20, 28))])
def test_the_bytes_are_the_same_for_any_number_of_workers(crop):
    runs = []
    for workers in (1, 2, 8):
        reader = ImageFileReader(f"{photos()}/train", 24, None if crop else (20, 28), 2, crop=crop, flip=0.5, seed=3, num_workers=workers)
        runs.append([(i.tobytes(), t.tobytes()) for i, t in batches(reader)])
    assert runs[0] == runs[1] == runs[2]


def test_seed_and_epoch_and_place_change_the_draw(folder):
    big = folder / "a" / "big.png"
    shutil.rmtree(folder)
    big.parent.mkdir(parents=True)
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 90, 3), dtype=np.uint8)).save(big)
    shutil.copy(big, big.with_name("same.png"))
    seen = [batches(ImageFileReader(str(folder), 2, epochs=2, crop=RandomCrop((8, 8)), seed=seed)) for seed in (0, 1)]
    drawn = {image.tobytes() for run in seen for images, _ in run for image in images}
    assert len(drawn) == 8


def test_the_crop_is_the_crop_of_the_decoded_image(folder):
    crop = CenterCrop((4, 6))
    ((images, _), passport) = stamped(ImageFileReader(str(folder), 12, crop=crop, epochs=1))[0]
    for image, key in zip(images, passport.keys, strict=True):
        np.testing.assert_array_equal(image, crop(np.asarray(Image.open(folder / key))))


def test_flip_is_a_probability(folder):
    path = folder / "a" / "00.png"
    gradient = np.repeat(np.arange(9, dtype=np.uint8)[None, :, None] * 20, 7, axis=0).repeat(3, axis=2)
    shutil.rmtree(folder)
    path.parent.mkdir(parents=True)
    Image.fromarray(gradient).save(path)
    mirrored = {p: [i[0, 0, 0, 0] == 160 for i, _ in batches(ImageFileReader(str(folder), 1, (7, 9), 200, flip=p))] for p in (0, 0.3, 1)}
    assert sum(mirrored[0]) == 0 and sum(mirrored[1]) == 200
    assert 35 < sum(mirrored[0.3]) < 85


def test_a_flat_folder_gives_images_alone(folder):
    found = stamped(ImageReader(str(folder / "a"), 4, (7, 9), epochs=1, shuffle=False))
    assert [len(item) for item, _ in found] == [1, 1]
    assert numbers(found[0][0][0]) == [0, 2, 4, 6]
    assert found[1][1].keys == ("08.png", "10.png")


def test_hidden_files_and_other_types_are_left_out_and_deeper_folders_are_read(folder):
    (folder / "README.md").write_text("read me")
    (folder / ".git").mkdir()
    (folder / "a" / ".hidden.png").write_text("")
    (folder / "a" / "notes.txt").write_text("")
    (folder / "a" / "x" / "y").mkdir(parents=True)
    shutil.copy(folder / "a" / "02.png", folder / "a" / "x" / "y" / "deep.PNG")
    files = labelled_files(str(folder))
    assert len(files.keys) == 13 and "a/x/y/deep.PNG" in files.keys
    assert files.labels == [0] * 7 + [1] * 6


def test_a_link_to_a_label_folder_is_a_label(folder):
    os.symlink(folder / "a", folder / "c")
    assert ImageFileReader(str(folder), 1, (7, 9)).classes == ["a", "b", "c"]
    assert len(labelled_files(str(folder)).keys) == 18


def test_photographs_come_with_the_package():
    assert len(labelled_files(f"{photos()}/train").keys) == 128
    assert len(batches(ImageFileReader("highway:photos/val", 32, (8, 8), 1))) == 1


# --- memory ---


def consumed(pool, shape=(4, 3)):
    array = pool.take(shape)
    return array, array.__array_interface__["data"][0]


@pytest.mark.parametrize(
    "hold",
    [
        lambda a: a,
        lambda a: a[1],
        lambda a: a[1:][..., ::-1].T[0],
        lambda a: a.reshape(-1)[3:].view(np.int8),
        lambda a: memoryview(a)[1:],
        lambda a: np.asarray(memoryview(a)),
        lambda a: np.frombuffer(a, np.uint8)[2:],
        lambda a: np.lib.stride_tricks.sliding_window_view(a, 2, axis=0)[0],
        lambda a: np.broadcast_to(a, (5, *a.shape))[2],
        lambda a: list(a),
        lambda a: a.flat,
        lambda a: a.view(np.recarray)[1:],
        lambda a: np.ma.masked_array(a)[0],
        lambda a: np.from_dlpack(a)[1],
        lambda a: (ctypes.c_uint8 * 12).from_buffer(a),
        lambda a: pytest.importorskip("torch").from_numpy(a)[1:].t(),
    ],
)
def test_memory_is_not_used_again_while_anybody_holds_any_view_of_it(hold):
    pool = BufferPool(12)
    array, address = consumed(pool)
    held = hold(array)
    del array
    gc.collect(1)  # all of it is young
    others = [consumed(pool) for _ in range(3)]
    assert address not in [other[1] for other in others]
    del held, others
    gc.collect(1)  # all of it is young
    again = [consumed(pool) for _ in range(4)]
    assert address in [other[1] for other in again]


def test_memory_is_used_again_as_soon_as_nobody_holds_it():
    pool = BufferPool(12)
    addresses = set()
    for _ in range(50):
        array, address = consumed(pool)
        addresses.add(address)
        del array
    assert len(addresses) == 1


def test_only_so_much_unused_memory_is_kept():
    pool = BufferPool(12, keep=2)
    held = [pool.take((12,)) for _ in range(9)]
    memory = [weakref.ref(array.base) for array in held]
    del held
    assert sum(each() is not None for each in memory) == 2


def test_batches_that_are_kept_are_never_written_again(folder):
    kept = []
    with Pipeline([ImageFileReader(str(folder), 3, (7, 9), epochs=20)]) as pipeline:
        for step, ((images, _), _) in enumerate(pipeline.stamped()):
            if step % 3 == 0:
                kept.append((images[1:, 2], images[1:, 2].copy()))
    for view, copy in kept:
        np.testing.assert_array_equal(view, copy)


def test_batches_that_are_dropped_give_their_memory_to_the_next(folder):
    addresses = set()
    with Pipeline([ImageFileReader(str(folder), 12, (7, 9), epochs=100, num_workers=2)]) as pipeline:
        for (images, _), _ in pipeline.stamped():
            addresses.add(images.__array_interface__["data"][0])
            del images
    assert len(addresses) < 20


# --- bad input ---


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size=0; expected at least 1"),
        ({"shape": (0, 5)}, r"shape=\(0, 5\)"),
        ({"epochs": 0}, "epochs=0; expected at least 1, or None"),
        ({"seed": -1}, "seed=-1"),
        ({"flip": 1.5}, "flip=1.5; expected a probability"),
        ({"crop": CenterCrop((3, 3))}, r"shape=\(8, 8\), but CenterCrop\(shape=\(3, 3\)\) has the shape \(3, 3\); remove shape"),
    ],
)
def test_a_wrong_parameter_is_named_when_the_reader_is_made(arguments, message):
    with pytest.raises(ConfigError, match=f"ImageFileReader: {message}"):
        ImageFileReader(**{"data_dir": "nowhere", "batch_size": 4, "shape": (8, 8), **arguments})


@pytest.mark.parametrize("reader", [ImageFileReader, ImageReader])
def test_a_missing_folder_is_an_error_on_the_first_item(tmp_path, reader):
    pipeline = Pipeline([reader(str(tmp_path / "nowhere"), 4, (8, 8))])
    with pytest.raises(FileNotFoundError, match=r"nowhere': there is no such folder \(the current directory is .*\); correct the path"):
        pipeline.dequeue()


def test_a_file_in_place_of_a_folder_is_an_error(folder):
    with pytest.raises(ConfigError, match=r"00.png: the format of a file that begins with b'\\x89PNG.* cannot be determined"):
        batches(ImageReader(str(folder / "a" / "00.png"), 4, (8, 8)))


def test_folders_without_what_is_expected_are_errors_with_a_way_out(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"empty': expected one folder per label, but it contains neither folders nor images"):
        batches(ImageFileReader(str(tmp_path / "empty"), 4, (8, 8)))
    with pytest.raises(FileNotFoundError, match=r"a': expected one folder per label, but it contains images; use ImageReader"):
        batches(ImageFileReader(str(folder / "a"), 4, (8, 8)))
    with pytest.raises(
        FileNotFoundError, match=r"data': the folder contains no images .*; if it has one folder per label, use ImageFileReader"
    ):
        batches(ImageReader(str(folder), 4, (8, 8)))
    (folder / "c").mkdir()
    with pytest.raises(
        FileNotFoundError, match=r"data/c': the folder contains no images \(.bmp, .*\); remove the folder, or put images into it"
    ):
        batches(ImageFileReader(str(folder), 4, (8, 8)))


def test_an_epoch_without_a_single_batch_is_an_error(folder):
    with pytest.raises(ValueError, match=r"12 samples make no batch of 13; lower batch_size, or drop_last=False"):
        batches(ImageFileReader(str(folder), 13, (8, 8), drop_last=True))


def truncated_jpeg(path):
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(buffer, "JPEG")
    path.write_bytes(buffer.getvalue()[: buffer.tell() // 2])


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (truncated_jpeg, "the JPEG is damaged or truncated"),
        (lambda path: path.write_text("a text"), "not an image: the file begins with b'a text'"),
        (lambda path: path.write_bytes(b""), "the file is empty"),
        (
            lambda path: path.write_bytes(b"BM" + bytes(16) + b"\0\0\1\0" * 2),
            r"the header declares 65536 x 65536 pixels, more than "
            r"max_pixels",
        ),
    ],
)
def test_a_bad_file_ends_the_run_with_an_error_that_names_it(folder, write, message):
    write(folder / "b" / "bad.jpg")
    with pytest.raises(ImageError, match=rf"data/b/bad.jpg: {message}"):
        batches(ImageFileReader(str(folder), 4, (8, 8), epochs=1))


def test_an_image_smaller_than_the_crop_is_named(folder):
    with pytest.raises(ImageError, match=r"data/[ab]/\d\d.png: CenterCrop\(shape=\(8, 8\)\): needs an image of at least 8x8"):
        batches(ImageFileReader(str(folder), 4, crop=CenterCrop((8, 8)), epochs=1))


def test_a_file_that_vanishes_is_named(folder):
    reader = ImageFileReader(str(folder), 12, (7, 9))
    with Pipeline([reader]) as pipeline:
        pipeline.dequeue()
        (folder / "a" / "04.png").unlink()
        with pytest.raises(FileNotFoundError, match=r"data/a/04.png"):
            for _ in pipeline.stamped():
                pass


@pytest.mark.parametrize("workers", [1, 4])
def test_with_skip_the_row_of_a_bad_file_holds_the_next_of_the_order(folder, workers):
    spoil(folder, "02.png", "04.png", "11.png")
    reader = ImageFileReader(str(folder), 5, (7, 9), epochs=1, shuffle=False, num_workers=workers)
    with Pipeline([Stage(reader, on_error="skip")]) as pipeline:
        found = list(pipeline.stamped())
        stats = next(stage for stage in pipeline.stats().stages if stage.name.endswith("decode"))
    assert [numbers(images) for (images, _), _ in found] == [[0, 6, 6, 6, 8], [10, 1, 3, 5, 7], [9, 0]]
    assert [n for _, passport in found for n in passport.keys] == [
        *("a/00.png", "a/06.png", "a/06.png", "a/06.png", "a/08.png"),
        *("a/10.png", "b/01.png", "b/03.png", "b/05.png", "b/07.png"),
        *("b/09.png", "a/00.png"),
    ]
    assert [labels.tolist() for (_, labels), _ in found] == [[0] * 5, [0, 1, 1, 1, 1], [1, 0]]
    assert [(p.epoch, p.index) for _, p in found] == [(0, 0), (0, 1), (0, 2)]
    assert stats.counters["skipped"] == 3
    assert stats.errors == 3


@pytest.mark.parametrize("workers", [1, 4])
def test_a_bad_file_counts_once_in_an_epoch_and_is_read_once(folder, monkeypatch, workers):
    bad = [f"{n:02}.png" for n in (0, 2, 4, 6, 8, 10, 1, 3)]  # in this order one after the other
    spoil(folder, *bad)
    read = Counter()

    def counted(data, max_pixels):
        read[bytes(data)] += 1
        return checked_header(data, max_pixels)

    monkeypatch.setattr("highway.images.run.checked_header", counted)
    reader = ImageFileReader(str(folder), 4, (7, 9), epochs=3, shuffle=False, num_workers=workers)
    with Pipeline([Stage(reader, on_error="skip", max_errors=3 * len(bad))]) as pipeline:
        for _ in range(3):
            assert [numbers(images) for images, _ in pipeline] == [[5, 5, 5, 5], [5, 5, 5, 5], [5, 7, 9, 11]]
        stats = pipeline.stats().stages[1]
    assert stats.errors == stats.counters["skipped"] == 3 * len(bad)
    if workers == 1:  # several may be at the same file at once
        assert read[b"not an image"] == 3 * len(bad)


def test_the_stage_before_decode_says_that_it_counts_row_ranges(folder, monkeypatch):
    monkeypatch.setattr("highway.reading.plan.QUICK", 0)  # all runs are as long as the first
    monkeypatch.setattr("highway.reading.plan.MOST_ROWS", 8)
    with Pipeline([ImageFileReader(str(folder), 12, (7, 9), epochs=2)]) as pipeline:
        assert [len(list(pipeline)), len(list(pipeline))] == [1, 1]
        ranges, decoded = pipeline.stats().stages
    assert (ranges.name, ranges.items) == ("ImageFileReader.row_ranges", 4)
    assert (decoded.name, decoded.items) == ("ImageFileReader.decode", 2)


def test_with_skip_the_path_of_a_bad_file_is_logged(folder, caplog):
    spoil(folder, "02.png")
    batches(ImageFileReader(str(folder), 5, (7, 9), epochs=1), on_error="skip")
    assert "data/a/02.png: not an image" in caplog.text


def test_with_skip_the_bytes_are_still_the_same_for_any_number_of_workers(folder):
    spoil(folder, "02.png", "07.png")
    runs = []
    for workers in (1, 2, 8):
        reader = ImageFileReader(str(folder), 5, epochs=3, crop=RandomResizedCrop((5, 5)), num_workers=workers)
        runs.append([(i.tobytes(), t.tobytes()) for i, t in batches(reader, on_error="skip")])
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("epochs", [1, None])
@pytest.mark.parametrize("batch_size", [1, 5, 40])
def test_a_folder_of_bad_files_alone_ends_with_an_error_even_with_skip(folder, epochs, batch_size):
    spoil(folder, *(f"{n:02}.png" for n in range(12)))
    with pytest.raises(DatasetError, match=r"none of its 12 samples can be used; the last error: .*png: not an image"):
        batches(ImageFileReader(str(folder), batch_size, (7, 9), epochs=epochs), on_error="skip")


def test_with_skip_a_budget_of_errors_ends_the_run(folder):
    spoil(folder, "02.png", "07.png")
    with pytest.raises(ImageError, match=r"0[27].png"):
        batches(ImageFileReader(str(folder), 5, (7, 9)), on_error="skip", max_errors=1)


def test_the_decoder_in_use_is_in_the_stats(folder):
    with Pipeline([ImageFileReader(str(folder), 5, (7, 9), epochs=1)]) as pipeline:
        pipeline.dequeue()
        assert pipeline.stats().stages[-1].counters["decoder"] in ("highway._jpeg", "simplejpeg", "cv2", "pillow")
        list(pipeline)
        with pytest.raises(EndOfStream):
            pipeline.dequeue()


@pytest.mark.parametrize("workers", [1, 3])
def test_without_shape_and_crop_images_keep_their_own_sizes_in_a_list(tmp_path, workers):
    sizes = [(5 + number, 20 - number) for number in range(7)]
    for number, (height, width) in enumerate(sizes):
        noise = np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / f"{number}.png")
    given = [np.asarray(Image.open(tmp_path / f"{number}.png")) for number in range(7)]
    got = batches(ImageReader(str(tmp_path), 3, epochs=1, shuffle=False, num_workers=workers))
    assert [[type(images), len(images)] for (images,) in got] == [[list, 3], [list, 3], [list, 1]]
    for image, expected in zip([image for (images,) in got for image in images], given, strict=True):
        np.testing.assert_array_equal(image, expected, strict=True)
    mirrored = [image for (images,) in batches(ImageReader(str(tmp_path), 7, epochs=1, shuffle=False, flip=1.0)) for image in images]
    for image, expected in zip(mirrored, given, strict=True):
        np.testing.assert_array_equal(image, expected[:, ::-1], strict=True)


def test_images_of_their_own_sizes_become_a_batch_by_a_transform_and_turn_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    Image.new("RGB", (30, 10), (200, 0, 0)).save(tmp_path / "a.jpg", exif=exif)
    Image.new("RGB", (8, 9), (200, 0, 0)).save(tmp_path / "b.png")
    reader = ImageReader(str(tmp_path), 2, epochs=1, shuffle=False)
    ((images,),) = batches(reader)
    assert [image.shape for image in images] == [(30, 10, 3), (9, 8, 3)]
    with Pipeline([reader, Augmentations([Resize((16, 16))])]) as pipeline:
        ((batch,),) = list(pipeline)
    assert (batch.shape, batch.dtype) == ((2, 16, 16, 3), np.uint8)


def test_an_image_of_its_own_size_that_cannot_be_read_is_replaced_by_the_next(folder):
    spoil(folder, "02.png")
    with Pipeline([Stage(ImageFileReader(str(folder), 4, epochs=1, shuffle=False), on_error="skip")]) as pipeline:
        got = list(pipeline)
    assert [len(images) for images, _ in got] == [4, 4, 4]
    assert [image.shape for images, _ in got for image in images] == [(7, 9, 3)] * 12


def test_labels_are_one_hot_on_demand(folder):
    plain = batches(ImageFileReader(str(folder), 5, (7, 9), epochs=1))
    for (_, labels), (_, hot) in zip(plain, batches(ImageFileReader(str(folder), 5, (7, 9), epochs=1, one_hot=True)), strict=True):
        assert (hot.shape, hot.dtype) == ((len(labels), 2), np.float32)
        np.testing.assert_array_equal(hot.argmax(axis=1), labels)
        np.testing.assert_array_equal(hot.sum(axis=1), 1)


@pytest.mark.parametrize(("own", "of_stage", "ranges"), [(1, 4, 4), (4, 1, 4), (None, 2, 8)])
def test_workers_of_a_reader_and_of_a_stage_around_it_are_the_same_thing(own, of_stage, ranges, monkeypatch):
    monkeypatch.setattr("highway.reading.plan.QUICK", 0)  # all runs are as long as the first

    def row_ranges(source):
        with Pipeline([source]) as pipeline:
            batch, _ = pipeline
        stages = pipeline.stats().stages
        return stages[0].items, stages[1].num_workers, batch[0].tobytes()

    reader = ImageFileReader("highway:photos/train", 64, (8, 8), epochs=1, drop_last=True, num_workers=own)
    overridden = row_ranges(Stage(reader, num_workers=of_stage))
    assert overridden == row_ranges(replace(reader, num_workers=of_stage))
    assert overridden[:2] == (ranges, of_stage)
