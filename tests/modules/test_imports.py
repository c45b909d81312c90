"""What importing highway costs, in fresh interpreters."""

import subprocess
import sys

import highway.modules


def printed(code):
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()


def test_a_pipeline_on_one_machine_imports_no_sockets():
    assert printed("import sys; from highway.modules import *; print('zmq' in sys.modules)") == ["False"]


def test_all_that_is_listed_is_there():
    assert [name for name in highway.modules.__all__ if not hasattr(highway.modules, name)] == []


def test_highway_is_imported_in_a_quarter_of_a_second():
    code = "import time; began = time.process_time(); import highway; print(time.process_time() - began)"
    assert min(float(*printed(code)) for _ in range(3)) < 0.25
