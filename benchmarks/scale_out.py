"""Compare the same roles started by hand, by `highway run` and by `highway launch` with tf.data service and Ray Data.

A reader, workers and a trainer are processes that start again in each turn. The trainer records when each batch arrives. The table has the
seconds from the start to the first batch, and the rate in the middle half of the batches, when all processes work. The last table has
hundreds of workers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import measure
import soak
from dataset import FOLDER, describe, imagenet_like
from images import draw
from loaders import BATCH, SHAPE
from measure import Absent, Report, Work, chosen, in_turns, machine
from peers.environments import python

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"
TIMEOUT = 180.0  # seconds that a turn may take
WORKERS = (1, 2, 4)
TERMINATED = 143  # the exit code of `highway run` after SIGTERM
LOOPBACK = "127.0.0.2"  # for 127.0.0.1 Ray takes the address of the machine
NOTHING: Mapping[str, str] = {}
SAMPLES = 16  # of an item of simulated work
LINKS = """
vars:
  {workers: 2, transport: tcp, first: 1, second: 2, budget: 64, times: times, photos: photos, epochs: 1, count: 1, seconds: 1, width: 64,
   buffer: null}
links:
  work: {from: reader, to: worker, port: "${first}", transport: "${transport}", budget_mb: "${budget}"}
  done: {from: worker, to: trainer, port: "${second}", transport: "${transport}", budget_mb: "${budget}", bind: to}
"""
TOPOLOGIES = {
    "images": f"""{LINKS}
roles:
  reader: [EncodedImageReader: {{data_dir: "${{photos}}", batch_size: {BATCH}, epochs: "${{epochs}}"}}, ZMQSink: {{link: work}}]
  worker:
    replicas: ${{workers}}
    stages:
      - ZMQSource: {{link: work}}
      - DecodeBatch: {{crop: {{RandomResizedCrop: {{shape: [{SHAPE[0]}, {SHAPE[1]}]}}}}, flip: 0.5}}
        num_workers: 1
      - ZMQSink: {{link: done}}
  trainer: [ZMQSource: {{link: done}}, "scaling:Clock": "${{times}}"]
""",
    "simulated": f"""{LINKS}
roles:
  reader: [Noise: {{shape: [{SAMPLES}, "${{width}}"], constant: true, count: "${{count}}"}}, ZMQSink: {{link: work}}]
  worker:
    replicas: ${{workers}}
    stages:
      - ZMQSource: {{link: work}}
        buffer_size: ${{buffer}}
      - "scaling:Asleep": ${{seconds}}
        num_workers: 1
      - ZMQSink: {{link: done}}
  trainer: [ZMQSource: {{link: done}}, "scaling:Clock": "${{times}}"]
""",
}


@dataclass(frozen=True)
class Job:
    """What is to be done: a topology's file with its variables, and the folder of the table that says the same to peers."""

    kind: str
    file: Path
    variables: dict[str, object]
    folder: Path
    workers: int = 2


Commands = list[list[str | Path]]


def _highway(job: Job, times: Path, command: str, *rest: str, environment: str = "", **variables: object) -> list[str | Path]:
    found = {**job.variables, "workers": job.workers, "times": times, **variables}
    settings = [word for name, value in found.items() for word in ("--set", f"{name}={value}")]
    return [python(environment), "-m", "highway", command, job.file, "--plugin", "scaling", *settings, *rest]


def by_hand(job: Job, times: Path) -> Commands:
    """Start each process as somebody would in terminals of its own."""
    ports = free_ports(2)
    replicas = {"reader": 1, "worker": job.workers, "trainer": 1}
    places = [(role, replica) for role, count in replicas.items() for replica in range(count)]
    return [_highway(job, times, "run", "--role", role, "--replica", str(replica), **ports) for role, replica in places]


def by_run(job: Job, times: Path, transport: str = "tcp") -> Commands:
    return [_highway(job, times, "run", transport=transport, **free_ports(2))]


def by_launch(job: Job, times: Path, engine: str = "local", *rest: str, environment: str = "") -> Commands:
    return [_highway(job, times, "launch", "--on", engine, *rest, environment=environment, **free_ports(2))]


def by_script(script: str, environment: str) -> Callable[[Job, Path], Commands]:
    """Return what starts a peer, which starts all its processes."""
    return lambda job, times: [[python(environment), PEERS / f"{script}.py", job.folder, times, str(job.workers)]]


