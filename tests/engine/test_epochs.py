"""A loop over a pipeline is one epoch, where its source numbers them."""

import threading
import time

import pytest

from highway import Pipeline, Stage, Traits
from highway.engine.stage import Passport, Stamped
from highway.errors import EndOfStream
from highway.modules import Batch, Cache, Duplicate, Identity, Processes, Reader, Repeat, Shuffle, Take, Tee, Unbatch

TEN = list(range(10))


def reader(**settings):
    return Reader(TEN, **{"shuffle": False, **settings})


def double(number):
    return 2 * number


def same(number):
    return number


def epochs_of(pipeline, count):
    return [list(pipeline) for _ in range(count)]


@pytest.mark.parametrize("stages", [[], [same], [Stage(same, num_workers=4)], [Stage(same, num_workers=4, ordered=False)]])
def test_a_loop_is_an_epoch_and_the_next_loop_the_next(stages):
    with Pipeline([reader(epochs=3), *stages]) as pipeline:
        assert [sorted(epoch) for epoch in epochs_of(pipeline, 3)] == [TEN] * 3
        with pytest.raises(EndOfStream, match="the pipeline has ended"):
            list(pipeline)


def test_without_end_there_is_always_another_epoch():
    with Pipeline([reader(epochs=None)]) as pipeline:
        assert epochs_of(pipeline, 5) == [TEN] * 5


def test_the_next_epoch_has_begun_before_it_is_asked_for():
    seen, ahead = [], threading.Event()

    def note(number):
        seen.append(number)
        if len(seen) > 10:
            ahead.set()
        return number

    with Pipeline([reader(epochs=2), note]) as pipeline:
        list(pipeline)
        assert ahead.wait(30)
        threads = {thread.name for thread in threading.enumerate()}
        list(pipeline)
        assert {thread.name for thread in threading.enumerate()} <= threads


@pytest.mark.parametrize("workers", [1, 4])
def test_what_is_left_of_an_epoch_is_not_made(workers):
    made = []
    source = Reader(range(10_000), shuffle=False, epochs=3)
    with Pipeline([source, Stage(lambda number: made.append(number) or number, num_workers=workers)]) as pipeline:
        for number in pipeline:
            if number == 3:
                break
        assert pipeline.epoch == 1
        assert len(list(pipeline)) == 10_000
        assert len(made) < 11_000
        assert pipeline.epoch == 2
        assert next(iter(pipeline)) == 0
        with pytest.raises(EndOfStream):
            list(pipeline)


class Sent:
    """Three epochs of four items that somebody else makes, as those of a link."""

    def __highway__(self):
        return Traits(numbers_epochs=True, skips_epochs=False)

    def __iter__(self):
        for epoch in range(3):
            for index in range(4):
                yield Stamped((epoch, index), Passport(epoch, index))


@pytest.mark.parametrize(("left", "next_loop"), [(2, [(0, 2), (0, 3)]), (4, [(1, 0), (1, 1), (1, 2), (1, 3)])])
def test_where_epochs_cannot_be_left_out_the_next_loop_is_the_rest_or_the_next_epoch(left, next_loop):
    with Pipeline([Sent()]) as pipeline:
        assert len([item for _, item in zip(range(left), pipeline)]) == left
        assert list(pipeline) == next_loop


def test_a_batch_that_is_being_filled_when_its_epoch_is_left_holds_nothing_up():
    with Pipeline([Reader(range(1000), 8, shuffle=False, epochs=2, num_workers=4), Batch(3)]) as pipeline:
        next(iter(pipeline))
        assert sum(batch.size for batch in pipeline) == 1000


def test_a_reader_that_was_left_in_its_last_epoch_ends():
    with Pipeline([Reader(range(1000), 8, epochs=1, num_workers=4)]) as pipeline:
        next(iter(pipeline))
        with pytest.raises(EndOfStream):
            next(iter(pipeline))


def test_dequeue_and_sinks_are_one_stream():
    with Pipeline([reader(epochs=2)]) as pipeline:
        found = [pipeline.dequeue() for _ in range(20)]
        with pytest.raises(EndOfStream):
            pipeline.dequeue()
    assert found == TEN * 2
    got = []

    class Sink:
        def consume(self, items):
            got.extend(items)

    Pipeline([reader(epochs=2), Sink()]).run()
    assert got == TEN * 2


