"""Running one role in this process: progress, the end, and being asked to end."""

import itertools
import logging
import os
import signal
import sys
import time

import pytest

from highway import Pipeline
from highway.engine.cancel import wait
from highway.run.control import ControlServer, find
from highway.run.report import Reporter, RoleReport
from highway.run.role import Terminated, run
from highway.topology import load

LONG = 1000.0  # seconds: only the last report comes


@pytest.fixture(autouse=True)
def no_alarm():
    yield
    signal.alarm(0)  # what ends a process that was asked to end and does not


class Sink:
    def __init__(self):
        self.items = []

    def consume(self, items):
        self.items.extend(items)


def endless():
    while True:
        yield 1


def test_a_pipeline_with_a_sink_is_run_and_one_without_is_drained():
    sink, seen = Sink(), []
    run(Pipeline([range(5), sink]), seen.append, tick=LONG)
    assert sink.items == [0, 1, 2, 3, 4]
    run(Pipeline([range(7), str]), seen.append, tick=LONG)
    assert [stats.items for stats in seen] == [5, 7]


def test_progress_is_told_while_it_runs_and_once_more_at_the_end():
    seen = []

    def progress(stats):
        seen.append(stats.items)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Pipeline([endless()]), progress, tick=0.01)
    assert len(seen) == 4
    assert seen == sorted(seen)


def test_what_a_stage_raises_is_raised_after_the_last_report():
    seen = []

    def fail_at_3(n):
        if n == 3:
            raise ValueError("no 3")
        return n

    with pytest.raises(ValueError, match="no 3"):
        run(Pipeline([range(5), fail_at_3]), seen.append, tick=LONG)
    assert [stats.items for stats in seen] == [3]


def test_a_signal_that_other_code_handles_ends_nothing():
    """torch's DataLoader handles SIGCHLD as soon as it has had workers."""
    heard = []
    before = signal.signal(signal.SIGCHLD, lambda number, _: heard.append(number))
    try:
        sink = Kept(lambda: os.kill(os.getpid(), signal.SIGCHLD))
        with Pipeline([range(5), sink]) as pipeline:
            run(pipeline, lambda _: None)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert heard and sink.items == list(range(5))


@pytest.mark.parametrize(("number", "error"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_ends_a_run(number, error):
    signals = iter([number])

    def progress(stats):
        for number in signals:
            signal.raise_signal(number)

    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(error):
        run(Pipeline([endless()]), progress, tick=0.01)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_signal_before_the_first_item_ends_a_run():
    def source():
        os.kill(os.getpid(), signal.SIGTERM)
        yield from endless()

    with pytest.raises(Terminated):
        run(Pipeline([source()]), lambda stats: None)


class SignalAtTheEnd:
    """Sends a signal to its own process when it is cancelled, and ends only after that was heard."""

    def __init__(self):
        self.begun = self.heard = False

    def consume(self, items):
        try:
            for _ in items:
                self.begun = True
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.2)  # the main thread waits for this one, and hears the signal meanwhile
            self.heard = True


def test_a_signal_does_not_interrupt_the_ending():
    def progress(stats):
        if sink.begun and not sink.heard:
            raise KeyboardInterrupt

    sink = SignalAtTheEnd()
    with pytest.raises(KeyboardInterrupt):
        run(Pipeline([endless(), sink]), progress, tick=0.01)
    assert sink.heard


def test_reports_arrive_as_they_were_sent():
    reading, writing = os.pipe()
    pipeline, sent = Pipeline([range(5), str]), []
    with Reporter(writing) as reporter:
        run(pipeline, lambda stats: (sent.append(stats), reporter.progress(stats)), tick=LONG)
        reporter.error("ValueError: no 3")
        reporter.done()
    with open(reading, encoding="utf-8") as file:
        assert list(map(RoleReport.read, file)) == [
            *[RoleReport(stats=stats) for stats in sent],
            RoleReport(error="ValueError: no 3"),
            RoleReport(done=True),
        ]


def test_a_reporter_whose_launcher_is_gone_ends_the_process():
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(Terminated), Reporter(writing) as reporter:
        reporter.error("hello?")


class Kept:
    """Keeps what arrives; the first item waits until a signal or a request to drain was sent."""

    def __init__(self, ask):
        self.ask, self.items = ask, []

    def consume(self, items):
        for item in items:
            if not self.items:
                self.ask()
            self.items.append(item)


def test_sigterm_drains_if_there_is_time_for_it():
    numbers = itertools.count()
    sink = Kept(lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Terminated) as ended:
        run(Pipeline([numbers, sink]), lambda stats: None, drain_timeout=60)
    assert ended.value.drained
    assert sink.items == list(range(next(numbers)))


def test_sigint_does_not_drain():
    sink = Kept(lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run(Pipeline([endless(), sink]), lambda stats: None, drain_timeout=60)


class Blocked:
    """Sends a signal, and then waits until it is stopped."""

    def consume(self, items):
        os.kill(os.getpid(), signal.SIGTERM)
        wait(100)


def test_a_drain_has_an_end(caplog):
    with pytest.raises(Terminated) as ended:
        run(Pipeline([endless(), Blocked()]), lambda stats: None, drain_timeout=0.05)
    assert not ended.value.drained
    assert "not drained within 0.05 s; items still in flight are lost (for more time, pass a larger --drain-timeout)" in caplog.messages


def test_a_second_signal_stops_a_drain(caplog):
    caplog.set_level(logging.INFO, "highway")
    signals = iter([signal.SIGTERM])

    def progress(stats):
        if any("draining" in message for message in caplog.messages):
            for number in signals:
                os.kill(os.getpid(), number)

    with pytest.raises(Terminated) as ended:
        run(Pipeline([endless(), Blocked()]), progress, tick=0.01, drain_timeout=1000)
    assert not ended.value.drained


def test_a_stage_that_fails_while_it_drains_is_a_failure():
    def fail(n):
        os.kill(os.getpid(), signal.SIGTERM)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run(Pipeline([endless(), fail]), lambda stats: None, drain_timeout=60)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found by abstract sockets")
@pytest.mark.parametrize("descriptors", ["few", "many"])
def test_a_process_that_is_asked_to_drain_ends_as_it_should(tmp_path, request, descriptors):
    if descriptors == "many":
        request.getfixturevalue("many_descriptors")
    (tmp_path / "t.yaml").write_text("roles: {a: [Noise]}")
    key = load(tmp_path / "t.yaml").key("a")
    numbers, said = itertools.count(), []
    with ControlServer(key, 0, lambda: said.append("draining")) as control:
        (process,) = find(key)
        sink = Kept(process.ask)
        with process.connection:
            run(Pipeline([numbers, sink]), lambda stats: None, drain_timeout=60, control=control)
            control.answer(len(sink.items), True)
            assert process.answer() == (next(numbers), True)
    assert said == ["draining"]
