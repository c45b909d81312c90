import io
import re
import time

import pytest
from rich.console import Console

from highway.cli import main as highway_main
from highway.cli.measure.bench import balance, crowded, role_rate, show
from highway.engine.cancel import wait
from highway.engine.stage import expand
from highway.engine.stats import BEYOND_CORES, PipelineStats, StageStats, one_thread
from highway.observe.calibration import StageCost
from highway.observe.profile import profile
from highway.parameters.location import Location
from highway.topology.plan import Role


def main(arguments):
    return highway_main(["bench", "--seconds", "100", *arguments])


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Take no source for ended because the machine is busy, and give advice all the same."""
    monkeypatch.setattr("highway.observe.profile.IDLE", 60)
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))


def identity(item):
    return item


def costs(*seconds, cpu=None, workers=2):
    shapes = ["source", *["map"] * (len(seconds) - 1)]
    return [
        StageCost("identity", shape, busy, cores, workers=workers if shape == "map" else 1)
        for shape, busy, cores in zip(shapes, seconds, cpu or seconds, strict=True)
    ]


def test_workers_are_dealt_out_by_what_the_stages_take():
    balanced = balance(costs(0.0, 3.0, 1.0), cores=8)
    assert balanced.rate == 2.0 and balanced.workers == [1, 6, 2] and balanced.limit == "the 8 cores"


def test_a_stage_that_sleeps_takes_workers_and_no_cores():
    sleeps = costs(0.01, 1.0, 0.5, cpu=(0.01, 0.01, 0.08), workers=4)
    balanced = balance(sleeps, cores=1)
    assert balanced.rate == pytest.approx(10.0) and balanced.workers == [1, 10, 5]
    assert sleeps[1].rate(cores=1) == 4.0
    assert sleeps[2].rate(cores=1, processes=2) == 12.5  # of its eight threads, the core


def test_a_stage_with_one_thread_limits_the_others():
    balanced = balance(costs(0.5, 1.0, 0.1), cores=16)
    assert balanced.rate == 2.0 and balanced.workers == [1, 2, 1]
    assert balanced.limit == f"identity: {one_thread('source')}"


def test_where_other_programs_use_all_cores_no_workers_are_advised():
    assert crowded(1.4, 2) == ""
    assert crowded(8.0, 2).startswith("Other programs use all 2 cores, so the rates are too low. Measure on a quiet machine ")
    assert crowded(1.0, 1).startswith("Other programs use the only core, ")
    out = io.StringIO()
    show(Console(file=out, width=120), costs(0.1, 0.4), 2, with_advice=False)
    assert "identity is the bottleneck.\n" in out.getvalue()
    assert "workers are" not in out.getvalue() and "Set num_workers" not in out.getvalue()


def test_the_statistics_and_bench_give_one_advice_for_a_stage_with_a_worker_for_each_core():
    out = io.StringIO()
    show(Console(file=out, width=120), costs(0.0, 0.4, workers=2), 2)
    stages = [StageStats("range", 1, 10, busy=0.1, blocked=1.9, shape="source"), StageStats("identity", 2, 10, busy=3.8, starved=0.2)]
    seen = PipelineStats(stages, 2.0, cpu=1.0, cores=2).bottleneck
    assert "The numbers of workers are already balanced.\n" in out.getvalue()
    assert f"identity: {BEYOND_CORES}.\n" in out.getvalue() and f"; {BEYOND_CORES}: " in seen
    assert "num_workers=" not in out.getvalue() and "num_workers=" not in seen


def test_on_one_core_every_stage_has_one_worker():
    balanced = balance(costs(0.1, 0.2, 0.7), cores=1)
    assert balanced.rate == pytest.approx(1.0) and balanced.workers == [1, 1, 1] and balanced.limit == "the one core"


@pytest.mark.parametrize(("hosts", "rate"), [((), 2.0), (("a",), 2.0), (("a", "b"), 4.0), (("a", "b", "c", "d"), 4.0)])
def test_replicas_share_the_cores_of_a_machine(hosts, rate):
    role = Role("r", [], Location(), replicas=4, hosts=hosts)
    assert role_rate(costs(0.0, 1.0, workers=1), role, cores=2) == rate


def test_nothing_measured_changes_nothing():
    assert balance(costs(0.0, 0.0, workers=3), cores=4).workers == [3 if shape == "map" else 1 for shape in ("source", "map")]


class Clock:
    """A clock that passes when a map works."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


class Work:
    """A map that works for so long by a clock."""

    def __init__(self, clock, seconds):
        self.clock, self.seconds = clock, seconds
        self.calls = 0

    def __call__(self, item):
        self.calls += 1
        self.clock.now += self.seconds
        return item


class Half:
    def stream(self, items):
        for number, item in enumerate(items):
            if number % 2:
                yield item


class Drain:
    def consume(self, items):
        self.count = sum(1 for _ in items)


class Waits:
    """A sink whose peer is not there, at which a clock is far beyond the limit."""

    def __init__(self, clock):
        self.clock = clock

    def consume(self, items):
        self.clock.now += 1000
        wait(60)


def seconds(stages, most, limit):
    return [figures.seconds for figures in profile(expand(stages), 0, most, limit).stages]


