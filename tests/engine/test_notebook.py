"""Pipelines and statistics in a notebook."""

import itertools
import os
import subprocess
import sys

import pytest

from highway import Pipeline
from highway.engine import notebook

SESSION = """
import threading
import highway.engine.threads
highway.engine.threads.STOP_TIMEOUT = 60.0  # so that no thread is left behind because the machine is slow
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
start = "import itertools; from highway import Pipeline; p = Pipeline([itertools.count(), str])"
cells = [start, "first = p.dequeue()", "p", "p", "p.stats()"]
for cell in cells:
    shell.run_cell(cell, store_history=True).raise_error()
shown = dict(shell.user_ns["_oh"])
assert shown[3] == shown[4] == shell.user_ns["_3"] == "Pipeline(count -> str)", shown
assert "p" in shell.user_ns and [stage.name for stage in shown[5].stages] == ["count", "str"], shown
shell.run_cell("del p", store_history=True)
left = [thread.name for thread in threading.enumerate() if thread.name.startswith("highway")]
assert not left, left
"""


def test_statistics_are_a_table_in_html():
    with Pipeline([range(3), str]) as pipeline:
        assert list(pipeline) == ["0", "1", "2"]
    stats = pipeline.stats()
    page = stats._repr_html_()
    assert page.count("<tr>") == 3
    assert stats.bottleneck in page
    assert pipeline._repr_html_() == f"<p>Pipeline(range -&gt; str)</p>{page}"


def test_names_are_escaped():
    assert "<script>" not in notebook.table([("stage",), ("<script>",)], "a < b")
    assert "<td" in notebook.table([("stage",), ("x",)])


def test_outside_of_ipython_nothing_is_done():
    with Pipeline([itertools.count()]) as pipeline:
        notebook.release(pipeline)


def test_what_ipython_has_shown_does_not_keep_its_threads(tmp_path):
    pytest.importorskip("IPython")
    environment = {**os.environ, "IPYTHONDIR": str(tmp_path)}  # where it writes its history
    done = subprocess.run([sys.executable, "-c", SESSION], env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
