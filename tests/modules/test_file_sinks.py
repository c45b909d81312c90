"""Sinks that write samples into files of a format."""

import os
import re
from importlib.util import find_spec

import numpy as np
import pytest
from waiting import wait_until

from highway import Passport, Pipeline, Stage, Stamped
from highway.datasets import HDF5, LMDB, MDS, ArrayRecord, Arrow, LevelDB, Npz, Parquet, TFRecord
from highway.errors import ConfigError, ItemError, PipelineError
from highway.modules import (
    ArrayRecordSink,
    ArrowSink,
    Batch,
    HDF5Sink,
    HDF5Source,
    LevelDBSink,
    LevelDBSource,
    LMDBSink,
    LMDBSource,
    MDSSink,
    NpzSink,
    ParquetSink,
    Reader,
    Rename,
    ShardSink,
    TFRecordSink,
    TFRecordSource,
    Unbatch,
)

SINKS = [
    (NpzSink, ".npz", Npz),
    (TFRecordSink, ".tfrecord", lambda path: TFRecord(path, example=True)),
    (ParquetSink, ".parquet", Parquet),
    (ArrowSink, ".arrow", Arrow),
    (MDSSink, ".mds", MDS),
    *([(ArrayRecordSink, ".array_record", lambda path: ArrayRecord(path, example=True))] if find_spec("array_record") else []),
    (HDF5Sink, ".h5", HDF5),
    (LMDBSink, ".mdb", LMDB),
    *([(LevelDBSink, ".leveldb", LevelDB)] if find_spec("plyvel") else []),  # which has no wheel for Python 3.13
]
SOURCES = [
    (TFRecordSource, TFRecordSink),
    (HDF5Source, HDF5Sink),
    (LMDBSource, LMDBSink),
    *([(LevelDBSource, LevelDBSink)] if find_spec("plyvel") else []),
]
NUMBERED = [sink for sink in SINKS if sink[0] not in (LMDBSink, LevelDBSink, MDSSink)]


def samples(count, keys=True):
    for number in range(count):
        item = {"x": np.full(3, number, np.float32), "label": np.int64(number % 3)}
        yield Stamped(item, Passport(2, number, keys=(f"k{number}",) if keys else ()))


@pytest.mark.parametrize(("sink", "suffix", "dataset"), SINKS)
def test_the_samples_and_keys_come_back(tmp_path, sink, suffix, dataset):
    path = str(tmp_path / "deep" / f"a{suffix}")
    Pipeline([list(samples(10)), sink(path)]).run()
    found = dataset(path)
    assert list(found.keys) == [f"k{number}" for number in range(10)]
    for number, sample in enumerate(found):
        assert set(sample) == {"x", "label"} and sample["x"].tolist() == [number] * 3 and sample["label"] == number % 3
        assert sample["x"].dtype == np.float32 and sample["label"].dtype == np.int64


@pytest.mark.parametrize(("sink", "suffix", "dataset"), NUMBERED)
def test_several_files_have_so_many_samples_each(tmp_path, sink, suffix, dataset):
    Pipeline([list(samples(10, keys=False)), sink(str(tmp_path / f"a-%02d{suffix}"), max_samples=4)]).run()
    assert sorted(os.listdir(tmp_path)) == [f"a-{number:02}{suffix}" for number in range(3)]
    parts = [dataset(str(tmp_path / name)) for name in sorted(os.listdir(tmp_path))]
    assert [key for part in parts for key in part.keys] == [f"002-{number:09}" for number in range(10)]
    assert [len(part) for part in parts] == [4, 4, 2]


@pytest.mark.parametrize(("sink", "suffix", "dataset"), SINKS)
def test_what_fails_or_is_stopped_leaves_nothing(tmp_path, sink, suffix, dataset):
    def failing():
        yield from samples(5)
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        Pipeline([failing, sink(str(tmp_path / f"a{suffix}"))]).run()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("sink", [sink for sink, *_ in SINKS])
def test_a_pipeline_that_is_stopped_leaves_nothing(tmp_path, sink, monkeypatch):
    monkeypatch.setattr("highway.engine.threads.STOP_TIMEOUT", 60.0)
    with Pipeline([lambda: samples(10**9), sink(str(tmp_path / "a"))]) as pipeline:
        pipeline.start()
        wait_until(lambda: pipeline.stats().stages[-1].counters.get("samples", 0) > 20)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(("sink", "suffix", "dataset"), SINKS)
