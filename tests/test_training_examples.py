"""examples/*.py learn to tell the photographs of the package apart, and to find objects; by hand each takes other data."""

import itertools
import os
import re
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(popen):
    """Run an example in an interpreter of its own, and return the last accuracy or recall that it prints."""

    def run(*command, **environment):
        process = popen([sys.executable, *command], cwd=EXAMPLES, env=os.environ | {"OMP_NUM_THREADS": "1"} | environment)
        out, err = process.communicate(timeout=270)
        assert process.returncode == 0, err
        return float(re.findall(r"(?:accuracy|recall):? ([\d.]+)", out)[-1])

    return run


@pytest.fixture
def pytorch(monkeypatch):
    """The example in PyTorch as a function, which imports torch no second time."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(EXAMPLES)
    example, threads = import_module("imagenet_pytorch"), torch.get_num_threads()
    torch.set_num_threads(1)
    yield lambda *arguments: example.main(example.parser.parse_args(arguments))
    torch.set_num_threads(threads)


def test_pytorch_learns_and_goes_on_from_its_checkpoint(pytorch, tmp_path, capsys, monkeypatch):
    import torch

    pytorch()
    expected = capsys.readouterr().out.splitlines()
    assert len(expected) == 8 and float(expected[-1].split()[-1]) > 0.8

    class Stopped(Exception):
        pass

    saves = itertools.count(1)

    def save(state, path, save=torch.save):
        save(state, path)
        if next(saves) == 3:
            raise Stopped

    checkpoint = ("--checkpoint", f"{tmp_path}/last.pt")
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(torch, "save", save)
        pytorch(*checkpoint)
    pytorch(*checkpoint)
    assert capsys.readouterr().out.splitlines() == expected


def skip_without(*packages, environment):
    """Skip a test whose packages are not there, without importing them, which takes longer than to train."""
    for package in packages:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed: this is run by tox -e {environment}")


@pytest.mark.slow
def test_pytorch_learns_on_two_ranks(run):
    skip_without("lightning", environment="adapters-torch")
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    assert run(*torchrun, "imagenet_pytorch.py", "--batch-size", "8") > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("form", [["--form", "coco"], ["--form", "voc", "--masks"]], ids=["coco", "voc"])
def test_a_detector_finds_objects(run, form):
    skip_without("torch", environment="adapters-torch")
    assert run("detection.py", *form, "--epochs", "48") > 0.3


@pytest.mark.slow
def test_lightning_learns(run):
    skip_without("lightning", environment="adapters-torch")
    assert run("imagenet_lightning.py") > 0.8


@pytest.mark.slow
def test_jax_learns(run):
    skip_without("jax", environment="adapters-tf")
    assert run("imagenet_jax.py", JAX_PLATFORMS="cpu", XLA_FLAGS="--xla_force_host_platform_device_count=2") > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_keras_learns(run, backend):
    skip_without("keras", backend, environment="adapters-tf")
    assert run("imagenet_keras.py", KERAS_BACKEND=backend, JAX_PLATFORMS="cpu") > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("workers", [["--workers", "2"], ["--processes", "--workers", "2"]], ids=["threads", "processes"])
def test_dicts_are_prepared_by_python_for_tfdata(run, workers):
    skip_without("tensorflow", "keras", environment="adapters-tf")
    assert run("tfdata_dicts.py", *workers, KERAS_BACKEND="tensorflow") > 0.8
