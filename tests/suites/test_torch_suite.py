"""The script that runs other people's tests with highway's loader in place of theirs."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from torch_suite import compare, expected_failures, with_our_loader

SCRIPT = Path(__file__).with_name("torch_suite.py")
SUITE = """
from torch.utils.data import (
    Dataset,
    DataLoader,
)

class TestLoader:
    def test_whose(self):
        assert DataLoader.__module__.startswith("torch.")

    def test_batches(self):
        assert len(DataLoader(range(6), 2)) == 3
"""
PAGE = "| test | whose | reason |\n|---|---|---|\n"
ROW = "| `TestLoader::{}` | {} | another module |\n"


def run(*arguments):
    result = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=200)
    return result.returncode, result.stdout + result.stderr


@pytest.fixture
def suite(tmp_path):
    (tmp_path / "test_loader.py").write_text(SUITE)
    (tmp_path / "test_something_else.py").write_text("def test(): assert False\n")
    (tmp_path / "page.md").write_text(PAGE)
    return tmp_path


def test_without_a_folder_it_says_where_the_tests_come_from(tmp_path):
    for arguments in ((), (tmp_path,)):
        code, printed = run(*arguments)
        assert code == 1 and "test/test_dataloader.py" in printed


@pytest.mark.slow
def test_a_failure_that_is_not_listed_and_a_listed_test_that_passes_are_errors(suite):
    assert compare({"A::a": True, "A::b": False, "A::c": True, "A::d": False}, {"A::c": "slow", "A::d": "odd", "A::e": "not run"}) == [
        "new failure: A::a",
        "passes, and is listed: A::d (odd)",
    ]
    code, printed = run(suite, "--expected", suite / "page.md")
    assert code == 1 and "new failure: TestLoader::test_whose" in printed
    assert "1 failed, 1 passed" in printed


@pytest.mark.slow
def test_it_is_a_success_if_the_failures_are_those_that_are_listed(suite):
    (suite / "page.md").write_text(PAGE + ROW.format("test_whose", "ours"))
    assert run(suite, "--expected", suite / "page.md")[0] == 0
    assert run(suite, "--expected", suite / "page.md", "--theirs")[0] == 0


def test_only_the_two_loaders_are_replaced():
    assert with_our_loader("from torch.utils.data import Dataset\n") is None
    source = "from torchdata.stateful_dataloader import Stateful, StatefulDataLoader\nx = 1\n"
    lines = with_our_loader(source).splitlines()
    assert lines == [*source.splitlines()[:1], "from highway.adapters.torch import DataLoader as StatefulDataLoader", "x = 1"]


def test_the_page_lists_a_reason_for_each_failure():
    page = SCRIPT.parents[2] / "docs" / "howto" / "dataloader.md"
    both, theirs = (expected_failures(page, own) for own in (False, True))
    assert theirs.items() <= both.items()
    assert all(len(reason) > 20 for reason in both.values())