def free_ports(count: int) -> dict[str, object]:
    """Return the values of the variables ``first`` and ``second``: ports that were free a moment ago."""
    with contextlib.ExitStack() as closing:
        sockets = [closing.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return dict(zip(("first", "second"), (each.getsockname()[1] for each in sockets), strict=True))


@dataclass
class Way:
    """A way to start the processes of a job, and what its turns have shown.

    Args:
        commands: Returns what is to be started for a job, and writes the times into a file.
        kinds: Of jobs that it can do.
        environment: Of its interpreter, in peers/environments.py.
        variables: Environment variables of its processes.
    """

    commands: Callable[[Job, Path], Commands]
    kinds: Sequence[str] = ("images",)
    environment: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    first: dict[str, list[float]] = field(default_factory=dict)

    def turn(self, job: Job, key: str) -> Work:
        """Run a job; return what came in the middle half of its batches.

        Raises:
            Absent: it failed, or took too long.
        """
        if not python(self.environment).exists():
            raise Absent(f"no environment; create it with 'tox -e bench-peers -- {self.environment}'")
        with tempfile.TemporaryDirectory() as folder:
            times, began = Path(folder) / "times", time.monotonic()
            with started(self.commands(job, times), Path(folder), self.variables) as processes:
                wait(processes, began + TIMEOUT, Path(folder))
            lines = [line.split() for line in times.read_text().splitlines()]
        at, samples = [float(line[0]) for line in lines], [int(line[1]) for line in lines]
        self.first.setdefault(key, []).append(at[0] - began)
        first, last = len(at) // 4, 3 * len(at) // 4
        return Work(sum(samples[first + 1 : last + 1]), seconds=at[last] - at[first])


@contextlib.contextmanager
def started(commands: Commands, folder: Path, variables: Mapping[str, str] = NOTHING) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start commands, each in a session of its own, and end them and all that they have started at the end."""
    processes: list[subprocess.Popen[bytes]] = []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PEERS), os.environ.get("PYTHONPATH", "")]), **variables}
    try:
        for number, command in enumerate(commands):
            with open(folder / f"out-{number}", "wb") as out, open(folder / f"errors-{number}", "wb") as errors:
                new = subprocess.Popen(command, stdout=out, stderr=errors, env=environment, start_new_session=True)  # type: ignore[arg-type]
            processes.append(new)
        yield processes
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait(processes: Sequence[subprocess.Popen[bytes]], until: float, folder: Path, expected: int = 0) -> None:
    """Wait until all have ended, with the expected exit code.

    Raises:
        Absent: one has not.
    """
    for number, process in enumerate(processes):
        try:
            code = process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            code = None
        if code != expected:
            lines = (folder / f"errors-{number}").read_text(errors="replace").splitlines()
            said = [line.strip() for line in lines if line.strip() and "--traceback" not in line]
            how = "did not end in time" if code is None else f"ended with {code}"
            raise Absent(f"{how}: {said[-1] if said else 'it printed nothing'}")


@contextlib.contextmanager
def ray_cluster(folder: Path, cores: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Start a Ray of one node, and yield its address, and the variables with which it can be reached.

    Raises:
        Absent: it does not start, or is not installed.
    """
    interpreter, port = python("ray"), free_ports(2)["first"]
    if not interpreter.exists():
        raise Absent("no environment; create it with 'tox -e bench-peers -- ray'")
    node = ["--head", "--block", f"--port={port}", f"--num-cpus={cores}", "--include-dashboard=false", "--disable-usage-stats"]
    command = [interpreter, "-m", "ray.scripts.scripts", "start", *node, f"--node-ip-address={LOOPBACK}", f"--temp-dir={folder}"]
    (folder / "token").write_text(secrets.token_hex(32))
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "token")}
    with started([command], folder, variables) as (process,):
        until = time.monotonic() + 60
        while "Ray runtime started" not in (folder / "out-0").read_text():
            if process.poll() is not None or time.monotonic() > until:
                raise Absent("ray start did not become ready")
            time.sleep(0.1)
        try:
            yield f"{LOOPBACK}:{port}", variables
        finally:
            process.terminate()  # it ends what it has started, which is in sessions of their own
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)


