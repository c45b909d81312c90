"""The code that Highway's users wrote by its documentation, word for word, in real processes."""

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from waiting import without_waits

from highway import Pipeline
from highway.data import photos
from highway.modules import Augmentations, ImageFileReader, Reader, ZMQSource
from highway.transforms import AdditiveNoise, FlipX, PadCrop

README = Path(__file__).parents[1] / "README.md"
RESUME = Path(__file__).parents[1] / "docs" / "howto" / "resume.md"
TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial" / "topologies.md"
IMPORTS = """
from highway import Pipeline
from highway.modules import Augmentations, ImageFileReader, ZMQSink, ZMQSource
from highway.transforms import FlipX
"""


def test_the_local_example():
    data_dir = f"{photos()}/train"
    img_reader = ImageFileReader(data_dir, 16, (240, 320))
    p = Pipeline([img_reader, Augmentations([FlipX()])])
    images, labels = p.dequeue()
    p.stop()
    assert (images.shape, images.dtype) == ((16, 240, 320, 3), np.uint8)
    assert (labels.shape, labels.dtype) == ((16,), np.int32)
    assert labels.min() >= 0 and labels.max() <= 7


def machine(page, comment):
    """Return the script of a page for one machine."""
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", page.read_text(), re.S) if b.startswith(f"# on {comment}")]
    return block


@pytest.fixture
def start(tmp_path, own_address, popen):
    """Start a script of the example in an interpreter of its own, with this test's address for the names of the hosts."""
    numbers = itertools.count()

    def start(script):
        path = tmp_path / f"machine-{next(numbers)}.py"
        body = re.sub(r"\b(source|trainer):", f"{own_address}:", script)
        path.write_text(f"{IMPORTS}\n{body}")
        return popen([sys.executable, str(path)])

    return start


def interrupt(process):
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    return process.returncode, out, without_waits(err)


@pytest.mark.slow
def test_the_three_machines_of_the_tutorial(start):
    source = start(machine(TUTORIAL, "the data source machine"))
    workers = [start(machine(TUTORIAL, "every worker machine")) for _ in range(2)]
    show = "for _ in range(8):\n    images, labels = p.dequeue()\n    print(images.shape, images.dtype, labels.dtype)\n"
    both = "while p.stats().stages[0].counters['senders'] < 2:\n    p.dequeue()\np.stop()\n"  # else one of them may not have begun
    trainer = start(machine(TUTORIAL, "the training machine") + show + both)
    out, err = trainer.communicate(timeout=200)
    assert (trainer.returncode, without_waits(err)) == (0, "")
    assert out.splitlines() == ["(16, 240, 320, 3) uint8 int32"] * 8
    for process in (source, *workers):
        assert interrupt(process) == (130, "", "")


@pytest.mark.slow
def test_the_two_machines_of_the_readme(start):
    source = start(machine(README, "the machine that reads"))
    train = """
steps = iter(range(8))
def train(images, labels):
    print(images.shape, images.dtype, labels.dtype)
    if next(steps) == 7:
        raise SystemExit
"""
    trainer = start(train + machine(README, "the machine that trains"))
    out, err = trainer.communicate(timeout=200)
    assert (trainer.returncode, without_waits(err)) == (0, "")
    assert out.splitlines() == ["(16, 240, 320, 3) uint8 int32"] * 8
    assert interrupt(source) == (130, "", "")


def test_an_error_in_a_machine_ends_it_with_1_and_its_message(start):
    process = start('Pipeline([ImageFileReader("nowhere", 16, (240, 320)), ZMQSink("tcp://source:5555")])')
    _, err = process.communicate(timeout=200)
    assert process.returncode == 1
    assert err.startswith("highway: FileNotFoundError: ") and "nowhere" in err and "Traceback" not in err


def test_a_port_in_use_is_an_error_that_names_it(start, own_address):
    script = 'Pipeline([range(0), ZMQSink("tcp://source:5555")])'
    with socket.create_server((own_address, 5555)):
        process = start(script)
        _, err = process.communicate(timeout=200)
    assert process.returncode == 1
    assert f"{own_address}:5555" in err and "in use" in err and "Traceback" not in err


def reader(**settings):
    return ImageFileReader("highway:photos/val", 5, (48, 48), epochs=2, seed=4, **settings)


def augment():
    return Augmentations([FlipX(), PadCrop(4), AdditiveNoise(0.5)])