def test_a_loop_after_dequeue_is_the_rest_of_that_epoch():
    with Pipeline([reader(epochs=2)]) as pipeline:
        assert pipeline.dequeue() == 0
        assert list(pipeline) == TEN[1:]
        assert pipeline.dequeue() == 0 and pipeline.epoch == 1
        assert list(pipeline) == TEN[1:]


def test_the_epoch_says_where_it_is():
    with Pipeline([reader(epochs=3)]) as pipeline:
        assert pipeline.epoch == 0
        for number in range(2):
            for _ in pipeline:
                assert pipeline.epoch == number
            assert pipeline.epoch == number + 1


def test_sources_without_epochs_behave_as_ever():
    with Pipeline([range(5)]) as pipeline:
        for number in pipeline:
            if number == 2:
                break
        assert list(pipeline) == [3, 4]
        with pytest.raises(EndOfStream):
            list(pipeline)
    with Pipeline([[]]) as pipeline:
        assert list(pipeline) == []


@pytest.mark.parametrize(
    ("stages", "epoch"),
    [
        ([Batch(4)], [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]),
        ([Batch(4, drop_last=True)], [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ([Batch(4), Unbatch()], TEN),
        ([Duplicate(2)], sorted(TEN * 2)),
        ([Tee(lambda _: None), Identity()], TEN),
        ([Processes([double], num_processes=2)], list(range(0, 20, 2))),
    ],
)
def test_streams_end_with_the_epoch(stages, epoch):
    with Pipeline([reader(epochs=2), *stages]) as pipeline:
        for found in epochs_of(pipeline, 2):
            assert [value.tolist() if hasattr(value, "tolist") else value for value in found] == epoch


def test_shuffle_mixes_each_epoch_for_itself_and_anew():
    with Pipeline([reader(epochs=3), Shuffle(6)]) as pipeline:
        found = epochs_of(pipeline, 3)
    assert [sorted(epoch) for epoch in found] == [TEN] * 3
    assert len({tuple(epoch) for epoch in found}) == 3


def test_take_counts_over_all_epochs():
    with Pipeline([reader(epochs=None), Take(13)]) as pipeline:
        assert epochs_of(pipeline, 2) == [TEN, [0, 1, 2]]
        with pytest.raises(EndOfStream):
            list(pipeline)


@pytest.mark.parametrize("source", [Repeat(TEN, 3), Repeat(Pipeline([TEN, same]), 3), Repeat(reader(epochs=1), 3)])
def test_each_pass_of_repeat_is_an_epoch(source):
    with Pipeline([source, same]) as pipeline:
        assert epochs_of(pipeline, 3) == [TEN] * 3


@pytest.mark.parametrize(("n", "epochs"), [(25, [10, 5]), (20, [10]), (10, []), (7, [])])
@pytest.mark.parametrize("left", [1, 5, 7])
def test_take_counts_an_epoch_that_was_left_as_a_whole_one(n, epochs, left):
    """Whatever the workers have made when the loop is left."""

    def rest(pipeline):
        found = []
        with pytest.raises(EndOfStream, match="the pipeline has ended"):
            for _ in range(9):
                found.append(len(list(pipeline)))
        return found

    def build():
        return Pipeline([reader(num_workers=2), Stage(same, num_workers=2), Take(n), Duplicate(1)])

    with build() as pipeline:
        assert [number for number, _ in zip(pipeline, range(left))] == TEN[:left]
        state = pipeline.state_dict()
        assert rest(pipeline) == epochs
    with build() as pipeline:
        pipeline.load_state_dict(state)
        assert rest(pipeline) == epochs


def test_what_is_left_of_a_pass_is_not_read():
    read = []

    class Source:
        def __iter__(self):
            for number in range(10_000):
                read.append(number)
                yield number

    with Pipeline([Repeat(Source(), 2)]) as pipeline:
        next(iter(pipeline))
        assert len(list(pipeline)) == 10_000
        assert len(read) < 11_000


def test_epochs_of_a_cache(tmp_path):
    made, numbers = [], list(range(300))
    source = Reader(range(300), shuffle=False, epochs=4)
    with Pipeline([source, lambda n: made.append(n) or n, Cache(shuffle=False, batched=False)]) as pipeline:
        assert epochs_of(pipeline, 4) == [numbers] * 4
    assert made[:300] == numbers and len(made) < 450  # of the next, what was on its way when the cache was finished


def test_a_loop_that_is_left_leaves_no_hole_in_a_cache():
    with Pipeline([Reader(range(500), shuffle=False, epochs=3), Cache(shuffle=False, batched=False)]) as pipeline:
        next(iter(pipeline))
        assert list(pipeline) == list(range(500))
        assert list(pipeline) == list(range(500))


def test_a_pipeline_is_a_source_with_its_epochs():
    with Pipeline([Pipeline([reader(epochs=2), double]), same]) as pipeline:
        assert epochs_of(pipeline, 2) == [[2 * n for n in TEN]] * 2


class Interleaved:
    """Two senders, as a link would mix them."""

    def __highway__(self):
        return Traits(numbers_epochs=True)

    def __iter__(self):
        for epoch, index in [(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (2, 0)]:
            yield Stamped((epoch, index), Passport(epoch, index))


def test_what_comes_late_belongs_to_the_epoch_that_it_comes_in():
    with Pipeline([Interleaved(), Stage(same, num_workers=2)]) as pipeline:
        assert epochs_of(pipeline, 3) == [[(0, 0), (0, 1)], [(1, 0), (0, 2), (1, 1)], [(2, 0)]]


def test_epochs_stay_apart_where_workers_keep_no_order():
    def slow_at_the_end(number):
        if number == 9:
            time.sleep(0.05)  # work, while the other workers could begin the next epoch
        return number

    with Pipeline([reader(epochs=4), Stage(slow_at_the_end, num_workers=4, ordered=False)]) as pipeline:
        assert [sorted(epoch) for epoch in epochs_of(pipeline, 4)] == [TEN] * 4


# --- length ---


@pytest.mark.parametrize(
    ("stages", "length"),
    [
        ([TEN], 10),
        ([reader()], 10),
        ([reader(batch_size=3)], 4),
        ([reader(batch_size=3, drop_last=True)], 3),
        ([reader(batch_size=3, rank=1, world_size=2)], 2),
        ([reader(), same, Batch(4)], 3),
        ([reader(), Batch(4, drop_last=True), Shuffle(2, reuse=3), Duplicate(2), Tee(print)], 12),
        ([reader(), Take(4)], 4),
        ([Repeat(TEN, 3), Batch(4)], 3),
        ([reader(), Batch(4), Repeat(times=2)], 3),
        ([Pipeline([reader(), Batch(4)]), same], 3),
        ([reader(epochs=2), Cache(batched=False)], 10),
        ([reader(epochs=2), Cache(batch_size=4)], 3),
    ],
)
def test_the_length_is_that_of_an_epoch(stages, length):
    with Pipeline(stages) as pipeline:
        assert len(pipeline) == length
        assert len(list(pipeline)) == length


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ([iter(TEN)], "list_iterator does not report its number of items"),
        ([TEN, Unbatch()], "Unbatch does not report how many items it yields for a number of inputs"),
    ],
)
def test_where_the_length_is_not_known_it_says_why(stages, words):
    pipeline = Pipeline(stages)
    with pytest.raises(TypeError, match=words):
        len(pipeline)
    assert bool(pipeline)
    pipeline.stop()


def test_an_iterator_that_is_closed_late_changes_nothing():
    def build():
        return Pipeline([Reader(range(20), epochs=3, shuffle=False)])

    with build() as pipeline:
        late = iter(pipeline)
        next(late)
        assert list(pipeline) == list(range(1, 20))  # the rest of epoch 0
        epoch = iter(pipeline)
        assert [next(epoch) for _ in range(5)] == list(range(5))
        late.close()
        assert pipeline.epoch == 1
        state = pipeline.state_dict()
        assert list(epoch) == list(range(5, 20))
    with build() as pipeline:
        pipeline.load_state_dict(state)
        assert list(pipeline) == list(range(5, 20)) and pipeline.epoch == 2


def test_an_iterator_that_is_used_late_takes_nothing_from_a_later_loop():
    with Pipeline([Reader(range(20), epochs=3, shuffle=False)]) as pipeline:
        late = iter(pipeline)
        next(late)
        list(pipeline)
        epoch = iter(pipeline)
        assert next(epoch) == 0
        assert list(late) == []
        assert list(epoch) == list(range(1, 20))
        assert list(pipeline) == list(range(20))
