"""Places for sockets."""

import itertools
import shutil
import tempfile

import pytest

_numbers = itertools.count()


@pytest.fixture
def ipc():
    """A function that returns an unused ``ipc`` location each time; a socket's path must be short, so that it is not in ``tmp_path``."""
    folder = tempfile.mkdtemp(prefix="hw")
    yield lambda: f"{folder}/{next(_numbers)}"
    shutil.rmtree(folder)
