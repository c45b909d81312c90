"""What importing highway costs, in fresh interpreters."""

import importlib
import subprocess
import sys

import pytest

from highway.topology.components import PACKAGES


def printed(code):
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()


def test_a_pipeline_on_one_machine_imports_no_sockets_and_no_event_loop():
    assert printed("import sys; from highway.modules import *; print({'zmq', 'asyncio'} & {*sys.modules})") == ["set()"]


@pytest.mark.parametrize("package", PACKAGES)
def test_all_that_is_listed_is_there(package):
    module = importlib.import_module(package)
    assert [name for name in module.__all__ if getattr(module, name).__name__ != name or name not in dir(module)] == []


def test_a_component_is_imported_without_the_others():
    code = "import sys; from highway.modules import Rename; print(*(name for name in sys.modules if name.startswith('highway.modules.')))"
    assert printed(code) == ["highway.modules.maps"]


def test_highway_is_imported_in_little_more_than_the_time_that_numpy_takes():
    """Of 0.1 s, on a machine where that takes 0.05 s. Other programs slow the processor down for a while: one pair without them will do."""
    code = "import time; began = time.process_time(); import {}; print(time.process_time() - began)"
    pairs = (tuple(float(*printed(code.format(name))) for name in ("highway", "numpy")) for _ in range(20))
    assert any(highway < 4 * numpy for highway, numpy in pairs)
