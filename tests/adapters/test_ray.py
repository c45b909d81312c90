"""Pipelines as Ray Datasets, and Ray Datasets as sources; with Ray itself run by ``tox -e adapters-others``."""

import json
import os
import subprocess
import sys

import pytest

from highway.errors import ConfigError

pytestmark = pytest.mark.xdist_group("ray")  # whatever starts Ray does so one after another

READ = """
import json, threading
import numpy as np
import ray
from highway import Pipeline
from highway.adapters.ray import RaySource, to_ray_dataset
from highway.modules import Batch, Reader

said = {}
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False
samples = [{"x": np.full((4, 3), n, np.float32), "y": n} for n in range(10)]


def error_of(function):
    try:
        return repr(function())
    except Exception as error:
        return [type(error).__name__, isinstance(error, KeyError), str(error)]


def doubled(batch):
    return {"x": batch["x"] * 2, "y": batch["y"]}


pipelines = [Pipeline([Reader(samples, 3, shuffle=False, epochs=1, rank=rank, world_size=2), doubled]) for rank in range(2)]
dataset = to_ray_dataset(pipelines)
for _ in range(2):
    rows = dataset.take_all()
    said["rows"] = sorted(int(row["y"]) for row in rows), all((row["x"] == 2 * row["y"]).all() for row in rows), rows[0]["x"].shape
said["types"] = [str(column.dtype) for column in dataset.take_batch(3).values()]
said["tuples"] = to_ray_dataset(Pipeline([[(np.arange(2), np.arange(2) * 2.0)]])).take_all() == [{"0": 0, "1": 0.0}, {"0": 1, "1": 2.0}]


def fail(batch):
    raise KeyError("five")


said["error"] = error_of(to_ray_dataset(Pipeline([samples, fail])).take_all)
said["no batch"] = error_of(to_ray_dataset(Pipeline([samples])).take_all)[2]
with Pipeline([range(3)]) as begun:
    begun.dequeue()
    said["begun"] = error_of(lambda: to_ray_dataset(begun))

table = ray.data.from_items([{"n": n, "v": [n, n + 1]} for n in range(10)])
with Pipeline([RaySource(table, 4, epochs=2), lambda batch: batch["n"].tolist()]) as pipeline:
    said["source"] = [sorted(n for batch in pipeline for n in batch) for _ in range(2)]
with Pipeline([RaySource(table, 4, epochs=2, drop_last=True)]) as pipeline:
    for batch in pipeline:
        break
    said["left"] = [batch["n"].shape for batch in pipeline]
said["empty"] = error_of(lambda: list(Pipeline([RaySource(table.filter(lambda row: False), 4)])))
left = [thread.name for thread in threading.enumerate() if thread.name.startswith("highway")]
ray.shutdown()
print(json.dumps([said, left]))
"""


def test_without_ray_the_import_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "highway.adapters.ray", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "ray.data", None)
    with pytest.raises(ConfigError, match=r"^highway\.adapters\.ray needs Ray Data: pip install 'ray\[data\]'$"):
        import highway.adapters.ray  # noqa: F401


@pytest.fixture(scope="module")
def said():
    pytest.importorskip("ray", reason="ray is not installed: this is run by tox -e adapters-others")
    run = subprocess.run(
        [sys.executable, "-c", READ], capture_output=True, text=True, timeout=200, env=os.environ | {"RAY_DEDUP_LOGS": "0"}
    )
    assert run.returncode == 0, run.stderr
    said, left = json.loads(run.stdout.splitlines()[-1])
    assert left == []
    return said


def test_rows_of_all_ranks_are_read_each_time(said):
    assert said["rows"] == [list(range(10)), True, [4, 3]]
    assert said["types"] == ["float32", "int32"]


def test_fields_of_tuples_are_called_by_their_position(said):
    assert said["tuples"] is True


def test_errors_are_of_the_original_type(said):
    name, is_key_error, text = said["error"]
    assert is_key_error and "in stage 'fail', at epoch 0, item 0" in text, name


def test_what_is_no_batch_is_an_error(said):
    assert "to_ray_dataset: an item must be a batch" in said["no batch"]


def test_a_pipeline_that_has_begun_is_an_error(said):
    assert said["begun"][0] == "PipelineError" and "has begun" in said["begun"][2]


def test_each_pass_over_a_ray_dataset_is_an_epoch(said):
    assert said["source"] == [list(range(10))] * 2
    assert said["left"] == [[4], [4]]


def test_a_ray_dataset_without_rows_is_an_error(said):
    assert said["empty"][0] == "PipelineError" and said["empty"][2] == "RaySource: the dataset has no rows in epoch 0"
