"""One file, four hosts with addresses of their own, each with a ``highway run --host``: the network fails, and processes do."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from namespaces import missing, network

import highway

HOME = Path(highway.__file__).parents[1]
NAMES = ("reader", "first", "second", "trainer")
PATIENCE = 120  # seconds until something that has to happen is taken not to
INSIDE = 9  # items that a worker has received and not sent: two queues of 3, and one in the hands of each stage

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing()), pytest.mark.timeout(400)]

STAGES = '''
import faulthandler
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from highway.engine.cancel import wait

faulthandler.register(signal.SIGUSR1)


@dataclass
class Count:
    """Yield 0, 1, 2, ... with 20 kB each until there is a file ``pause``, write down how many, and end when there is a file ``end``."""

    def __iter__(self):
        number = 0
        while not Path("pause").exists():
            yield {"number": np.full(1, number, np.int32), "data": np.zeros(20_000, np.uint8)}
            number += 1
            wait(0.002)
        Path("sent").write_text(f"{number}\\n")
        while not Path("end").exists():
            wait(0.02)


@dataclass
class Work:
    """Write down the process, and the number of each item."""

    path: str

    def __call__(self, item):
        with open(f"{self.path}.{os.getpid()}", "a") as file:
            file.write(f"{item['number'][0]}\\n")
        return item


@dataclass
class Record:
    """Write down the number of each item."""

    def consume(self, items):
        with open("got", "w", buffering=1) as file:
            for item in items:
                file.write(f"{item['number'][0]}\\n")
'''

FILE = """
metrics: {port: 9400, listen: 0.0.0.0}
hosts: {HOSTS}
links:
  raw: {from: reader, to: worker, port: 5555}
  augmented: {from: worker, to: trainer, port: 5556, bind: to}
roles:
  reader: {hosts: reader, stages: ["counting:Count", ZMQSink: {link: raw}]}
  worker:
    hosts: [first, second]
    restart: {when: on-failure, delay_s: 0.1}
    stages: [ZMQSource: {link: raw}, "counting:Work": {path: "work${replica}"}, ZMQSink: {link: augmented}]
  trainer: {hosts: trainer, stages: [ZMQSource: {link: augmented}, "counting:Record": {}]}
"""


class Farm:
    """The hosts, and what runs on them."""

    def __init__(self, hosts, folder):
        self.hosts, self.folder, self.runs = hosts, folder, {}
        (folder / "counting.py").write_text(STAGES)
        (folder / "farm.yaml").write_text(FILE.replace("{HOSTS}", "{" + ", ".join(f"{n}: {a}" for n, a in hosts.addresses.items()) + "}"))

    def command(self, host, *arguments, **options):
        own = {"PYTHONPATH": f"{HOME}{os.pathsep}{self.folder}", "PYTHONWARNINGS": "error", "COLUMNS": "200"}  # in fewer, 1,234 is 1.2k
        command = [sys.executable, "-m", "highway", *arguments, "--plugin", "counting"]
        return self.hosts.popen(host, command, cwd=self.folder, env={**os.environ, **own}, **options)

    def start(self, *names):
        for name in names:
            with open(self.folder / f"{name}.log", "w") as log:
                self.runs[name] = self.command(name, "run", "farm.yaml", "--host", name, stdout=log, stderr=log)

    def got(self):
        """Return the numbers that the trainer has, as they came."""
        path = self.folder / "got"
        return [int(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    def sent(self):
        """Return how many items the reader has sent, once it has paused."""
        return int((self.folder / "sent").read_text())

    def until(self, condition, what):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            ended = {name: run.returncode for name, run in self.runs.items() if run.poll() is not None}
            if time.monotonic() > deadline or ended:
                pytest.fail(f"{what} did not happen; ended: {ended}\n{self.connections()}\n{self.stacks()}")
            time.sleep(0.02)

    def until_it_goes_on(self, items=200):
        """Wait until so many more items have reached the trainer."""
        goal = len(self.got()) + items
        self.until(lambda: len(self.got()) >= goal, f"item {goal}")

    def worker(self, number):
        """Return the process of a worker that was seen last."""
        return int(max(self.folder.glob(f"work{number}.*"), key=os.path.getmtime).suffix[1:])

    def pause(self):
        """Have the reader send nothing more, and wait until it says so."""
        (self.folder / "pause").touch()
        path = self.folder / "sent"
        self.until(lambda: path.exists() and path.read_text().endswith("\n"), "the pause")

    def top(self):
        """Return what ``highway top`` shows of all hosts."""
        with self.command(
            "trainer", "top", "farm.yaml", "--once", "--interval", "0.5", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as top:
            shown = top.communicate(timeout=PATIENCE)[0]
        assert top.returncode == 0 or "No endpoint answers" in shown, f"top ended with {top.returncode}: {shown}"
        return shown

    def finish(self):
        """End the stream, and wait until every host's run has ended by itself, and well."""
        for name in ("pause", "end"):
            (self.folder / name).touch()
        for name, run in self.runs.items():
            assert run.wait(timeout=PATIENCE) == 0, f"{name}\n{self.logs()}"

    def connections(self):
        """Return the connections of each host, and how many bytes wait at them."""
        shown = {name: self.hosts.popen(name, ["ss", "-tn"], stdout=subprocess.PIPE).communicate()[0] for name in self.runs}
        return "\n".join(f"--- {name}\n{text}" for name, text in shown.items())

    def stacks(self):
        """Have all processes write into their logs where their threads are, and return these."""
        for launcher in [run.pid for run in self.runs.values() if run.poll() is None]:
            roles = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
            for process in [launcher, *map(int, roles)]:
                os.kill(process, signal.SIGUSR1)
        time.sleep(2)
        return self.logs(20_000)

    def logs(self, most=3000):
        return "\n".join(f"--- {path.stem}\n{path.read_text()[-most:]}" for path in sorted(self.folder.glob("*.log")))