def test_what_is_there_is_not_written_over(tmp_path, sink, suffix, dataset):
    (tmp_path / f"a{suffix}").write_text("mine")
    with pytest.raises(FileExistsError, match=rf"{sink.__name__}: .*a\{suffix}' already exists; move it,"):
        Pipeline([list(samples(2)), sink(str(tmp_path / f"a{suffix}"))]).run()
    assert (tmp_path / f"a{suffix}").read_text() == "mine"


@pytest.mark.parametrize("sink", [*(sink for sink, *_ in SINKS), ShardSink])
def test_batches_are_refused_before_anything_is_read(tmp_path, sink):
    sink = sink(str(tmp_path / ("a-%d" if sink is ShardSink else "a")))
    name = type(sink).__name__
    for stages in ([list(samples(4)), Batch(2)], [Reader([{"x": 1}], 2)], [Reader([{"x": 1}], 2), Stage(dict, num_workers=2)]):
        with pytest.raises(PipelineError, match=rf"{name} writes samples one by one, but \w+\S* makes batches; put Unbatch before {name}"):
            Pipeline([*stages, sink])
    Pipeline([list(samples(4)), Batch(2), Unbatch(), sink]).run()
    assert len(os.listdir(tmp_path)) == 1


@pytest.mark.parametrize("sink", [*(sink for sink, *_ in SINKS), ShardSink])
def test_what_is_no_sample_is_refused(tmp_path, sink):
    sink = sink(str(tmp_path / ("a-%d" if sink is ShardSink else "a")))
    name = type(sink).__name__
    with pytest.raises(TypeError, match=rf"{name}: the item is a tuple; expected a dict, whose keys become the fields: use Rename"):
        Pipeline([[(1, 2)], sink]).run()
    with pytest.raises(ValueError, match=rf"{name}: the item is a batch of 2 samples; put Unbatch before it"):
        Pipeline([[Stamped({"x": 1}, Passport(keys=("a", "b")))], sink]).run()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(("source", "sink"), SOURCES)
def test_a_source_reads_what_a_sink_has_written(tmp_path, source, sink):
    path = str(tmp_path / "a")
    Pipeline([list(samples(10)), sink(path)]).run()
    with Pipeline([source(path, 4, epochs=1, shuffle=False)]) as pipeline:
        found = list(pipeline.stamped())
    assert [batch["x"].shape for batch, _ in found] == [(4, 3), (4, 3), (2, 3)]
    assert [key for _, passport in found for key in passport.keys] == [f"k{number}" for number in range(10)]
    assert source(path).batch_size == 32 and source(path).shuffle is True
    with Pipeline([source(path, None, epochs=1)], seed=3) as one, Pipeline([source(path, None, epochs=1)], seed=3) as same:
        order = [int(sample["x"][0]) for sample in one]
        assert sorted(order) == list(range(10)) != order == [int(sample["x"][0]) for sample in same]


def test_samples_that_are_not_alike_are_no_rows(tmp_path):
    with pytest.raises(ItemError, match=re.escape("field 'x' is int64 (2,), but int64 (3,) in the first sample")):
        Pipeline([[{"x": np.zeros(3, int)}, {"x": np.zeros(2, int)}], NpzSink(str(tmp_path / "a.npz"))]).run()


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("a-%d-%d.npz", {}, "a path, optionally with one place for the file number"),
        ("a-%s.npz", {"max_samples": 0}, "max_samples"),
        ("a.npz", {"max_samples": 5}, "NpzSink: max_samples=5, but 'a.npz' has no place for the file number, such as %06d"),
    ],
)
def test_wrong_parameters_are_said_at_once(path, options, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        NpzSink(path, **options)


def test_a_tuple_gets_names_before_it_is_written(tmp_path):
    rows = [(np.zeros(2, np.float32), number) for number in range(3)]
    Pipeline([Reader(rows, epochs=1, shuffle=False), Rename({0: "x", 1: "label"}), NpzSink(str(tmp_path / "a.npz"))]).run()
    assert [int(sample["label"]) for sample in Npz(str(tmp_path / "a.npz"))] == [0, 1, 2]
