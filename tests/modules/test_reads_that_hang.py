"""``Stage(reader, timeout=, attempts=)``: a sample whose read hangs is read again on another thread, and after its attempts is bad."""

import itertools
import threading
from collections import Counter

import numpy as np
import pytest

from highway import Pipeline, Stage
from highway.datasets import ImageFolder
from highway.modules import ImageFileReader, Reader

SOON = 0.2  # seconds: a sample that takes longer for another reason is only read once more than it has to be
A_SECOND = 1.0  # if the place where it hangs matters, or other samples must not take longer
OFTEN = 1000  # attempts


class Numbers:
    """Arrays of their index. The first reads of some of them hang until they are released."""

    def __init__(self, *hanging, calls=1):
        self.hanging, self.calls, self.seen = hanging, calls, Counter()
        self.released, self.threads, self.arrays = threading.Event(), [], []

    def __len__(self):
        return 12

    def __getitem__(self, number):
        array = np.full(2, number)
        self.seen[number] += 1
        if number in self.hanging and self.seen[number] <= self.calls:
            self.threads.append(threading.current_thread())
            self.arrays.append(array)
            self.released.wait(60)
            array[:] = -1
        return array

    def fingerprint(self):
        return "numbers"

    def release(self):
        self.released.set()
        for thread in self.threads:
            thread.join(60)


class ManyNumbers(Numbers):
    """Reads several numbers at once, which hangs if one of them is among ``hanging``."""

    asked = 0

    def __getitems__(self, numbers):
        self.asked += 1
        if set(numbers) & set(self.hanging):
            self.threads.append(threading.current_thread())
            self.released.wait(60)
        return [np.full(2, number) for number in numbers]


@pytest.fixture
def numbers():
    """Make a dataset, and release it at the end."""
    made = []

    def make(*hanging, kind=Numbers, **options):
        made.append(kind(*hanging, **options))
        return made[-1]

    yield make
    for one in made:
        one.release()


def read(dataset, batch_size=4, reader=Reader, **settings):
    with Pipeline([Stage(reader(dataset, batch_size, epochs=1, shuffle=False, num_workers=2), **settings)]) as pipeline:
        items = [np.asarray(item).tolist() for item in pipeline]
        return items, pipeline.stats().stages[1]


EXPECTED = [[[number] * 2 for number in range(first, first + 4)] for first in (0, 4, 8)]


@pytest.mark.parametrize("batch_size", [4, None])
def test_a_sample_whose_read_hangs_is_read_again(numbers, batch_size):
    items, stats = read(numbers(5), batch_size, timeout=SOON, attempts=OFTEN)
    assert items == (EXPECTED if batch_size else list(itertools.chain(*EXPECTED)))
    assert stats.counters["abandoned_threads"] >= 1
    assert stats.errors == stats.counters["skipped"] == 0


def test_what_a_read_that_hangs_writes_later_is_in_no_batch(numbers):
    dataset = numbers(5)
    with Pipeline([Stage(Reader(dataset, 4, epochs=1, shuffle=False), timeout=SOON, attempts=OFTEN)]) as pipeline:
        batches = list(pipeline)
        dataset.release()
        assert dataset.arrays[0].tolist() == [-1, -1]
        assert [batch.tolist() for batch in batches] == EXPECTED


@pytest.mark.slow
def test_after_its_attempts_an_error_names_the_sample_and_where_it_hangs(numbers):
    with pytest.raises(TimeoutError) as caught:
        read(numbers(*range(12), calls=OFTEN), timeout=A_SECOND, attempts=2)
    assert "of Numbers has taken longer than timeout=1 s in each of 2 attempts" in str(caught.value)
    assert str(caught.value).startswith("Reader.read: sample ")
    notes = "\n".join(caught.value.__notes__)
    assert "called from __getitem__, line " in notes and "test_reads_that_hang.py" in notes
    assert "in stage 'Reader.read'" in notes


def test_a_warning_names_the_sample_that_is_read_again(numbers, caplog):
    read(numbers(5), timeout=A_SECOND, attempts=OFTEN)
    text = next(message for message in caplog.messages if "sample 5 of Numbers" in message)
    assert "sample 5 of Numbers has taken longer than timeout=1 s; attempt 2 of 1000 begins on another thread" in text
    *_, last = text.split(", called from ")
    assert last.startswith("__getitem__, line ") and last.endswith("test_reads_that_hang.py")


@pytest.mark.slow
def test_another_sample_takes_the_place_of_a_sample_that_is_skipped(numbers):
    items, stats = read(numbers(5, calls=OFTEN), timeout=A_SECOND, attempts=2, on_error="skip")
    assert items == [EXPECTED[0], [[4, 4], [6, 6], [6, 6], [7, 7]], EXPECTED[2]]
    assert stats.errors == stats.counters["skipped"] == 1


def test_if_several_samples_at_once_take_too_long_they_are_read_one_by_one(numbers, caplog):
    dataset = numbers(5, kind=ManyNumbers, calls=0)
    items, stats = read(dataset, timeout=SOON, attempts=OFTEN)
    assert items == EXPECTED
    assert dataset.asked >= 1 and dataset.seen[5] >= 1
    assert stats.errors == 0
    assert any("__getitems__ of ManyNumbers for" in text and "; the samples are read one by one." in text for text in caplog.messages)


class Files:
    """Images, whose files must not be read after ``__getitem__`` has returned."""

    def __init__(self):
        self.folder = ImageFolder("highway:photos/val")

    def __len__(self):
        return len(self.folder)

    def __getitem__(self, number):
        return self.folder[number]

    def __getfiles__(self, numbers):
        raise AssertionError("the paths of files")


def test_files_of_images_are_read_within_the_limit_and_give_the_same_batches():
    def images(dataset, **settings):
        with Pipeline([Stage(ImageFileReader(dataset, 8, (16, 16), epochs=1), **settings)], seed=1) as pipeline:
            return [image for image, _ in pipeline]

    for one, other in zip(images(ImageFolder("highway:photos/val")), images(Files(), timeout=600), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_run_resumes_exactly_while_a_sample_is_read_again(numbers):
    def pipeline(dataset, **settings):
        return Pipeline([Stage(Reader(dataset, 2, epochs=1, seed=3, num_workers=2), **settings)])

    with pipeline(numbers()) as whole:
        expected = [batch.tolist() for batch in whole]
    with pipeline(numbers(*range(12)), timeout=SOON, attempts=OFTEN) as first:
        items = iter(first)
        begin = [next(items).tolist() for _ in range(2)]
        state = first.state_dict()
    with pipeline(numbers()) as second:
        second.load_state_dict(state)
        assert begin + [batch.tolist() for batch in second] == expected
