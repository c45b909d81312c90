"""Show a run: a live table (periodic lines if there is no terminal), the output of processes, and a summary at the end."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self, TextIO, cast

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from highway.cli.output import Output, own_stdout
from highway.cli.summary import answer, links_table
from highway.cli.tables import table
from highway.columns import Cell, number, percent, terminal_width, wrapped
from highway.engine.stats import PipelineStats
from highway.observe.accounts import Account
from highway.observe.figures import Recent
from highway.observe.snapshot import Ends
from highway.observe.state import ReplicaState

INTERVAL = 5.0  # seconds between two lines about the state if there is no terminal

_HEADINGS = ("role", "stage", "items", "items/s", "MB/s", "busy", "starved", "blocked", "queued", "errors", "")
_LESS = tuple(_HEADINGS.index(heading) for heading in ("queued", "MB/s", "starved", "blocked", "errors"))  # narrow terminals omit these
_NAMES = (0, 1, 10)
_COLORS = ("cyan", "magenta", "green", "yellow", "blue", "red")


class Screen:
    """Shows the state of a topology's processes.

    The statistics and the log go to standard error, so that standard output has only the processes' output and the final summary.

    Args:
        keep_output: Whether to reserve standard output for the summary. If true, the processes' output goes to standard error.
    """

    def __init__(self, keep_output: bool = False) -> None:
        self._keep_output = keep_output
        self._out = Output(own_stdout(), "standard output", lambda text: self.say(f"highway: {text}"))
        self._error = Output(sys.stderr, "standard error", self._tell_elsewhere)
        self.console = Console(file=cast(TextIO, self._error), highlight=False)
        self.listeners: list[Callable[[str, str, bool], None]] = []  # functions with the arguments of :meth:`line`
        self._live: Live | None = None
        if self.console.is_terminal:
            self._live = Live(console=self.console, auto_refresh=False, transient=True, redirect_stdout=self._out.isatty())
        self._lines: list[Text] = []  # lines to show with the next table, because it would take too long to draw the table for each line
        self._recent = Recent()
        self._colors: dict[str, str] = {}
        self._started = self._shown = time.monotonic()

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._show_lines()
            self._live.stop()

    def line(self, name: str, text: str, is_error: bool) -> None:
        """Show a line that the process ``name`` printed. A terminal shows the line at the next :meth:`update`, or at the end."""
        for listener in self.listeners:
            listener(name, text, is_error)
        is_error = is_error or self._keep_output
        if self._live and (is_error or self._out.isatty()):
            self._lines.append(Text.assemble((f"{name} | ", self._color(name)), text))
        else:
            print(f"{name} | {text}", file=self._error if is_error else self._out, flush=True)

    def print(self, text: str) -> None:
        """Print a text on standard output."""
        print(text, file=self._out, flush=True)

    def say(self, text: str) -> None:
        """Show a message of highway on standard error, below the table if there is a table."""
        print(wrapped(text, self.console.width) if self.console.is_terminal else text, file=self._error, flush=True)

    def _tell_elsewhere(self, text: str) -> None:
        if not self._keep_output:
            self.print(f"highway: {text}")

    def update(self, states: Sequence[ReplicaState]) -> None:
        """Show the states of the replicas (processes). Call this method several times per second."""
        lately = [self._recent.add(state.name, state.stats) if state.stats else None for state in states]
        if self._live:
            self._show_lines()
            self._live.update(self.table(states, lately), refresh=True)
        elif time.monotonic() - self._shown >= INTERVAL:
            self._shown = time.monotonic()
            rates = [
                f"{state.name} {state.stats.items:,} ({', '.join([f'{recent.rate:,.1f}/s', *_remarks(state)])})"
                if state.stats and recent
                else f"{state.name} ({state.phase})"
                for state, recent in zip(states, lately, strict=True)
            ]
            print(f"[{self._shown - self._started:.0f} s] items: {', '.join(rates)}", file=self._error, flush=True)

    def summary(self, states: Sequence[ReplicaState], links: Sequence[Account], ends: Mapping[str, Ends]) -> None:
        """Print the bottleneck of the run, the results of each process, and the message counts of each link.

        The table of a restarted replica shows only the last process. The counts of links include all processes.
        """
        parts = [wrapped(answer(states, ends), terminal_width())]
        for state in states:
            if figures := state.stats:
                again = f" since restart {state.restarts}" if state.restarts else ""
                done = f"{state.name}: {figures.items:,} items in {figures.seconds:.1f} s, {figures.rate:,.1f} items/s{again}"
                parts.append(f"{done}\n{figures.table()}")
        if links:
            parts.append(links_table(links))
        for part in filter(None, parts):
            self.print(f"\n{part}")

    def finish(self) -> None:
        """Drop text that cannot be written. Otherwise the interpreter would try to write the text at exit."""
        self._out.finish()
        self._error.finish()

    def table(self, states: Sequence[ReplicaState], lately: Sequence[PipelineStats | None]) -> RenderableType:
        """Return a table of the stages of each replica. ``lately`` has the statistics of the last seconds, for rates and time shares."""
        rows = [list(map(Cell, _HEADINGS))]
        for state, figures in zip(states, lately, strict=True):
            name, remark = Cell(state.name, style=self._color(state.name)), Cell(", ".join(_remarks(state)))
            if not (state.stats and figures):
                rows.append([name, remark, *[Cell("")] * (len(_HEADINGS) - 2)])
                continue
            per_second = 1 / max(figures.seconds, 1e-9)
            for position, (stage, recent) in enumerate(zip(state.stats.stages, figures.stages, strict=True)):
                shares = (Cell(percent(recent.share(part))) for part in (recent.busy, recent.starved, recent.blocked))
                row = [Cell("") if position else name, Cell(stage.name), number(stage.items)]
                row += [number(recent.items * per_second, 1), number(recent.bytes * per_second / 1e6, 1), *shares]
                row.append(Cell(f"{stage.queued}/{stage.capacity}" if stage.capacity else "-"))
                rows.append([*row, number(stage.errors, style="red" if stage.errors else ""), Cell("") if position else remark])
        return table(rows, self.console.width, _LESS, _NAMES)

    def _show_lines(self) -> None:
        """Show the processes' output above the table, and draw the table again."""
        lines, self._lines = self._lines, []
        if lines:
            self.console.print(Text("\n").join(lines), soft_wrap=True)

    def _color(self, name: str) -> str:
        return self._colors.setdefault(name, _COLORS[len(self._colors) % len(_COLORS)])


def _remarks(state: ReplicaState) -> list[str]:
    """Return remarks about a replica, for example that the replica has ended or was restarted."""
    said: list[str] = [] if state.phase == "running" else [state.phase]
    return [*said, f"restarts: {state.restarts}"] if state.restarts else said


class LogHandler(logging.Handler):
    """Shows log records on a console, above the table."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.levelname.lower()}: {self.format(record)}"
        self._console.print(Text(text, style="yellow" if record.levelno >= logging.WARNING else ""), soft_wrap=True)
