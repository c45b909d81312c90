"""If the disk is full while a file is written, an error is raised and no file remains. The tests limit the size of files."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

WRITE = """
import os, resource, sys
import numpy as np
from highway.datasets.formats import formats

name, kind, *limits = sys.argv[1:]
rng = np.random.default_rng(0)
SAMPLES = {
    "array": {"x": rng.normal(size=(40, 40))},
    "bytes": {"x": rng.bytes(20_000), "t": "text " * 20},
    "text": {"t": "text " * 800},
}
for limit in map(int, limits):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        with formats()[name].write("o", {}) as writer:
            for number in range(600):
                writer.add(f"{number:03}", SAMPLES[kind])
    except OSError as error:
        assert "while writing o" in str(error.__notes__), error
    else:
        raise AssertionError(f"no error, though at most {limit} bytes could be written")
    assert os.listdir() == [] or os.listdir("o") == [], os.listdir()
print("fine")
"""


def write(folder, *arguments):
    # -B: the limit would also cut the bytecode of a module that is imported now, and other processes could not import it
    run = subprocess.run([sys.executable, "-B", "-c", WRITE, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=400)
    assert (run.returncode, run.stdout) == (0, "fine\n"), run.stderr


@pytest.mark.parametrize("kind", ["array", "bytes", "text"])
def test_a_full_disk_does_not_crash_hdf5(tmp_path, kind):
    pytest.importorskip("h5py")
    write(tmp_path, "hdf5", kind, 100, 3000, 100_000, 1_100_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("arrow", "pyarrow"),
        ("leveldb", "plyvel"),
        ("lmdb", "lmdb"),
        ("mds", "numpy"),
        ("npy", "numpy"),
        ("npz", "numpy"),
        ("parquet", "pyarrow"),
        ("shards", "numpy"),
        ("tfrecord", "google_crc32c"),
    ],
)
def test_a_full_disk_is_an_error_in_every_format(tmp_path, name, package):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    write(tmp_path, name, "array", 1000, 1_000_000)
