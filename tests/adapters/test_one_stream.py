"""The example of one reader for three frameworks: examples/one_stream.yaml; its jobs are run by ``tox -e adapters-tf``."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from highway.topology import check, load

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_topology_is_without_mistakes():
    assert check(load(EXAMPLES / "one_stream.yaml")) == []


@pytest.mark.slow
def test_jobs_in_three_frameworks_learn_the_same_from_one_stream(tmp_path, popen):
    for package in ("torch", "jax", "tensorflow"):
        pytest.importorskip(package, reason=f"{package} is not installed: this is run by tox -e adapters-tf")
    for name in ("one_stream.yaml", "one_stream.py"):
        shutil.copy(EXAMPLES / name, tmp_path)  # links are called by the path of the file
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    run = [sys.executable, "-c", "import sys; from highway.cli import main; sys.exit(main())", "run", "one_stream.yaml"]
    reader = popen(run, cwd=tmp_path, env=environment)
    jobs = [popen([sys.executable, "one_stream.py", name], cwd=tmp_path, env=environment) for name in ("torch", "jax", "tensorflow")]
    printed = [job.communicate(timeout=200) for job in jobs]
    out, error = reader.communicate(timeout=200)
    assert [job.returncode for job in [*jobs, reader]] == [0] * 4, [printed, out, error]
    first, *others = [out for out, _ in printed]
    assert others == [first, first]
    losses = [float(loss) for loss in re.findall(r"^8 batches, mean loss ([\d.]+)$", first, re.M)]
    assert len(losses) == 4 and losses[-1] < 0.8 * losses[0]
