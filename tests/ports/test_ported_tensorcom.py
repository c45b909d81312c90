"""tensorcom's own programs, ported: its README's servers and clients, and its notebooks, in processes of their own."""

import hashlib
import re
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from topologies import Lines
from waiting import without_waits

from highway import Connection, Passport, Pipeline, Stamped
from highway.data import photos
from highway.datasets.image_files import labelled_files
from highway.modules import ShardSink

PROGRAMS = Path(__file__).parent / "tensorcom"


@pytest.fixture
def start(tmp_path, popen):
    """Start a program: one of the folder, or a command of highway's."""

    def start(program, *arguments):
        command = [str(PROGRAMS / program)] if program.endswith(".py") else ["-m", "highway", program]
        return popen([sys.executable, *command, *map(str, arguments)], cwd=tmp_path)

    return start


def output(process):
    out, err = process.communicate(timeout=200)
    assert (process.returncode, without_waits(err)) == (0, "")
    return out.splitlines()


class Server:
    """A server that has told where it serves."""

    def __init__(self, process):
        self._process = process
        self._out, self._err = Lines(process.stdout), Lines(process.stderr)
        self.addresses = self._out.until("^serving at (.*)")[1].split(", ")

    def ends_by_ctrl_c(self):
        """End it, and return the lines of its rates, of which the last is of the whole run."""
        self._process.send_signal(signal.SIGINT)
        assert (self._process.wait(200), self._err.all()) == (130, "")
        *lines, whole = (line for line in self._out.all().splitlines() if not line.startswith("serving at "))
        assert re.fullmatch(r"\d+ batches, [\d.]+ MB in [\d.]+ s; [\d.]+ batches/s, [\d.]+ samples/s, [\d.]+ MB/s", whole)
        return lines


@pytest.fixture
def serve(start):
    """Start a server, and wait until it serves; what it prints is read as it comes."""
    servers = []

    def serve(*arguments):
        process = start(*arguments)
        servers.append(process)
        return Server(process)

    yield serve
    for process in servers:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_the_readmes_server_and_its_training_loop(start, serve, own_address):
    server = serve("serve-dir", "-d", photos(), "-b", "64", "-w", "2", f"zpub://{own_address}:7880")
    assert server.addresses == [f"tcp://{own_address}:7880"]
    jobs = [start("client.py", f"zsub://{own_address}:7880", "3") for _ in range(2)]  # several jobs at the same server
    for job in jobs:
        assert output(job) == [*["(64, 224, 224, 3) uint8 (64,) int32"] * 3, "1000000"]
    server.ends_by_ctrl_c()


def test_the_readmes_four_publishers(serve, own_address):
    server = serve("serve-dir", "-d", photos(), "-b", "16", "-r", "1", f"zpub://{own_address}:788{{0..3}}")
    assert server.addresses == [f"tcp://{own_address}:788{n}" for n in range(4)]
    with Connection(f"zsub://{own_address}:788{{0..3}}", epoch=1000000) as training:
        batches, seen = set(), 0
        for xs, ys in training:
            assert (xs.shape[1:], ys.shape) == ((224, 224, 3), (len(xs),))
            batches.add(hashlib.sha256(xs).digest() + ys.tobytes())
            seen += 1
            if training.counters["senders"] == 4 and seen >= 20:
                break
        assert len(batches) == seen  # none came twice
        assert training.counters["duplicates"] == 0
    lines = server.ends_by_ctrl_c()
    numbers = [int(line.split()[0]) for line in lines]
    assert numbers and len(numbers) == len(set(numbers))  # lines that nobody had room for are left out


@pytest.mark.slow
def test_the_command_line_tools(start, serve, own_address):
    server = serve("serve-dir", "-d", photos(), "-b", "16", f"zpub://{own_address}:7880")
    lines = output(start("mon", f"zsub://{own_address}:7880", "-r", "5", "-c", "12"))
    assert [line.split()[:2] for line in lines[2:-1]] == [["5", "batches"], ["10", "batches"]]
    assert lines[-1].startswith("12 batches")
    image, label = (line.split() for line in output(start("stat", f"zsub://{own_address}:7880", "-c", "3"))[-2:])
    assert (image[:3], label[:3]) == (["0", "uint8", "224x224x3"], ["1", "int32", "scalar"])
    server.ends_by_ctrl_c()


@pytest.mark.slow
def test_the_server_of_shards_and_the_notebooks(start, serve, own_address, tmp_path):
    root = Path(photos(), "train")
    files = labelled_files(str(root))
    samples = [
        Stamped({"jpg": (root / key).read_bytes(), "cls": label + 1}, Passport(0, n, keys=(key,)))
        for n, (key, label) in enumerate(zip(files.keys, files.labels, strict=True))
    ]
    Pipeline([samples, ShardSink(str(tmp_path / "training-%03d.tar"), max_samples=64)]).run()
    server = serve("serve-shards", "-u", f"{tmp_path}/training-{{000..001}}.tar", "-b", "64", f"zpub://{own_address}:7880")
    keras = start("keras.py", f"zsub://{own_address}:7880", "2")
    pytorch = start("pytorch.py", f"zsub://{own_address}:7880", "3") if find_spec("torch") else None
    assert output(keras) == ["(64, 224, 224, 3) float32 (64, 1000) float32 64.0"] * 2
    if pytorch is None:
        pytest.skip("torch is not installed")
    images, labels, losses = output(pytorch)
    assert re.fullmatch(r"torch.Size\(\[64, 3, 224, 224\]\) torch.float32 -2.1179\d* 11[\d.]+", images)
    assert re.fullmatch(r"torch.Size\(\[64\]\) torch.int64 [0-7] [0-7]", labels)
    assert losses == "3 losses, finite: True"
    server.ends_by_ctrl_c()


def test_a_server_of_ones_own(start, own_address):
    url = f"{own_address}:7888"
    with Connection(f"zpull://{url}", total=5 * 4 * 32) as receiver:  # a subscriber may miss the first
        server = start("simple_server.py", f"zpush://{url}", "5")
        batches = list(receiver)
        out, err = server.communicate(timeout=200)
    assert (server.returncode, out, err) == (0, "", "0 1 2 3 4 ")
    assert [(xs.dtype.name, xs.shape, ys.dtype.name, xs[0, 0, 0, 0]) for xs, ys in batches] == [
        ("float16", (32, 1, 28, 28), "int32", n / 4) for _ in range(5) for n in range(4)
    ]
