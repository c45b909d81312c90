"""The notebooks run from their first cell to their last, and are stored without outputs."""

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
NEEDED = {"first_steps": [], "pytorch": ["torch"], "keras": ["keras"]}


def test_the_notebooks_are_stored_without_outputs():
    found = {path.stem: json.loads(path.read_text())["cells"] for path in NOTEBOOKS.glob("*.ipynb")}
    assert found.keys() == NEEDED.keys()
    for name, cells in found.items():
        assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == [], name


def require(*packages):
    for package in packages:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed: notebooks are run by tox -e adapters-torch and adapters-tf")


@pytest.mark.slow
@pytest.mark.parametrize("name", NEEDED)
def test_a_notebook_runs(name, tmp_path, popen):
    require("nbclient", "ipykernel", *NEEDED[name])
    process = popen([sys.executable, "-c", RUN, str(NOTEBOOKS / f"{name}.ipynb")], cwd=tmp_path)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    if NEEDED[name]:
        assert float(re.findall(r"^accuracy ([\d.]+)$", out, re.M)[-1]) > 0.8
    else:
        assert "the same: True" in out and "another seed: False" in out and "division by zero" in out


PAGE = [
    """
import json, time, urllib.request
import numpy as np
from highway import Pipeline

def batches():
    while True:
        yield {"image": np.zeros((4, 8, 8, 3), np.uint8), "label": np.arange(4)}

pipeline = Pipeline([batches()])
page = pipeline.dashboard()
page
""",
    """
def fetch(path):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(page.url + path, timeout=30) as answer:
        return json.loads(answer.read())

taken, until, seen, shown = iter(pipeline), time.monotonic() + 60, {}, {}
while time.monotonic() < until and not (seen.get("picture") and shown.get("roles") and shown["roles"][0]["rate"]):
    next(taken)  # a notebook's loop, while the page is looked at
    seen, shown = fetch("look.json?place=0"), fetch("now.json")
print(shown["roles"][0]["name"], [field["name"] for field in seen["fields"]], shown["wait"]["of"])
""",
    """
page.close()
pipeline.stop()
try:
    fetch("now.json")
except OSError as error:
    print("closed")
""",
]


@pytest.mark.slow
def test_a_pipeline_in_a_notebook_shows_its_page_as_a_link(tmp_path, popen):
    require("nbclient", "ipykernel")
    cells = [
        {"cell_type": "code", "id": f"c{number}", "source": source, "metadata": {}, "outputs": []} for number, source in enumerate(PAGE)
    ]
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell | {"execution_count": None} for cell in cells]}
    (tmp_path / "page.ipynb").write_text(json.dumps(notebook))
    process = popen([sys.executable, "-c", RUN, str(tmp_path / "page.ipynb")], cwd=tmp_path)
    out, error = process.communicate(timeout=200)
    assert process.returncode == 0, error
    (url,) = re.findall(r"^dashboard at (http://127\.0\.0\.1:\d+/)$", out, re.M)
    assert f'<a href="{url}" target="_blank" rel="noopener">dashboard at {url}</a>' in out
    assert "pipeline ['image', 'label'] pipeline" in out and out.endswith("closed\n")


RUN = """
import sys
import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(notebook)
NotebookClient(notebook, km=AsyncKernelManager(transport="ipc"), timeout=100, resources={"metadata": {"path": "."}}).execute()
for cell in notebook.cells:
    for output in cell.get("outputs", []):
        print(output.get("text", "") + output.get("data", {}).get("text/html", ""), end="")
"""