def test_seconds_are_those_of_what_becomes_one_item_at_the_end(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("highway.engine.stats.time", clock)
    few, many = Work(clock, 0.25), Work(clock, 4.0)
    _, *others = seconds([range(50), few, Half(), many, Drain()], 50, 100.0)
    assert few.calls == 50 and many.calls == 25
    assert others == [0.5, 0.0, 4.0, 0.0]


def test_each_stage_sees_what_the_one_before_it_has_made():
    seen = []
    drain = Drain()
    profile(expand([[1, 2, 3], lambda n: seen.append(n) or n * 10, lambda n: seen.append(n) or n, drain]), 0, 2, 100.0)
    assert seen == [1, 2, 10, 20] and drain.count == 2


def test_a_stage_that_waits_for_its_peer_is_not_measured(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(clock, "perf_counter", lambda: time.perf_counter() + clock.now)
    monkeypatch.setattr("highway.observe.profile.time", clock)
    found = seconds([range(5), identity, Waits(clock)], 5, 100.0)
    assert found[0] > 0 and found[1] > 0 and found[2] == 0.0


def test_an_error_of_a_stage_is_raised():
    with pytest.raises(ZeroDivisionError):
        profile(expand([range(5), lambda n: 1 / n]), 0, 5, 100.0)


@pytest.fixture
def topology(tmp_path, monkeypatch):
    monkeypatch.setattr("highway.observe.profile.IDLE", 0.5)  # its reader waits for its batches, which are not made: there is no other end
    path = tmp_path / "photos.yaml"
    path.write_text("""
roles:
  train:
    - ImageFileReader: {data_dir: "highway:photos/val", batch_size: 8, shape: [32, 32], epochs: 2}
    - num_workers: 3
      Augmentations: [FlipX]
  other:
    - Noise: {shape: [4]}
""")
    return str(path)


def test_a_table_names_every_stage_the_bottleneck_and_the_workers(topology, capsys):
    assert main([topology, "--role", "train"]) == 0
    output = capsys.readouterr().out
    for name, shape in (("ImageFileReader.row_ranges", "source"), ("ImageFileReader.decode", "map"), ("Augmentations", "map")):
        assert re.search(rf"^{re.escape(name)} +{shape} +[\d,.]+ +\d+ +[\d,.]+ +\d+$", output, re.M)
    assert re.search(r"^(ImageFileReader.row_ranges|ImageFileReader.decode|Augmentations) is the bottleneck\.$", output, re.M)
    assert re.search(r"With these numbers of workers, [\d,.]+ items/s are possible at the end; the limit is ", output)
    assert re.search(r"^(Set num_workers=\d+ for [\w.]+.*|The numbers of workers are already balanced)\.$", output, re.M)


def tables(output):
    """Return the lines of each role's table, by the role."""
    found = re.split(r"^(\w+): each stage alone.*\n", output, flags=re.M)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def test_without_a_role_every_one_is_measured_and_the_slowest_named(topology, capsys):
    assert main([topology, "--items", "20"]) == 0
    output = capsys.readouterr().out
    assert set(tables(output)) == {"train", "other"}
    assert re.search(r"^(train|other) is the slowest role: it yields [\d,.]+ items/s at most\.$", output, re.M)
    assert main([topology, "--role", "trian"]) == 2
    assert "no role 'trian'" in capsys.readouterr().err


@pytest.fixture
def chain(tmp_path):
    """Three roles with links between them, the last one first in the file; and one that listens to somebody else."""
    path = tmp_path / "chain.yaml"
    path.write_text(
        f"""
links:
  raw: {{from: reader, to: worker, transport: shm}}
  augmented: {{from: worker, to: trainer, transport: shm, codec: msgpack}}
roles:
  trainer:
    - ZMQSource: {{link: augmented}}
    - DumpTen: {tmp_path}/out
  worker:
    replicas: 2
    stages:
      - ZMQSource: {{link: raw}}
      - Augmentations: [FlipX]
      - ZMQSink: {{link: augmented}}
  reader:
    - ImageFileReader: {{data_dir: "highway:photos/val", batch_size: 8, shape: [32, 32], epochs: 2}}
    - ZMQSink: {{link: raw}}
  outside:
    - ZMQSource: zrpull://127.0.0.1:1
    - Identity
""".replace("DumpTen", "TenSink")
    )
    return str(path)


def test_a_role_that_is_fed_by_a_link_is_measured_with_what_its_feeder_makes(chain, tmp_path, capsys):
    assert main([chain, "--items", "3"]) == 0
    captured = capsys.readouterr()
    found = tables(captured.out)
    assert list(found) == ["reader", "worker", "trainer"]  # as the items go
    assert re.search(r"^Augmentations +map +[\d,.]+ ", found["worker"], re.M)
    assert re.search(r"^TenSink +sink +[\d,.]+ ", found["trainer"], re.M)
    assert re.search(r"^ZMQSource +source +link ", found["trainer"], re.M)
    assert len(list((tmp_path / "out").iterdir())) == 3
    assert "outside: not measured, because no role in the file sends to zrpull://127.0.0.1:1" in captured.out
    assert "--role outside" in captured.out


def test_a_sender_that_is_not_there_is_asked_for(chain, capsys):
    assert main([chain, "--role", "outside", "--seconds", "0.2"]) == 0
    assert "Nothing was measured, because no item arrived in time; check that the sender is running." in capsys.readouterr().out


def test_one_role_alone_gets_the_items_of_its_feeders_too(chain, tmp_path, capsys):
    assert main([chain, "--role", "trainer", "--items", "3"]) == 0
    found = tables(capsys.readouterr().out)
    assert list(found) == ["trainer"]
    assert re.search(r"^TenSink +sink +[\d,.]+ ", found["trainer"], re.M)


def test_what_stages_print_while_they_are_measured_is_no_part_of_the_tables(write, ask):
    path = write("roles: {r: [Noise: {shape: [2], count: 50}, Benchmark: 5]}")
    for command in (["bench", path, "--seconds", "0.2"], ["plan", path, "--images-per-second", "5", "--seconds", "0.2"]):
        code, out, error = ask(*command)
        assert (code, error) == (0, "")
        assert " items in " not in out
        assert "Benchmark" in out
