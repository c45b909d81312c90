import os
import resource
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

import highway
from highway.cli import doctor, main
from highway.extras import pip_install
from highway.images.decode import backend


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """A terminal whose lines hold every sentence."""
    monkeypatch.setenv("COLUMNS", "1000")


def found():
    return {finding.topic: finding for finding in doctor.look()}


def test_it_says_what_is_installed_and_in_use(capsys):
    assert main(["doctor"]) == 0
    lines = dict(line.split("  ", 1) for line in capsys.readouterr().out.split("\n\n")[0].splitlines())
    assert lines["highway"].strip().startswith(f"{highway.__version__} in {Path(highway.__file__).parent}")
    assert lines["JPEG decoder"].strip().startswith(backend())
    assert set(lines) >= {
        "python",
        "system",
        "packages",
        "formats",
        "C extension",
        "shm links",
        "cores",
        "BLAS threads",
        "memory",
        "/dev/shm",
        "files",
    }


def test_it_says_which_formats_can_be_read_and_what_the_others_need(monkeypatch):
    versions = {"lmdb": "3.0", "pyarrow": "26.0"}
    monkeypatch.setattr(doctor, "version_of", lambda name: versions.get(name, ""))
    assert found()["formats"].found == (
        "arrow (pyarrow 26.0), lmdb (lmdb 3.0), and with "
        f"{pip_install('tfrecord,arrayrecord,huggingface,hdf5,leveldb,zarr,stores')} the others"
    )
    versions.update(dict.fromkeys(("datasets", "google-crc32c", "array-record", "plyvel", "h5py", "zarr", "obstore"), "1"))
    assert found()["formats"].found.endswith("zarr (zarr 1), stores (obstore 1)")


def test_without_the_fast_packages_it_names_what_to_install(tmp_path):
    for name in ("simplejpeg", "cv2"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError(name={name!r})")
    path = os.pathsep.join([str(tmp_path), str(Path(highway.__file__).parents[1])])
    missing = "import sys; sys.modules['highway.images._jpeg'] = sys.modules['highway.wire.transports.shm._message'] = None"
    code = f"{missing}; from highway.cli import main; sys.exit(main(['doctor']))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "JPEG decoder    pillow" in done.stdout
    advice = done.stdout.split("To be faster:\n")[1].splitlines()
    assert any(f"simplejpeg: {pip_install('fast')}" in line for line in advice)
    assert any("messages over +shm" in line and "C compiler" in line for line in advice)
    assert any(f"OpenCV: {pip_install('fast')}" in line for line in advice)


def test_without_extras_the_formats_are_a_whole_sentence(monkeypatch):
    monkeypatch.setattr(doctor, "version_of", lambda name: "")
    assert found()["formats"].found.startswith("formats that need no further package; with pip install")


def test_few_files_and_a_small_dev_shm_are_named(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 1024))
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: usage(64 << 20, 0, 64 << 20))
    machine = found()
    assert machine["files"].found == "at most 256 open files, 1,024 after `ulimit -n`"
    assert "`ulimit -n 4096`" in machine["files"].advice
    if Path("/dev/shm").is_dir():
        assert "--shm-size=8g" in machine["/dev/shm"].advice


def test_a_quota_on_cores_is_named(monkeypatch):
    monkeypatch.setattr(doctor, "available_cores", lambda: 2)
    monkeypatch.setattr(doctor.os, "cpu_count", lambda: 8)
    cores = found()["cores"]
    assert cores.found == "2 of 8 are usable: the default number of workers is 2"
    assert "This process cannot use 6 cores; extend its CPU affinity" in cores.advice


@pytest.mark.parametrize(("setting", "has_advice"), [("1", False), (None, True)])
def test_threads_of_blas_are_a_matter_of_the_environment(monkeypatch, setting, has_advice):
    monkeypatch.setattr(doctor, "available_cores", lambda: 4)
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)  # what an import finds where it is not installed
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    if setting:
        monkeypatch.setenv("OMP_NUM_THREADS", setting)
    finding = found()["BLAS threads"]
    assert finding.found == ("OMP_NUM_THREADS=1" if setting else "not limited")
    assert bool(finding.advice) is has_advice


def script(folder, name, text):
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def test_it_says_which_package_owns_the_commands_that_tensorcom_has_too(tmp_path):
    script(tmp_path, "tensormon", "#!/usr/bin/python\nimport sys\nfrom highway.cli.streams.mon import main\n")
    script(tmp_path, "tensorstat", "#!/usr/bin/python\nimport numpy as np\nfrom tensorcom import zcom\n")
    script(tmp_path, "tensorshow", "#!/bin/sh\n")
    assert doctor.owners_of_commands(str(tmp_path)) == (
        "tensormon: highway; tensorshow: another program; tensorstat: tensorcom; "
        "serve-imagenet-dir, serve-imagenet-shards: not installed; to always run highway's commands, use: "
        "highway show, highway stat, highway serve-dir, highway serve-shards"
    )
    assert "commands" in found()
