"""Mistakes that raise no error by themselves are warned of once, and the warning can be switched off."""

import copy
import logging
import random
from collections import deque

import numpy as np
import pytest
from process_maps import Counts, Draws, Recent, counts_in_a_closure, counts_in_a_global, opens_once, square

from highway import Pipeline, Stage
from highway.modules import Batch, Cache, Concat, Mix, Noise, Processes, Reader, Repeat, Shuffle, Take


def add_one(item):
    image = item[0]
    image += 1
    return item


def add_one_to_each(batch):
    for image in batch[0]:
        image += 1
    return batch


def relabel(item):
    item["label"] = 1
    return item


@pytest.fixture
def switched_off():
    logger = logging.getLogger("highway.mistakes")
    logger.disabled = True
    yield
    logger.disabled = False


def arrays():
    return [(np.zeros(3), n) for n in range(20)]


class Tensor:
    """An array as tensors of other packages are: it has their protocol alone."""

    def __init__(self):
        self._values = np.zeros(3)

    def __dlpack__(self, **options):
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._values.__dlpack_device__()

    def __iadd__(self, number):
        self._values += number
        return self


@pytest.mark.parametrize(
    ("data", "stages", "name"),
    [
        (arrays(), [add_one], "add_one"),
        (arrays(), [lambda item: item, Stage(add_one, num_workers=3)], "add_one"),
        ([{"image": np.zeros(3)} for _ in range(9)], [relabel], "relabel"),
        (np.zeros((9, 2, 3)), [add_one], "add_one"),
        (deque(arrays()), [add_one], "add_one"),
        ([(Tensor(), n) for n in range(9)], [add_one], "add_one"),
    ],
)
def test_a_map_that_writes_into_the_users_own_list_is_warned_of_once(caplog, data, stages, name):
    assert len(list(Pipeline([data, *stages]))) == len(data)
    assert 1 <= len(caplog.records) <= 3  # workers that began at once
    assert f"the map {name} writes into its input" in caplog.text and f"Pipeline([..., copy.deepcopy, {name}" in caplog.text
    assert "logging.getLogger('highway.mistakes').disabled = True" in caplog.text


@pytest.mark.parametrize("stages", [[lambda item: (item[0] + 1, 0)], [copy.deepcopy, add_one], [lambda item: [item[0].copy()], add_one]])
def test_a_map_that_writes_into_arrays_of_its_own_is_not_warned_of(caplog, stages):
    data = arrays()
    assert len(list(Pipeline([data, *stages]))) == 20
    assert not caplog.records and data[0][0].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("reader", "stages", "name"),
    [
        (Reader(arrays(), epochs=1), [add_one], "add_one"),
        (Reader(np.zeros((9, 2, 3)), epochs=1), [add_one], "add_one"),
        (Reader(arrays(), epochs=1, seed=3, num_workers=2), [lambda item: item, Stage(add_one, num_workers=2)], "add_one"),
        (Reader([{"image": np.zeros(3)} for _ in range(9)], epochs=1, shuffle=False), [relabel], "relabel"),
        (Reader([(np.zeros(n), n) for n in range(1, 9)], 4, epochs=1, ragged="list"), [add_one_to_each], "add_one_to_each"),
        (
            Reader([(np.zeros(n), n) for n in range(1, 9)], 4, epochs=1, ragged="list"),
            [Stage(add_one_to_each, num_workers=2)],
            "add_one_to",
        ),
    ],
)
def test_a_map_that_writes_into_the_users_own_list_behind_a_reader_is_warned_of_once(caplog, reader, stages, name):
    list(Pipeline([reader, *stages]))
    assert 1 <= len(caplog.records) <= 3
    assert f"the map {name}" in caplog.text and "writes into its input" in caplog.text
    assert f"Pipeline([..., copy.deepcopy, {name}" in caplog.text


@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_of_a_resumed_reader_warns_of_written_input(caplog, rank):
    def pipeline():
        return Pipeline([Reader(arrays(), epochs=2, rank=rank, world_size=2, seed=1), Stage(add_one, name="add")])

    with pipeline() as first:
        items = iter(first)
        for _ in range(5):
            next(items)
        state = first.state_dict()
    caplog.clear()
    with pipeline() as second:
        second.load_state_dict(state)
        assert len(list(second)) == 5
    assert 1 <= len(caplog.records) <= 3 and "the map add writes into its input" in caplog.text


@pytest.mark.parametrize(
    ("batch_size", "stages"),
    [
        (None, [lambda item: (item[0] + 1, 0)]),
        (None, [copy.deepcopy, add_one]),
        (4, [add_one]),  # batches are arrays of their own
    ],
)
def test_a_map_behind_a_reader_that_writes_into_arrays_of_its_own_is_not_warned_of(caplog, batch_size, stages):
    data = arrays()
    list(Pipeline([Reader(data, batch_size, epochs=1), *stages]))
    assert not caplog.records and all(image.tolist() == [0, 0, 0] for image, _ in data)


class Own:
    """A dataset that returns its own arrays."""

    def __init__(self):
        self.images = np.zeros((20, 3))

    def __len__(self):
        return 20

    def __getitem__(self, number):
        return self.images[number], number


class OwnItems:
    def __init__(self):
        self.images = list(np.zeros((20, 3)))

    def __iter__(self):
        for image in self.images:
            yield image[:2], 0


class Fresh:
    """A dataset that makes new arrays, and refers to many other objects."""

    def __init__(self):
        self.paths, self.mean = [(str(n), n) for n in range(100_000)], np.zeros(3)

    def __len__(self):
        return 20

    def __getitem__(self, number):
        return np.zeros(3), number