HAND, RUN, SHM, LOCAL, RAY = "by hand", "highway run", "highway run, shm", "highway launch --on local", "highway launch --on ray"
SERVICE, DATA = "tf.data service", "Ray Data, our decoder"
BOTH = ("images", "simulated")
MANY = "many replicas"
TARGETS = {(RUN, HAND): 0.95, (LOCAL, HAND): 0.95, (RAY, HAND): 0.95, (RUN, SERVICE): 1.5, (SHM, SERVICE): 1.5}


def ways(given: argparse.Namespace, closing: contextlib.ExitStack, absent: dict[str, str]) -> dict[str, Way]:
    """Return all ways, with a cluster started for the one that needs it."""
    found = {
        HAND: Way(by_hand, BOTH),
        RUN: Way(by_run, BOTH),
        SHM: Way(lambda job, times: by_run(job, times, "shm")),
        LOCAL: Way(by_launch, BOTH),
        SERVICE: Way(by_script("service_tensorflow", "tensorflow"), environment="tensorflow"),
        DATA: Way(by_script("data_ray", "ray"), environment="ray"),
    }
    if RAY in chosen([RAY], given):
        try:
            folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True)))
            address, variables = closing.enter_context(ray_cluster(folder, 16))
            found[RAY] = Way(
                lambda job, times: by_launch(job, times, "ray", "--cluster", address, environment="ray"), BOTH, "ray", variables
            )
        except Absent as error:
            absent[RAY] = str(error)
    return {name: found[name] for name in chosen(found, given)}


def placements(report: Report, given: argparse.Namespace, found: dict[str, Way], job: Job, absent: dict[str, str]) -> None:
    """Print how fast the same roles are, and how soon, by who starts them; and how fast the peers."""
    cases = {name: (lambda way=way: way.turn(job, "images")) for name, way in found.items()}
    rates = in_turns(cases, given.rounds, absent)
    report.rates(
        "Images: a reader, two workers and a trainer; rates of the middle half of the batches", rates, [HAND, SERVICE], "images", absent
    )
    report.targets(rates, TARGETS)
    report.line("**Seconds from the start of the first process to the first batch**")
    rows = [[name, *_spread(found[name].first["images"][1:])] for name in rates]
    report.table(["case", "median", "least", "greatest"], rows)


def _spread(numbers: Sequence[float]) -> list[str]:
    return [f"{value:.2f}" for value in (statistics.median(numbers), min(numbers), max(numbers))]


def growth(report: Report, given: argparse.Namespace, found: dict[str, Way], file: Path, absent: dict[str, str]) -> None:
    """Print which part of linear simulated work reaches with more workers."""
    cases = {}
    for name in found:
        for workers in WORKERS:
            count = round(given.simulated * workers / given.sleep)
            job = Job("simulated", file, {"seconds": given.sleep, "count": count}, file.parent, workers)
            if "simulated" in found[name].kinds and name not in absent:
                cases[f"{name}, {workers}"] = lambda name=name, job=job: found[name].turn(job, f"simulated {job.workers}")
    gone: dict[str, str] = {}
    rates = in_turns(cases, given.rounds, gone)
    rows = []
    for name in found:
        measured = [rates.get(f"{name}, {workers}") for workers in WORKERS]
        if one := measured[0]:
            shares = [f"{rate.items / (one.items * workers):.3f}" if rate else "-" for rate, workers in zip(measured, WORKERS, strict=True)]
            rows.append([f"{name}: samples/s", *(f"{rate.items:,.0f}" if rate else "-" for rate in measured)])
            rows.append(["share of linear", *shares])
            rows.append(["share of the ideal rate", *_of_ideal(measured, given.sleep)])
            rows.append(["max/min of the rounds", *(f"{rate.spread:.2f}" if rate else "-" for rate in measured)])
    if not rows:
        return
    report.line(f"**Simulated: workers that sleep {1e3 * given.sleep:g} ms per {SAMPLES} samples (target: 0.95 of linear)**")
    report.table(["workers", *map(str, WORKERS)], rows)
    for name, reason in gone.items():
        report.line(f"absent: {name} ({reason})")


def _of_ideal(measured: Sequence[measure.Rate | None], sleep: float) -> list[str]:
    ideal = SAMPLES / sleep
    return [f"{rate.items / (ideal * workers):.3f}" if rate else "-" for rate, workers in zip(measured, WORKERS, strict=True)]