@pytest.fixture
def farm(tmp_path):
    with network(NAMES) as hosts:
        farm = Farm(hosts, tmp_path)
        yield farm
        for run in farm.runs.values():
            run.kill()
            run.wait()


IN_TURN = (("reader",), ("first", "second"), ("trainer",))


@pytest.mark.parametrize("order", [IN_TURN, IN_TURN[::-1]], ids=str)  # of any two, each is once the first
def test_hosts_start_in_any_order(farm, order):
    for names in order:
        farm.start(*names)
        for name in names:  # what starts next shall find this one running
            farm.until(lambda name=name: "metrics at" in (farm.folder / f"{name}.log").read_text(), f"the start of {name}")
    farm.until_it_goes_on()
    farm.finish()
    assert sorted(farm.got()) == list(range(farm.sent()))


def test_a_link_that_is_cut_silently_heals_without_loss(farm):
    farm.start(*NAMES)
    farm.until_it_goes_on()
    farm.hosts.cut("first")
    before = len(farm.got())
    farm.until_it_goes_on(1000)
    assert len(farm.got()) > before
    farm.hosts.heal("first")
    alone = len((farm.folder / f"work0.{farm.worker(0)}").read_text().split())
    farm.until(lambda: len((farm.folder / f"work0.{farm.worker(0)}").read_text().split()) > alone + 100, "work of the one that was cut off")
    farm.finish()
    assert sorted(farm.got()) == list(range(farm.sent()))


def links_in(shown):
    """Return how many items were sent over each link, received from it, and neither, as ``top`` shows it.

    A link is left out where it shows a ``-``: a host has not answered in time, or the figures of one are older than those of another.
    """
    rows = re.findall(r"^(raw|augmented) +([\d,]+) +([\d,]+) +([\d,]+) ", shown, re.M)
    return {link: [int(figure.replace(",", "")) for figure in figures] for link, *figures in rows}


def test_a_worker_that_is_killed_is_started_again_and_what_was_lost_is_shown(farm):
    farm.start(*NAMES)
    farm.until_it_goes_on()
    killed = farm.worker(0)
    os.kill(killed, signal.SIGKILL)
    farm.until(lambda: farm.worker(0) != killed, "the restart")
    farm.until_it_goes_on()
    farm.pause()
    views = []  # what top shows, until that is what the reader has sent in all: a process tells its figures every half second

    def shows_all_that_was_sent():
        views.append(farm.top())
        links = links_in(views[-1])
        return links.keys() == {"raw", "augmented"} and links["raw"][0] == farm.sent()

    farm.until(shows_all_that_was_sent, "a view of all that was sent")
    shown = views[-1]
    farm.finish()
    lost = farm.sent() - len(farm.got())
    counted = sum(missing for _, _, missing in links_in(shown).values())
    assert 0 <= lost <= counted + INSIDE, shown
    assert len(set(farm.got())) == len(farm.got())
    assert re.search(r"^worker\[0\] .* 1 *$", shown, re.M), shown
    assert "worker[0] failed (killed by SIGKILL)" in shown


def test_a_worker_that_is_drained_on_another_host_loses_nothing(farm):
    farm.start(*NAMES)
    farm.until_it_goes_on()
    with farm.command("first", "drain", "farm.yaml", "--role", "worker", stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as drain:
        said = drain.communicate(timeout=PATIENCE)[0]
    assert drain.returncode == 0, said
    assert farm.runs.pop("first").wait(timeout=PATIENCE) == 0, farm.logs()
    assert "were not notified" not in (farm.folder / "first.log").read_text()  # that the worker leaves: the reader, on another host
    farm.until_it_goes_on()
    farm.finish()
    assert sorted(farm.got()) == list(range(farm.sent()))


def test_a_process_that_stands_still_for_ten_seconds_loses_nothing(farm):
    farm.start(*NAMES)
    farm.until_it_goes_on()
    stopped = farm.worker(0)
    os.kill(stopped, signal.SIGSTOP)
    since = time.monotonic()
    farm.until_it_goes_on(1000)
    farm.until(lambda: time.monotonic() - since > 10, "ten seconds")
    os.kill(stopped, signal.SIGCONT)
    farm.until_it_goes_on()
    farm.finish()
    assert sorted(farm.got()) == list(range(farm.sent()))


@pytest.mark.skipif(shutil.which("iptables") is None, reason="no command 'iptables', which drops the packets")
def test_packets_that_are_late_or_lost_lose_no_items(farm):
    farm.hosts.slow("reader", "40mbit")
    farm.hosts.lose("second", 0.05)
    farm.hosts.lose("trainer", 0.02)
    farm.start(*NAMES)
    farm.until_it_goes_on(500)
    farm.finish()
    assert sorted(farm.got()) == list(range(farm.sent()))
