"""Mistakes that raise no error by themselves are warned of once, and the warning can be switched off."""

import copy
import logging

import numpy as np
import pytest
from process_maps import Counts, square

from highway import Pipeline, Stage
from highway.modules import Processes


def add_one(item):
    image = item[0]
    image += 1
    return item


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


@pytest.mark.parametrize(
    ("data", "stages", "name"),
    [
        (arrays(), [add_one], "add_one"),
        (arrays(), [lambda item: item, Stage(add_one, num_workers=3)], "add_one"),
        ([{"image": np.zeros(3)} for _ in range(9)], [relabel], "relabel"),
    ],
)
def test_a_map_that_writes_into_the_users_own_list_is_warned_of_once(caplog, data, stages, name):
    assert len(list(Pipeline([data, *stages]))) == len(data)
    assert 1 <= len(caplog.records) <= 3  # workers that began at once
    assert f"the map {name} writes into its input" in caplog.text and "Pipeline([data, copy.deepcopy, ...])" in caplog.text
    assert "logging.getLogger('highway.mistakes').disabled = True" in caplog.text


@pytest.mark.parametrize("stages", [[lambda item: (item[0] + 1, 0)], [copy.deepcopy, add_one], [lambda item: [item[0].copy()], add_one]])
def test_a_map_that_writes_into_arrays_of_its_own_is_not_warned_of(caplog, stages):
    data = arrays()
    assert len(list(Pipeline([data, *stages]))) == 20
    assert not caplog.records and data[0][0].tolist() == [0, 0, 0]


def test_the_warning_of_written_input_can_be_switched_off(caplog, switched_off):
    list(Pipeline([arrays(), add_one]))
    assert not caplog.records


def test_a_map_that_counts_in_each_process_by_itself_is_warned_of_once(capfd):
    assert list(Pipeline([range(20), Processes([Counts()], 2)])) == list(range(20))
    written = capfd.readouterr().err
    assert written.count("Counts changes its attribute seen, labels with an item, and each process has an object of its own") == 1
    assert "count in a stage before or after Processes" in written


def test_counting_in_one_process_and_maps_without_state_are_not_warned_of(capfd):
    list(Pipeline([range(20), Processes([Counts()], 1)]))
    list(Pipeline([range(20), Processes([square], 2)]))
    assert "changes its attribute" not in capfd.readouterr().err


def test_the_warning_of_counts_can_be_switched_off(capfd, switched_off):
    list(Pipeline([range(20), Processes([Counts()], 2)]))
    assert "changes its attribute" not in capfd.readouterr().err