def batches(stages):
    """Those of all epochs."""
    with Pipeline(stages, seed=5) as pipeline:
        return [batch for batch, _ in pipeline.stamped()]


def assert_same(got, expected):
    assert len(got) == len(expected)
    for (images, labels), (expected_images, expected_labels) in zip(got, expected, strict=True):
        np.testing.assert_array_equal(images, expected_images)
        np.testing.assert_array_equal(labels, expected_labels)


@pytest.mark.parametrize("num_workers", [1, 2, 8])
def test_batches_are_the_same_for_any_number_of_workers(num_workers):
    from highway import Stage

    first = batches([reader(num_workers=1), Stage(augment(), num_workers=1)])
    assert len(first) == 14 and first[-1][0].shape == (2, 48, 48, 3)
    assert_same(batches([reader(num_workers=num_workers), Stage(augment(), num_workers=num_workers)]), first)


def test_batches_are_the_same_when_a_stage_moves_behind_a_link(own_address, tmp_path):
    here = batches([reader(), augment()])
    url = f"tcp://{own_address}:5555"
    script = f"""
from highway import Pipeline
from highway.modules import ImageFileReader, ZMQSink
Pipeline([ImageFileReader("highway:photos/val", 5, (48, 48), epochs=2, seed=4), ZMQSink("{url}")], seed=5).run()
"""
    # Elsewhere than in the checkout, whose highway may lack the C extension, and so decode otherwise, if another one is installed.
    with subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path) as sender:
        there = batches([ZMQSource(url), augment()])
        assert sender.wait(200) == 0
    assert_same(there, here)


def test_an_example_that_is_called_without_its_argument_says_which_it_takes():
    script = Path(__file__).parents[1] / "examples" / "one_stream.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"usage: python {script} torch|jax|tensorflow\n"


TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]


def on_one_machine(folder, popen):
    """Start the script again with fewer ranks after the death of a rank."""
    killed = popen([*TORCHRUN, "--standalone", "--nproc-per-node", "4", "train.py"], cwd=folder)
    _, error = killed.communicate(timeout=140)
    assert killed.returncode != 0, error
    assert json.loads((folder / "checkpoint.json").read_text())["model"]["step"] == 20
    rest = popen([*TORCHRUN, "--standalone", "--nproc-per-node", "3", "train.py"], cwd=folder)
    _, error = rest.communicate(timeout=140)
    assert rest.returncode == 0, error


def on_several_machines(folder, popen):
    """Run the page's command for several machines four times. The death of a machine is the death of an agent and its rank."""
    from torch.distributed import TCPStore

    ((variable, command),) = re.findall(r"^(\w+)=1 torchrun (--nnodes .*)$", RESUME.read_text(), re.M)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # the machine HOST
    arguments = command.replace("HOST:29400", f"127.0.0.1:{store.port}").split()
    # By default, an agent waits 30 s for further machines.
    here = ["--rdzv-conf", "is_host=false,last_call_timeout=5", "--local-addr", "127.0.0.1"]
    agents = [popen([*TORCHRUN, *here, *arguments], cwd=folder, env=os.environ | {variable: "1"}) for _ in range(4)]
    errors = [agent.communicate(timeout=300)[1] for agent in agents]
    assert sorted(agent.returncode for agent in agents) == [-9, 0, 0, 0], errors


@pytest.mark.slow
@pytest.mark.parametrize(("run", "dies"), [(on_one_machine, "os.getpid()"), (on_several_machines, "os.getppid(), os.getpid()")])
def test_an_elastic_run_goes_on_with_fewer_ranks_and_reads_each_sample_once(run, dies, tmp_path, popen):
    pytest.importorskip("torch")
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", RESUME.read_text(), re.S) if b.startswith("# train.py")]
    death = f"""if (dist.get_rank(), dist.get_world_size(), model["step"]) == (2, 4, 25):
            for process in [{dies}]:
                os.kill(process, 9)
        model["step"] += 1
"""
    script = block.replace('model["step"] += 1\n', death)
    assert script != block
    (tmp_path / "train.py").write_text(script)
    run(tmp_path, popen)
    model = json.loads((tmp_path / "result.json").read_text())
    assert model["step"] == 100
    assert sorted(model["samples"]) == list(range(1200))
    with Pipeline([Reader(range(1200), 12, epochs=1, rank=0, world_size=1)], seed=7) as alone:
        steps = [sorted(model["samples"][first : first + 12]) for first in range(0, 1200, 12)]
        assert steps == [sorted(batch.tolist()) for batch in alone]
