"""Pipelines as DataFlows, and DataFlows as sources; with tensorpack itself run by ``tox -e adapters-others``."""

import sys
from pathlib import Path

import numpy as np
import pytest

from highway import Pipeline
from highway.errors import ConfigError, EndOfStream, PipelineError
from highway.modules import Batch, Repeat, Shuffle


def test_without_tensorpack_the_import_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "highway.adapters.tensorpack", raising=False)
    for name in ("tensorpack", "tensorpack.dataflow"):  # another test may have imported it
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=r"^highway\.adapters\.tensorpack needs tensorpack: pip install tensorpack$"):
        import highway.adapters.tensorpack  # noqa: F401


@pytest.fixture
def flows():
    pytest.importorskip("tensorpack", reason="tensorpack is not installed: this is run by tox -e adapters-others")
    from tensorpack import dataflow

    return dataflow


@pytest.fixture
def adapter(flows):
    import highway.adapters.tensorpack as adapter

    return adapter


def test_a_pipeline_is_a_dataflow(flows, adapter):
    samples = [(np.full(3, n), n) for n in range(10)]
    with Pipeline([samples, Repeat(times=3)]) as pipeline:
        flow = flows.BatchData(flows.MapData(adapter.DequeueGenerator(pipeline), lambda point: [point[0] * 2, point[1]]), 5)
        flow.reset_state()
        assert len(flow) == 2
        for _ in range(3):
            epoch = list(flow)
            assert [labels.tolist() for _, labels in epoch] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
            np.testing.assert_array_equal(epoch[1][0][0], [10, 10, 10])
        with pytest.raises(EndOfStream, match="the pipeline has ended"):
            list(flow)


@pytest.mark.parametrize(("item", "datapoint"), [((1, 2), [1, 2]), ([1, 2], [1, 2]), ({"a": 1}, {"a": 1}), (3, [3])])
def test_datapoints_are_lists_or_dicts(adapter, item, datapoint):
    with Pipeline([[item]]) as pipeline:
        assert list(adapter.DequeueGenerator(pipeline)) == [datapoint]


def test_a_length_that_is_not_known_is_said_as_tensorpack_asks_for_it(adapter):
    with Pipeline([lambda: iter([[1]])]) as pipeline, pytest.raises(NotImplementedError):
        len(adapter.DequeueGenerator(pipeline))


def test_errors_are_the_original_ones(flows, adapter):
    def fail(n):
        raise KeyError(n)

    with Pipeline([range(3), fail]) as pipeline, pytest.raises(KeyError) as caught:
        list(flows.MapData(adapter.DequeueGenerator(pipeline), list))
    assert caught.value.__notes__ == ["highway: in stage 'fail', at epoch 0, item 0"]


def test_a_dataflow_is_a_source(flows, adapter):
    flow = flows.DataFromList([[np.full(2, n), n] for n in range(10)], shuffle=True)
    with Pipeline([adapter.DataFlowSource(flow, epochs=3), Batch(4)]) as pipeline:
        assert len(pipeline) == 3
        epochs = [[n for _, labels in pipeline for n in labels.tolist()] for _ in range(3)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(10))] * 3
    assert epochs[0] != epochs[1]


def test_passes_are_left_with_their_loops(flows, adapter):
    flow = flows.DataFromList([[n] for n in range(1000)], shuffle=False)
    with Pipeline([adapter.DataFlowSource(flow, epochs=2)]) as pipeline:
        for _ in pipeline:
            break
        assert [n for [n] in pipeline] == list(range(1000))


def test_there_and_back(flows, adapter):
    flow = flows.FakeData([[8, 8, 3], [1]], 20, random=False)
    with Pipeline([adapter.DataFlowSource(flow), Shuffle(5)]) as pipeline:
        datapoints = list(flows.BatchData(adapter.DequeueGenerator(pipeline), 10))
    assert [[field.shape for field in datapoint] for datapoint in datapoints] == [[(10, 8, 8, 3), (10, 1)]] * 2


def test_a_dataflow_without_datapoints_is_an_error(flows, adapter):
    source = adapter.DataFlowSource(flows.DataFromList([]), epochs=None)
    with Pipeline([source]) as pipeline, pytest.raises(PipelineError, match="DataFromList has no datapoints in epoch 0"):
        list(pipeline)


def test_a_dataflow_as_the_source_of_a_pipeline_names_what_reads_it(flows):
    with pytest.raises(PipelineError, match=r"DataFromList is a DataFlow of tensorpack; use DataFlowSource\(dataflow\), from highway"):
        Pipeline([flows.DataFromList([[1]])])


def test_a_dequeue_generator_has_what_highways_of_2017_had(flows, adapter):
    with Pipeline([[(1, 2), (3, 4)], Repeat(times=2)]) as pipeline:
        flow = adapter.DequeueGenerator(pipeline, 128)
        assert flow.queue_size == 128 and flow.get_size() == flow.size() == 2
        flow.reset_state()
        assert [list(flow.get_data()), list(flow)] == [[[1, 2], [3, 4]]] * 2


@pytest.mark.filterwarnings("ignore:numpy.core:DeprecationWarning")  # tensorpack loads pickles of NumPy 1 as they are
def test_what_the_serializers_of_tensorpack_have_written_is_read_by_themselves(flows, adapter):
    folder = Path(__file__).parents[1] / "data" / "older_systems"
    for flow in (
        flows.LMDBSerializer.load(str(folder / "tensorpack-pickle.mdb"), shuffle=False),
        flows.NumpySerializer.load(str(folder / "tensorpack.npz"), shuffle=False),
    ):
        with Pipeline([adapter.DataFlowSource(flow)]) as pipeline:
            assert [label for _, label in pipeline] == [0, 1, 2]