def many(report: Report, given: argparse.Namespace, file: Path) -> None:
    """Start very many workers by `highway run`, let them run, and drain them; print how long that takes, and their memory.

    Raises:
        Absent: they do not start.
    """
    little = {"budget": 0.001, "buffer": 1, "width": 1 << 14}  # that waits: few items, each of more than the kernel's buffers
    job = Job("simulated", file, {"seconds": given.long_sleep, "count": 10**9, "transport": "ipc", **little}, file.parent, given.replicas)
    with tempfile.TemporaryDirectory() as temporary:
        folder, times, began = Path(temporary), Path(temporary) / "times", time.monotonic()
        with started([[*_highway(job, times, "run", **free_ports(2)), "--json", "--drain-timeout=60"]], folder) as (process,):
            while not (times.exists() and times.stat().st_size):  # the reader waits for all workers before its first item
                if process.poll() is not None or time.monotonic() - began > 600:
                    wait([process], 0.0, folder)
                time.sleep(0.1)
            up = float(times.read_text().split()[0]) - began
            time.sleep(given.seconds)
            held = soak.measure(process.pid)
            stopped = time.monotonic()
            process.terminate()
            wait([process], stopped + TIMEOUT, folder, TERMINATED)
            drained = time.monotonic() - stopped
        lines = [line.split() for line in times.read_text().splitlines()]
        said = json.loads((folder / "out-0").read_text())
    at = [float(line[0]) for line in lines if float(line[0]) < stopped]
    rate = SAMPLES * (len(at) - given.replicas) / (at[-1] - at[0])  # the first of each came at once
    report.line(
        f"**{given.replicas} workers that sleep {given.long_sleep:g} s per item, started by `highway run` on this machine, over ipc**"
    )
    rows = [
        ["start to first batch (waits for all workers)", f"{up:.1f} s"],
        ["rate", f"{rate:,.0f} samples/s"],
        ["share of the ideal rate", f"{rate * given.long_sleep / SAMPLES / given.replicas:.2f}"],
        ["memory of all processes (PSS)", f"{held[soak.ALL]:,.0f} MB"],
        ["memory per process (PSS)", f"{held[soak.ALL] / (given.replicas + 3):.0f} MB"],
        ["descriptors", f"{held[soak.DESCRIPTORS]:,.0f}"],
        ["SIGTERM to end of last process", f"{drained:.1f} s"],
        ["messages sent but not received", str(sum(link["missing"] or 0 for link in said["links"]))],
    ]
    report.table(["", "measured"], rows)
    for sentence in said["losses"]:
        report.line(sentence)


def options() -> argparse.Namespace:
    parser = measure.parser(__doc__, rounds=5)
    add = parser.add_argument
    add("--images", type=int, default=1000, help="number of images (default: %(default)s)")
    add("--epochs", type=int, default=6, help="epochs per turn (default: %(default)s)")
    add("--sleep", type=float, default=0.02, help="seconds that a worker sleeps per item of simulated work (default: %(default)s)")
    add("--simulated", type=float, default=6.0, help="seconds per turn of simulated work (default: %(default)s)")
    add("--replicas", type=int, default=200, help="number of workers in the last table (default: %(default)s)")
    add("--long-sleep", type=float, default=1.0, help="seconds that each of these workers sleeps per item (default: %(default)s)")
    add("--seconds", type=float, default=20.0, help="seconds that these workers run (default: %(default)s)")
    add("--data", type=Path, default=FOLDER, help="folder for the images")
    return measure.parse(parser, images=200, epochs=4, simulated=2.0, replicas=20, seconds=3.0)


def main() -> None:
    given = options()
    report = Report("scale_out", given.record)
    photos = imagenet_like(given.data, given.images)
    report.line(machine("highway-data", "numpy", "pyzmq"))
    report.line(f"{describe(photos)}, {given.epochs} times per turn; {given.rounds} rounds.")
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as closing:
        folder = Path(temporary)
        for kind, text in TOPOLOGIES.items():
            (folder / f"{kind}.yaml").write_text(text)
        draw(photos, given.epochs, 1).save(folder)
        absent: dict[str, str] = {}
        found = ways(given, closing, absent)
        job = Job("images", folder / "images.yaml", {"photos": photos, "epochs": given.epochs}, folder)
        if found:
            placements(report, given, found, job, absent)
            growth(report, given, found, folder / "simulated.yaml", absent)
        if chosen([MANY], given):
            try:
                many(report, given, folder / "simulated.yaml")
            except Absent as error:
                report.line(f"absent: {given.replicas} replicas ({error})")
    report.record()


if __name__ == "__main__":
    sys.exit(main())