DATA = arrays()


def of_global():
    yield from DATA


def of(data):
    for item in data:
        kept = item
        yield kept


def new_views():
    for number in range(20):
        image = np.zeros((3, 4))
        item = image.T, number
        yield item


@pytest.mark.parametrize(
    ("stages", "holder"),
    [
        (lambda: [arrays(), Shuffle(4), add_one], "list"),
        (lambda: [Mix([new_views, arrays()]), add_one], "Mix"),
        (lambda: [Concat([arrays(), arrays()]), Take(9), add_one], "Concat"),
        (lambda: [arrays(), Repeat(times=2), add_one], "list"),
        (lambda: [arrays(), Batch(4, as_list=True), add_one_to_each], "list"),
        (lambda: [iter(arrays()), add_one], "list_iterator"),
        (lambda: [map(add_one, arrays()), Shuffle(3), Stage(lambda item: item, name="same"), add_one], "map"),
        (lambda: [of_global, add_one], "of_global"),
        (lambda: [of(arrays()), lambda item: (item[0][1:], 0), add_one], "generator"),
        (lambda: [OwnItems(), add_one], "OwnItems"),
        (lambda: [Reader(Own(), epochs=1), add_one], "Reader"),
        (lambda: [Reader(Own(), epochs=1), Cache(epochs=1), Shuffle(3), add_one], "Reader"),
    ],
)
def test_a_map_that_writes_into_what_an_earlier_stage_holds_is_warned_of_once(caplog, stages, holder):
    list(Pipeline(stages()))
    assert caplog.text.count("writes into its input") == 1
    assert "the map add_one" in caplog.text and f"which the stage {holder}" in caplog.text


@pytest.mark.parametrize(
    "stages",
    [
        lambda: [new_views, add_one],
        lambda: [new_views(), Shuffle(3), add_one],
        lambda: [zip((np.zeros(3) for _ in range(20)), range(20), strict=True), add_one],
        lambda: [Reader(Fresh(), epochs=1), add_one],
        lambda: [Reader(Own(), 4, epochs=1), add_one],
        lambda: [arrays(), Batch(4), add_one],
        lambda: [arrays(), copy.deepcopy, Shuffle(4), add_one],
        lambda: [Noise((4, 4, 3)), Take(9), add_one],
        lambda: [arrays(), Stage(copy.deepcopy, num_workers=2), Batch(4, as_list=True), add_one_to_each],
    ],
)
def test_a_map_that_writes_into_what_nothing_else_holds_is_not_warned_of(caplog, stages):
    list(Pipeline(stages()))
    assert not caplog.records


def test_a_list_that_grows_while_a_reader_reads_it_ends_no_run_by_the_check_for_written_input(caplog):
    data = arrays()

    def grow(item):
        data.append(item)
        return item

    assert len(list(Pipeline([Reader(data, epochs=1), grow]))) == 20
    assert not caplog.records


def test_the_warning_of_written_input_can_be_switched_off(caplog, switched_off):
    list(Pipeline([arrays(), add_one]))
    assert not caplog.records


def test_a_map_that_counts_in_each_process_by_itself_is_warned_of_once(capfd):
    assert list(Pipeline([range(20), Processes([Counts()], 2)])) == list(range(20))
    written = capfd.readouterr().err
    assert written.count("Counts changes its attribute seen, its attribute labels with an item, but each process has its own copy") == 1
    assert "count in a stage before or after Processes" in written


def test_a_map_that_collects_in_a_deque_or_a_counter_is_warned_of(capfd):
    list(Pipeline([range(1, 21), Processes([Recent()], 2)]))
    assert capfd.readouterr().err.count("Recent changes its attribute last, its attribute often with an item") == 1


@pytest.mark.parametrize("own", [np.random.default_rng(0), np.random.RandomState(0), random.Random(0)], ids=lambda own: type(own).__name__)
def test_a_map_whose_copies_draw_the_same_numbers_in_each_process_is_warned_of(capfd, own):
    list(Pipeline([range(20), Processes([Draws(own)], 2)]))
    written = capfd.readouterr().err
    assert (
        written.count("Draws draws from its own generator, its attribute own. Each process has a copy of this generator in the same state")
        == 1
    )
    assert "take the generator as an argument, rng" in written


@pytest.mark.parametrize(
    ("op", "variable"), [(counts_in_a_global, "the global variable _seen"), (counts_in_a_closure, "the outer variable seen")]
)
def test_a_map_that_counts_in_a_variable_outside_of_its_function_is_warned_of_once(capfd, op, variable):
    assert list(Pipeline([range(20), Processes([op], 2)])) == list(range(20))
    assert capfd.readouterr().err.count(f"changes {variable} with an item, but each process has its own copy") == 1


def test_what_is_opened_once_in_each_process_is_not_warned_of(capfd):
    list(Pipeline([range(20), Processes([opens_once], 2)]))
    assert "changes" not in capfd.readouterr().err


def test_counting_in_one_process_and_maps_without_state_are_not_warned_of(capfd):
    list(Pipeline([range(20), Processes([Counts()], 1)]))
    list(Pipeline([range(20), Processes([square], 2)]))
    assert "changes its attribute" not in capfd.readouterr().err


def test_the_warning_of_counts_can_be_switched_off(capfd, switched_off):
    list(Pipeline([range(20), Processes([Counts()], 2)]))
    assert "changes its attribute" not in capfd.readouterr().err
