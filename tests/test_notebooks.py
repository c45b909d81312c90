"""The notebooks run from their first cell to their last, and are stored without outputs."""

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from chromium import chromium  # noqa: F401  # a fixture
from waiting import wait_until

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
import pathlib
import numpy as np
from highway import Pipeline

def batches():
    while True:
        yield {"image": np.full((4, 8, 8, 3), 200, np.uint8), "label": np.arange(4)}

pipeline = Pipeline([batches()])
page = pipeline.dashboard()
page
""",
    """
pathlib.Path("address").write_text(page.url)
for batch in pipeline:  # a notebook's loop, while somebody looks at the page
    if pathlib.Path("looked").exists():
        break
print("looked at")
""",
    """
pipeline.stop()
page.close()
pathlib.Path("closed").touch()
""",
]


@pytest.mark.slow
def test_the_page_of_a_pipeline_in_a_notebook_in_a_browser(chromium, tmp_path, popen):  # noqa: F811
    require("nbclient", "ipykernel")
    cells = [
        {"cell_type": "code", "id": f"c{number}", "source": source, "metadata": {}, "outputs": []} for number, source in enumerate(PAGE)
    ]
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell | {"execution_count": None} for cell in cells]}
    (tmp_path / "page.ipynb").write_text(json.dumps(notebook))
    process = popen([sys.executable, "-c", RUN, str(tmp_path / "page.ipynb")], cwd=tmp_path)
    address = tmp_path / "address"
    wait_until(lambda: process.poll() is not None or (address.exists() and address.read_text().endswith("/")), 200, 0.1)
    assert process.poll() is None, process.communicate()
    chromium.open(url := address.read_text(), height=3000)
    chromium.until("document.getElementById('share').textContent.endsWith('%')", 100)
    chromium.until("document.querySelector('.node .facts').textContent.match(/^[1-9][\\d,.]* items/)", 100)
    chromium.until("document.querySelectorAll('#tiles .image').length == 4", 100)
    assert chromium.texts(".node .role") == ["pipeline"]
    assert [row[0] for row in chromium.rows("#fields")] == ["image", "label"]
    assert chromium.texts("#tiles div:nth-child(2)") == ["0", "1", "2", "3"]
    (tmp_path / "looked").touch()
    wait_until((tmp_path / "closed").exists, 100, 0.1)
    chromium.until("document.getElementById('state').textContent.startsWith('No answer')", 100)
    out, error = process.communicate(timeout=200)
    assert process.returncode == 0, error
    link = f'<a href="{url}" target="_blank" rel="noopener">dashboard at {url}</a>'
    assert out == f"dashboard at {url}\n{link}looked at\n"


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
