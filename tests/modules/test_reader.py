"""``Reader``, over what other libraries and users have, and over what is not as it should be."""

import io
import os
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from highway import Pipeline, Stage
from highway.datasets import ImageFolder, MixedDataset
from highway.datasets.dataset import StoredFiles
from highway.errors import ConfigError, DatasetError, ImageError
from highway.modules import EncodedImageReader, ImageFileReader, Reader
from highway.transforms import RandomCrop


class Samples:
    """A dataset of so many samples: of each number what ``changed`` has for it (an exception is raised), else an array that holds it."""

    def __init__(self, total=20, changed=(), named=False):
        self.total, self.changed = total, dict(changed)
        if named:
            self.keys = [f"k{number}" for number in range(total)]

    def __len__(self):
        return self.total

    def __getitem__(self, number):
        found = self.changed.get(number, np.array([number], np.int32))
        if isinstance(found, Exception):
            raise found
        return found


class ReadAtOnce(Samples):
    """One that reads several samples at once, and remembers which."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.asked, self.singly = [], []

    def __getitem__(self, number):
        self.singly.append(number)
        return super().__getitem__(number)

    def __getitems__(self, numbers):
        self.asked += numbers
        return [Samples.__getitem__(self, number) for number in numbers]


def stamped(reader, **stage):
    with Pipeline([Stage(reader, **stage)]) as pipeline:
        return list(pipeline.stamped())


def read(reader, **stage):
    return [item for item, _ in stamped(reader, **stage)]


def numbers(dataset, batch_size=4, **options):
    """Return the numbers of one epoch in their order."""
    stage = {name: options.pop(name) for name in ("on_error", "max_errors") if name in options}
    items = read(Reader(dataset, batch_size, **{"epochs": 1, "shuffle": False, **options}), **stage)
    return np.concatenate([item.reshape(-1) for item in items]).tolist()


# --- what can be read ---


def test_a_list_an_array_and_a_range_are_datasets():
    assert numbers(list(range(10))) == numbers(range(10)) == numbers(np.arange(10)) == list(range(10))


def test_a_batch_has_the_fields_of_the_samples_with_a_new_first_axis():
    image = np.zeros((4, 5, 3), np.uint8)
    (batch,) = read(
        Reader([{"image": image, "label": 1, "name": "a"}, {"image": image, "label": 2, "name": "b"}], 2, epochs=1, shuffle=False)
    )
    assert batch["image"].shape == (2, 4, 5, 3) and batch["label"].tolist() == [1, 2] and batch["name"].tolist() == ["a", "b"]
    ((images, labels),) = read(Reader([(image, 1), (image, 2)], 2, epochs=1, shuffle=False))
    assert (images.shape, images.dtype, labels.tolist(), labels.dtype) == ((2, 4, 5, 3), np.uint8, [1, 2], np.int32)


def test_a_torch_dataset_is_read_as_it_is():
    torch = pytest.importorskip("torch")
    dataset = torch.utils.data.TensorDataset(torch.arange(12).reshape(6, 2), torch.arange(6))
    batches = read(Reader(dataset, 4, epochs=1, shuffle=False))
    assert [[field.tolist() for field in batch] for batch in batches] == [
        [[[0, 1], [2, 3], [4, 5], [6, 7]], [0, 1, 2, 3]],
        [[[8, 9], [10, 11]], [4, 5]],
    ]
    subset = torch.utils.data.Subset(dataset, [5, 1])
    assert [int(label) for _, label in read(Reader(subset, epochs=1, shuffle=False))] == [5, 1]


def test_without_a_batch_size_samples_come_one_by_one_as_the_dataset_has_returned_them():
    samples = [{"text": str(number), "any": object()} for number in range(20)]
    found = stamped(Reader(samples, epochs=2))
    assert all(item is samples[int(item["text"])] for item, _ in found)
    for epoch in range(2):
        mine = [(int(item["text"]), passport.index) for item, passport in found if passport.epoch == epoch]
        assert sorted(number for number, _ in mine) == [index for _, index in mine] == list(range(20))


def test_passports_carry_epoch_number_and_keys():
    found = [passport for _, passport in stamped(Reader(Samples(5, named=True), 2, epochs=2, shuffle=False))]
    assert [(p.epoch, p.index, p.keys) for p in found] == [
        (epoch, index, keys) for epoch in range(2) for index, keys in enumerate([("k0", "k1"), ("k2", "k3"), ("k4",)])
    ]
    assert [p.keys for _, p in stamped(Reader(Samples(2, named=True), epochs=1, shuffle=False))] == [("k0",), ("k1",)]


def test_the_last_batch_of_an_epoch_is_left_out_on_demand():
    assert [len(batch) for batch in read(Reader(range(10), 4, epochs=2, drop_last=True))] == [4, 4, 4, 4]


@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize("shuffle", [True, False])
def test_what_comes_out_is_the_same_for_any_number_of_workers(batch_size, shuffle):
    bad = {number: ValueError() for number in (3, 40, 41)}
    runs = [
        [(item.tolist(), passport.epoch, passport.index, passport.keys) for item, passport in stamped(reader, on_error="skip")]
        for workers in (1, 2, 8)
        for reader in [Reader(Samples(100, bad, named=True), batch_size, 3, shuffle=shuffle, num_workers=workers)]
    ]
    assert runs[0] == runs[1] == runs[2]


def test_a_dataset_that_reads_several_at_once_is_asked_for_runs_of_rows():
    dataset = ReadAtOnce(100)
    assert numbers(dataset, 20) == list(range(100))
    assert (sorted(dataset.asked), dataset.singly) == (list(range(100)), [])


class InBlocks(Samples):
    def blocks(self):
        return [range(first, first + 10) for first in range(0, self.total, 10)]


def test_blocks_are_read_together():
    found = numbers(InBlocks(200), 20, shuffle="blocks", window=20)
    assert sorted(found) == list(range(200)) != found
    assert all(len({number // 10 for number in found[first : first + 20]}) == 2 for first in range(0, 200, 20))


# --- ranks ---


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
@pytest.mark.parametrize("shuffle", [True, False, "blocks"])
def test_ranks_have_equally_many_batches_and_read_the_same_epoch_together(world_size, shuffle):
    for total in (50, 48):
        ranks = [
            stamped(
                Reader(
                    InBlocks(total) if shuffle == "blocks" and total == 50 else Blockless(total),
                    4,
                    3,
                    shuffle=shuffle,
                    rank=r,
                    world_size=world_size,
                )
            )
            for r in range(world_size)
        ]
        assert len({len(rank) for rank in ranks}) == 1
        for epoch in range(3):
            mine = [[n for item, p in rank if p.epoch == epoch for n in item[:, 0].tolist()] for rank in ranks]
            counts = Counter(number for rank in mine for number in rank)
            assert set(counts) == set(range(total)) and counts.total() - total == -total % world_size
        indices = [p.index for rank in ranks for _, p in rank if p.epoch == 0]
        assert len(set(indices)) == len(indices)


class Blockless(Samples):
    def blocks(self):
        return [range(self.total)]


@pytest.fixture
def noise(tmp_path):
    """Twenty images of two labels."""
    for number in range(20):
        path = tmp_path / "data" / "ab"[number % 2] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(number).integers(0, 256, (30, 40, 3), dtype=np.uint8)).save(path)
    return tmp_path / "data"


@pytest.mark.parametrize("spoilt", [(), ("04.png", "05.png", "10.png")])
def test_the_crop_of_an_image_is_the_same_whichever_rank_decodes_it(noise, spoilt):
    for name in spoilt:
        next(noise.rglob(name)).write_text("no image")

    def decoded(world_size):
        """Return the images of each epoch by their place in it."""
        found = {}
        for rank in range(world_size):
            reader = ImageFileReader(str(noise), 3, epochs=2, crop=RandomCrop((8, 8)), flip=0.5, rank=rank, world_size=world_size)
            rows = [(p.epoch, image.tobytes()) for (images, _), p in stamped(reader, on_error="skip") for image in images]
            for epoch in range(2):
                mine = [image for e, image in rows if e == epoch]
                found |= {(epoch, place * world_size + rank): image for place, image in enumerate(mine)}
        return found

    alone = decoded(1)
    assert len(set(alone.values())) == 40  # each crop is another one
    for world_size in (2, 3, 8):
        ranks = decoded(world_size)
        assert all(ranks[place] == image for place, image in alone.items())


def test_ranks_are_those_of_the_environment(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert numbers(Samples(12)) == [1, 4, 7, 10]
    with Pipeline([Reader(Samples(12), 4, 1)]) as pipeline:
        list(pipeline)
        assert pipeline.stats().stages[0].counters["rank"] == "1 of 3"


def test_samples_that_are_left_over_are_read_twice_or_dropped_or_an_error():
    def ranks(on_uneven):
        return [numbers(Samples(10), 2, rank=rank, world_size=4, on_uneven=on_uneven) for rank in range(4)]

    assert ranks("pad") == [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]]
    assert ranks("drop") == [[0, 4], [1, 5], [2, 6], [3, 7]]
    with pytest.raises(
        ConfigError, match="10 samples for 4 ranks leave a rest of 2; use on_uneven='pad' to read some samples twice, or on_uneven='drop'"
    ):
        ranks("raise")


def test_more_ranks_than_samples_read_some_twice_or_are_told_so():
    assert [numbers(Samples(2), 1, rank=rank, world_size=5) for rank in range(5)] == [[0], [1], [0], [1], [0]]
    with pytest.raises(
        ValueError, match=r"Samples: 2 samples make no batch of 4 for each of 5 ranks; lower batch_size, or on_uneven='pad'"
    ):
        numbers(Samples(2), 4, rank=0, world_size=5, on_uneven="drop")


@pytest.mark.parametrize("given", [{"rank": 1}, {"world_size": 2}, {"rank": 2, "world_size": 2}])
def test_a_rank_that_does_not_fit_is_an_error(given):
    with pytest.raises(ConfigError, match="rank"):
        numbers(Samples(), **given)


# --- what is not as it should be ---


def failure(reader, error, **stage):
    """Return the text of an error that ends a run, with its notes."""
    with pytest.raises(error) as caught:
        stamped(reader, **stage)
    return "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


@pytest.mark.parametrize("batch_size", [None, 4])
def test_what_a_dataset_raises_says_which_sample_it_is_about(batch_size):
    error = failure(Reader(Samples(20, {7: OSError("disk on fire")}, named=True), batch_size), OSError)
    assert error.startswith("disk on fire\nhighway: the error was raised for sample 7 (k7) of Samples\nhighway: in stage 'Reader.read'")


@pytest.mark.parametrize("error", [IndexError("list index out of range"), KeyError(7), StopIteration()])
def test_a_dataset_that_has_fewer_samples_than_it_says_is_told_so(error):
    text = failure(Reader(Samples(20, {7: error}), 4), DatasetError)
    what = f"{type(error).__name__}{f': {error}' if str(error) else ''}"
    assert text.startswith(f"sample 7 of Samples cannot be read, although the dataset has 20 samples: {what}\n")


def test_a_dataset_that_shrinks_or_grows_between_epochs_is_an_error():
    for change in (-5, +5):
        dataset = Samples(20)
        with Pipeline([Reader(dataset, 20)]) as pipeline:
            pipeline.dequeue()
            dataset.total += change
            with pytest.raises(
                DatasetError, match=rf"Samples had 20 samples when it was first read, but has {20 + change} at the start of epoch"
            ):
                while True:  # the next epochs may have begun already
                    pipeline.dequeue()


@pytest.mark.parametrize("length", [2.5, None, -1])
def test_a_length_that_is_no_number_is_an_error_that_names_the_dataset(length):
    assert "highway: the error was raised by the length of Samples" in failure(Reader(Samples(length), 4), (TypeError, ValueError))


def test_an_empty_dataset_is_an_error():
    assert failure(Reader([], 4), DatasetError).startswith("list is empty: there is no sample to read")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (b"photos/train", "dataset=b'photos/train' is bytes; write a path as text, such as 'photos/train'"),
        (iter([1]), "expected a Dataset, an object with __len__, __getitem__"),
        (Samples, "Samples is a class; pass an instance"),
        (None, "dataset=None; expected a Dataset"),
        (Pipeline([[1, 2]]), "expected a Dataset, an object with __len__, __getitem__; a Pipeline is not a dataset"),
    ],
)
def test_what_is_no_dataset_is_an_error_when_the_reader_is_made(given, message):
    with pytest.raises(ConfigError) as caught:
        Reader(given, 4)
    assert message in str(caught.value)


ODD = {
    "shape": (np.zeros((2,), np.int32), "int32 (2,)"),
    "dtype": (np.zeros((1,), np.float32), "float32 (1,)"),
    "kind": ((1, 2), "tuple (int32 (), int32 ())"),
    "fields": ({"a": 1}, "dict ('a': int32 ())"),
    "bare": ("text", "str or object"),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("number", [4, 7])
def test_the_sample_that_differs_from_the_others_of_its_batch_is_named(kind, number):
    sample, form = ODD[kind]
    error = failure(Reader(Samples(20, {number: sample}), 4, shuffle=False, epochs=1), ValueError)
    way_out = "give all samples the same form, in the dataset, or in a map between a reader without batch_size and Batch"
    assert f"the sample is {form}, but others of its batch are int32 (1,); {way_out}" in error
    assert f"highway: the error was raised for sample {number} of Samples" in error


def test_a_number_that_int32_has_no_room_for_is_named():
    error = failure(Reader([1, 2, 2**40, 3], 4, shuffle=False), ValueError)
    assert "contains 1099511627776, which does not fit into int32; make it an array" in error and "sample 2 of list" in error


@pytest.mark.parametrize("value", [2**70, -(2**70), [2**70], {"a": 2**70}, object()])
@pytest.mark.parametrize("ragged", [None, "pad"])
def test_a_sample_with_a_value_that_no_batch_holds_is_skipped_alone(value, ragged):
    samples = [{"n": number, "boxes": np.arange(2)} for number in range(8)]
    samples[3]["n"] = value
    reader = Reader(samples, 4, shuffle=False, epochs=1, ragged=ragged, fields=ragged and ["boxes"])
    with Pipeline([Stage(reader, on_error="skip")]) as pipeline:
        assert [item["n"].tolist() for item in pipeline] == [[0, 1, 2, 4], [4, 5, 6, 7]]
    error = failure(reader, ValueError)
    assert "sample 3 of list" in error and "AttributeError" not in error


@pytest.mark.parametrize("batch_size", [None, 4])
def test_no_sample_is_none(batch_size):
    error = failure(Reader(Samples(20, {7: None}), batch_size), TypeError)
    assert "the dataset returned None; expected a sample\nhighway: the error was raised for sample 7 of Samples" in error


def test_keys_that_are_too_few_are_an_error():
    dataset = Samples(20)
    dataset.keys = ["a", "b"]
    assert "Samples has 2 keys, but 20 samples; expected one key for each" in failure(Reader(dataset, 4), DatasetError)


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([range(10)], "blocks() returns ranges up to 10, but there are 20 samples"),
        ([range(10), range(9, 20)], "blocks() returns range(9, 20); expected a block that begins at 10: range(10, ...)"),
        ([(0, 20)], "blocks() returns (0, 20); expected a block that begins at 0: range(0, ...)"),
        ([range(0, 20, 2)], "blocks() returns range(0, 20, 2);"),
        ([], "blocks() returns ranges up to 0, but there are 20 samples"),
    ],
)
def test_blocks_that_are_not_the_numbers_of_the_dataset_are_an_error(blocks, message):
    dataset = Samples(20)
    dataset.blocks = lambda: blocks
    assert f"Samples: {message}" in failure(Reader(dataset, 4, shuffle="blocks"), DatasetError)


def test_blocks_of_what_has_none_are_an_error():
    error = failure(Reader(Samples(), 4, shuffle="blocks"), ConfigError)
    assert error.startswith("shuffle='blocks': Samples has no blocks(); use shuffle=True, which shuffles all samples")


def test_an_error_of_reading_several_at_once_is_about_the_one_sample():
    dataset = ReadAtOnce(20, {7: OSError("disk on fire")})
    assert "disk on fire\nhighway: the error was raised for sample 7 of ReadAtOnce" in failure(Reader(dataset, 10, shuffle=False), OSError)
    assert numbers(ReadAtOnce(20, {7: OSError("disk on fire")}), 10, on_error="skip") == [*range(7), 8, *range(8, 20)]


def test_after_a_bad_sample_others_are_still_read_several_at_once():
    dataset = ReadAtOnce(200, {7: OSError("disk on fire")})
    assert numbers(dataset, 40, on_error="skip", num_workers=1) == [*range(7), 8, *range(8, 200)]
    assert max(dataset.singly) < 40


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        ([1], DatasetError, "ReadAtOnce: __getitems__ returned 1 samples for 10 indexes"),
        (None, TypeError, "object is not iterable"),
    ],
)
def test_reading_several_at_once_that_fails_though_each_can_be_read_is_an_error_of_its_own(returned, error, message):
    dataset = ReadAtOnce(20)
    dataset.__class__ = type("ReadAtOnce", (ReadAtOnce,), {"__getitems__": lambda self, numbers: returned})
    text = failure(Reader(dataset, 10, shuffle=False, num_workers=1), error)
    assert (
        message in text
        and "highway: __getitems__ of ReadAtOnce raised this error, although __getitem__ can read each of these samples" in text
    )
    assert numbers(dataset, 10, on_error="skip") == list(range(20))


# --- files that change while they are read ---


@pytest.mark.parametrize(
    ("spoil", "error"),
    [(os.remove, FileNotFoundError), (lambda path: os.truncate(path, 500), ImageError), (lambda path: os.truncate(path, 0), ImageError)],
)
def test_a_file_that_is_removed_or_cut_short_meanwhile_is_named(noise, spoil, error):
    with Pipeline([ImageFileReader(str(noise), 20, (8, 8))]) as pipeline:
        pipeline.dequeue()
        spoil(noise / "b" / "05.png")
        with pytest.raises(error, match=r"data/b/05.png"):
            while True:  # the next epochs may have been read already
                pipeline.dequeue()


def test_samples_that_are_no_images_are_told_so():
    error = failure(ImageFileReader([1, 2, 3], 2, (8, 8)), TypeError)
    assert error.startswith("the sample is of type int; expected (encoded image, label)\nhighway: the error was raised for sample ")
    error = failure(ImageFileReader([{"image": Image.new("RGB", (8, 8)), "label": 0}], 1, (8, 8)), TypeError)
    assert "the sample is a dict with 'image': Image, 'label': int; expected (encoded image, label); for Hugging Face" in error


def test_a_dataset_of_another_makes_the_same_batches(noise):
    one, other = (read(ImageFileReader(data, 6, (8, 8), 2, seed=3)) for data in (str(noise), ImageFolder(str(noise))))
    for (images, labels), (same, also) in zip(one, other, strict=True):
        np.testing.assert_array_equal(images, same)
        np.testing.assert_array_equal(labels, also)


class Stored(Samples):
    """One whose samples are files, and that can say which; ``changed`` has what it says instead."""

    def __init__(self, folder, says=None):
        self.paths, self.says, self.asked = sorted(folder.rglob("*.png")), says, []
        super().__init__(len(self.paths), {number: (path.read_bytes(), number) for number, path in enumerate(self.paths)})

    def __getfiles__(self, numbers):
        self.asked += numbers
        if self.says is not None:
            return self.says
        return StoredFiles([str(self.paths[number]) for number in numbers], numbers)


def test_a_dataset_of_files_is_asked_where_they_are_by_those_that_decode(noise):
    dataset = Stored(noise)
    reader = ImageFileReader(dataset, 10, (8, 8), epochs=1, shuffle=False)
    for (images, labels), (same, also) in zip(
        read(reader), read(ImageFileReader(list(dataset.changed.values()), **own(reader))), strict=True
    ):
        np.testing.assert_array_equal(images, same)
        np.testing.assert_array_equal(labels, also)
    assert sorted(dataset.asked) == list(range(20))
    for other in (EncodedImageReader(dataset, 10, epochs=1), Reader(dataset, epochs=1)):  # they want samples
        assert [len(read(other)), len(dataset.asked)] == [2 if other.batch_size else 20, 20]


def own(reader):
    """Return the arguments of a reader of images but its dataset."""
    return {name: getattr(reader, name) for name in ("batch_size", "shape", "epochs", "shuffle")}


@pytest.mark.parametrize(
    ("says", "error", "message"),
    [
        (["a"] * 10, TypeError, "Stored: __getfiles__ returned a list; expected StoredFiles"),
        (StoredFiles(["a"]), DatasetError, "Stored: __getfiles__ returned 1 samples for 10 indexes"),
        (StoredFiles(["a"] * 10, [1]), DatasetError, "Stored: __getfiles__ returned 1 labels for 10 indexes"),
        (StoredFiles(["nowhere"] * 10, [1] * 10), FileNotFoundError, "nowhere'\nhighway: the error was raised for sample 0 of Stored"),
        (
            StoredFiles(["nowhere"] * 10),
            TypeError,
            "the sample is (bytes); expected (encoded image, label)\nhighway: the error was raised for sample 0",
        ),
    ],
)
def test_a_dataset_that_says_wrongly_which_files_its_samples_are_is_told_so(noise, says, error, message):
    assert message in failure(ImageFileReader(Stored(noise, says), 10, (8, 8), shuffle=False, num_workers=1), error)


def test_a_class_with_samples_of_its_own_is_not_taken_for_the_files_of_another(noise):
    class Grey(ImageFolder):
        def __getitem__(self, number):
            image = io.BytesIO()
            Image.new("L", (8, 8), number).save(image, "PNG")
            return image.getvalue(), 5

    ((images, labels),) = read(ImageFileReader(Grey(str(noise)), 20, (8, 8), epochs=1, shuffle=False))
    assert images[:, 0, 0, 0].tolist() == list(range(20)) and set(labels.tolist()) == {5}


def test_views_are_for_those_that_decode_and_for_no_class_with_samples_of_its_own(noise):
    class Viewed(Stored):
        __getfiles__ = None

        def __getviews__(self, numbers):
            self.asked += numbers
            return [(memoryview(self.changed[number][0]), number) for number in numbers]

    class Other(Viewed):
        def __getitems__(self, numbers):
            return [self.changed[0]] * len(numbers)

    dataset = Viewed(noise)
    mixed = MixedDataset([dataset, list(dataset.changed.values())], [1, 1])
    ((images, labels),) = read(ImageFileReader(dataset, 20, (8, 8), epochs=1, shuffle=False))
    assert labels.tolist() == list(range(20)) == sorted(dataset.asked)
    ((many, twice),) = read(ImageFileReader(mixed, 40, (8, 8), epochs=1, shuffle=False))
    assert twice.tolist() == np.repeat(np.arange(20), 2).tolist() and sorted(dataset.asked) == np.repeat(np.arange(20), 2).tolist()
    np.testing.assert_array_equal(many, np.repeat(images, 2, axis=0))
    for other in (EncodedImageReader(dataset, 10, epochs=1), Reader(dataset, epochs=1)):
        assert [len(read(other)), len(dataset.asked)] == [2 if other.batch_size else 20, 40]
    ((_, labels),) = read(ImageFileReader(Other(noise), 20, (8, 8), epochs=1))
    assert labels.tolist() == [0] * 20


# --- on_error="skip" ---


def bad():
    """Return three samples that cannot be used; the notes on an error stay on it, so that each run has one of its own."""
    return {2: OSError("bad"), 3: None, 11: np.zeros(3)}


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("kind", [Samples, ReadAtOnce])
def test_with_skip_the_next_sample_of_the_order_takes_the_row_of_a_bad_one_and_passports_say_so(workers, kind):
    dataset = kind(20, bad(), named=True)
    with Pipeline([Stage(Reader(dataset, 5, 1, shuffle=False, num_workers=workers), on_error="skip")]) as pipeline:
        found = list(pipeline.stamped())
        stage = pipeline.stats().stages[1]
    rows = [0, 1, 4, 4, 4, *range(5, 11), 12, *range(12, 20)]
    assert [n for item, _ in found for n in item[:, 0].tolist()] == rows
    assert [key for _, p in found for key in p.keys] == [f"k{n}" for n in rows]
    assert [len(item) for item, _ in found] == [5] * 4
    assert (stage.errors, stage.counters["skipped"]) == (3, 3)


def test_with_skip_a_bad_sample_is_left_out_where_there_are_no_batches():
    found = stamped(Reader(Samples(20, {2: OSError(), 3: None}, named=True), epochs=1, shuffle=False), on_error="skip")
    left = [number for number in range(20) if number not in (2, 3)]
    assert [(int(item[0]), p.index, p.keys) for item, p in found] == [(n, n, (f"k{n}",)) for n in left]


def test_with_skip_a_bad_sample_is_counted_and_reported_once_in_each_epoch(caplog):
    reader = Reader(Samples(20, {7: OSError("disk on fire")}), 4, 3, rank=0, world_size=3)  # 7 may be read twice
    with Pipeline([Stage(reader, on_error="skip")]) as pipeline:
        list(pipeline.stamped())
        assert pipeline.stats().stages[1].errors == pipeline.stats().stages[1].counters["skipped"] <= 3
    alone = Reader(Samples(20, {7: OSError("disk on fire")}), 4, 3)
    with Pipeline([Stage(alone, on_error="skip")]) as pipeline:
        list(pipeline.stamped())
        assert pipeline.stats().stages[1].errors == 3
    assert "OSError: disk on fire; highway: the error was raised for sample 7 of Samples" in caplog.text


def test_with_skip_a_budget_of_errors_ends_the_run():
    error = failure(Reader(Samples(20, bad()), 5, epochs=1), (OSError, TypeError, ValueError), on_error="skip", max_errors=2)
    assert error.count("max_errors=2 is exceeded: this is error 3") == error.count("is exceeded") == 1


@pytest.mark.parametrize("epochs", [1, None])
@pytest.mark.parametrize("batch_size", [None, 1, 5, 40])
@pytest.mark.parametrize("world_size", [1, 3])
def test_with_skip_a_dataset_of_bad_samples_alone_is_an_error(epochs, batch_size, world_size):
    dataset = Samples(20, dict.fromkeys(range(20), OSError("disk on fire")))
    error = failure(Reader(dataset, batch_size, epochs, rank=0, world_size=world_size), DatasetError, on_error="skip")
    of = "7 samples of rank 0" if batch_size is None and world_size > 1 else "20 samples"
    assert error.startswith(f"Samples: none of its {of} can be used; the last error: OSError: disk on fire")


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    ("batch_size", "expected"), [(1, [[1], [2], [4], [4], [5], [6]]), (2, [[1, 2], [4, 4], [5, 6]]), (6, [[1, 2, 4, 4, 5, 6]])]
)
def test_with_skip_a_sample_that_no_batch_takes_is_replaced_by_one_that_is_in_the_batch_already(batch_size, expected, workers):
    reader = Reader([1, 2, 2**40, 4, 5, 6], batch_size, epochs=1, shuffle=False, num_workers=workers)  # 2**40 is no int32
    with Pipeline([Stage(reader, on_error="skip")]) as pipeline:
        assert [batch.tolist() for batch in pipeline] == expected


def test_with_skip_samples_of_which_no_two_are_alike_are_an_error_and_not_batches_of_copies():
    dataset = [(np.zeros(number + 1),) for number in range(6)]
    assert "none of its 6 samples can be used" in failure(Reader(dataset, 2, 1), DatasetError, on_error="skip")


def test_with_skip_every_rank_still_has_as_many_batches_as_the_others():
    dataset = Samples(24, {number: np.zeros(3) for number in range(0, 24, 4)})
    lengths = {len(read(Reader(dataset, 2, 2, rank=rank, world_size=3), on_error="skip")) for rank in range(3)}
    assert lengths == {8}


@pytest.mark.parametrize(
    ("label", "message"), [(np.float64(2.7), "the label is .*2.7.*; expected a whole number"), (2**40, "int32"), ("cat", "cat")]
)
def test_a_label_that_is_no_whole_number_is_an_error_and_no_other_number(label, message):
    data, _ = ImageFolder("highway:photos/val")[0]
    good = [{"image": data, "label": np.float64(2)}, {"img": data, "label": np.int64(3)}]
    assert [labels.tolist() for _, labels in Pipeline([ImageFileReader(good, 1, (8, 8), shuffle=False, epochs=1)])] == [[2], [3]]
    with pytest.raises(Exception, match=message):
        list(Pipeline([ImageFileReader([{"image": data, "label": label}], 1, (8, 8), epochs=1)]))
