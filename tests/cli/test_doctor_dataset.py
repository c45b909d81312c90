"""``highway doctor --dataset``."""

import pytest

from highway.cli import main
from highway.cli.doctor_dataset import verdict


@pytest.mark.slow
def test_it_measures_threads_and_processes_on_the_users_dataset(capsys):
    pytest.importorskip("torch")
    assert main(["doctor", "--dataset", "torch_datasets:Numbered", "--batch-size", "10", "--num-workers", "1", "--seconds", "0.02"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:2]] == [["1", "processes"], ["1", "threads"]]
    assert all(int(line.split()[2].replace(",", "")) > 0 for line in lines[:2])
    assert "DataLoader(dataset, num_workers=1" in lines[3]


def test_it_says_which_is_better():
    assert verdict(100, 250, 4) == ("Processes are 2.5 times as fast: the dataset holds Python's lock. DataLoader(dataset, num_workers=4)")
    assert verdict(200, 100, 4) == 'Threads are 2.0 times as fast. DataLoader(dataset, num_workers=4, workers="threads")'
    assert verdict(100, 105, 4) == ('Threads are as fast, and need less memory. DataLoader(dataset, num_workers=4, workers="threads")')


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("torch_datasets", "expected MODULE:NAME, such as mymodule:dataset"),
        ("no_such_module:it", "No module named 'no_such_module'"),
        ("json:it", "module 'json' has no attribute 'it'"),
        ("json.decoder:JSONDecoder", "a JSONDecoder has no random access"),
    ],
)
def test_a_name_that_is_none_of_a_dataset_is_refused(name, message, capsys):
    assert main(["doctor", "--dataset", name]) == 2
    assert message in capsys.readouterr().err
