"""Each row of the table "Differences from torch's DataLoader" of docs/howto/dataloader.md has a test."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from against_torch import Raising  # noqa: E402
from torch.utils import data  # noqa: E402

from highway import Pipeline  # noqa: E402
from highway.adapters.torch import DataLoader  # noqa: E402
from highway.errors import DatasetError  # noqa: E402

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "howto" / "dataloader.md"
ROWS = {
    "an error of a sample": "test_torch_faults.py::test_an_error_names_its_sample",
    "an error of `worker_init_fn`": "test_torch_faults.py::test_an_error_of_the_workers_start_comes_before_the_first_batch",
    "a dataset that raises `StopIteration` for a sample": "test_torch_differences.py::test_a_stop_iteration_of_a_sample_is_an_error",
    "a worker that dies": (
        "test_torch_faults.py::test_a_worker_that_dies_is_an_error_that_names_worker_signal_and_samples_at_each_later_call"
    ),
    "Ctrl-C inside `next(batches)`, `num_workers=0`": "test_torch_faults.py::test_after_ctrl_c_inside_next_another_next_continues",
    "`DataLoader(pipeline)`": "test_torch_differences.py::test_a_pipeline_is_read_and_refused_by_torch",
    "`iter(loader)`, called by Lightning or Accelerate": (
        "test_torch_trainers.py::test_lightning_asks_for_states_of_the_batch_that_it_trains_with"
    ),
    "large arrays from a `collate_fn` in a worker": (
        "test_torch_slots.py::test_large_arrays_of_an_own_collation_travel_in_shared_memory_too"
    ),
    "datasets for which [threads are the default](#threads)": (
        "test_torch_loader.py::test_threads_are_the_default_of_datasets_that_allow_them_without_functions_of_the_user"
    ),
}


def test_the_page_ends_with_at_most_ten_differences_each_with_a_test():
    last = PAGE.read_text().rpartition("\n## ")[2]
    assert last.startswith("Differences from torch's DataLoader\n")
    rows = [line.split(" | ")[0].removeprefix("| ") for line in last.splitlines() if line.startswith("| ")][1:]
    assert rows == list(ROWS) and len(rows) <= 10
    for test in ROWS.values():
        path, _, name = test.partition("::")
        assert f"\ndef {name}(" in (HERE / path).read_text(), test


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_stop_iteration_of_a_sample_is_an_error(num_workers):
    seen = {}
    for loader in (data.DataLoader, DataLoader):
        batches = seen[loader] = []
        try:
            for batch in loader(Raising(8, 5, StopIteration()), 2, num_workers=num_workers):
                batches.append(batch.tolist())
        except DatasetError as error:
            batches.append(type(error))
    assert seen == {data.DataLoader: [[0, 1], [2, 3]], DataLoader: [[0, 1], [2, 3], DatasetError]}


def test_a_pipeline_is_read_and_refused_by_torch():
    with Pipeline([[(1, 2)] * 4]) as pipeline:
        with pytest.raises(TypeError, match="a Pipeline is not a dataset"):
            list(data.DataLoader(pipeline))
        assert list(DataLoader(pipeline)) == [(1, 2)] * 4
