"""The result of a run, as text for people and as JSON."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from highway.cli.command import INTERRUPTED, WRONG, exit_code, explain
from highway.cli.output import own_stdout
from highway.columns import Cell, fit, number, terminal_width
from highway.observe.accounts import Account
from highway.observe.poll import Sample
from highway.observe.snapshot import Ends
from highway.observe.state import ReplicaState
from highway.observe.wait import waiting
from highway.run.supervise import Result


def links_table(links: Sequence[Account]) -> str:
    """Return the message counts of each link, as a table that fits the terminal."""
    rows = [list(map(Cell, ("link", "sent", "received", "missing")))]
    rows += [[Cell(link.link), *map(number, (link.sent, link.received, link.missing))] for link in links]
    return fit(rows, terminal_width()).text()


def losses(result: Result) -> Iterator[str]:
    """Yield a sentence for each link that has lost needed messages, and for each process that ended with unprocessed messages."""
    yield from (str(one) for one in result.links if (one.missing or one.lost or (one.doubts and one.reasons)) and not one.unwanted)
    yield from (str(one) for one in result.departures if one.held)


@contextlib.contextmanager
def document_of_errors(as_json: bool) -> Iterator[None]:
    """If an error ends the ``with`` block and ``as_json`` is true, print a result as JSON. The error is raised again."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if as_json:
            code = exit_code(error)
            with contextlib.suppress(OSError):
                print(broken_off(code, explain(error) if code != INTERRUPTED else "interrupted"), file=own_stdout(), flush=True)
        raise


def broken_off(code: int, message: str) -> str:
    """Return the result of a run that ended with an error, as JSON."""
    return _document(Result(code, message, []), [] if code == WRONG else [message])  # with WRONG, no process was started


def answer(states: Sequence[ReplicaState], ends: Mapping[str, Ends]) -> str:
    """Return a text that names the bottleneck of a run and a change that helps; empty if no process ran.

    Args:
        states: The states of the replicas at the end.
        ends: The links of the replicas, by the names of the replicas.
    """
    ran = [
        Sample(replace(state, phase="running"), state.stats, ends.get(state.name, Ends()), state.host) for state in states if state.stats
    ]
    return waiting(ran).sentence if ran else ""


def to_json(result: Result, ends: Mapping[str, Ends]) -> str:
    """Return the result as JSON. docs/reference/running.md describes the keys."""
    return _document(result, list(losses(result)), answer(result.states, ends))


def _document(result: Result, losses: list[str], answer: str = "") -> str:
    return json.dumps(
        {
            "code": result.code,
            "message": result.message,
            "answer": answer,
            "replicas": [_replica(state) for state in result.states],
            "links": [asdict(link) for link in result.links],
            "losses": losses,
        },
        indent=2,
        default=str,
    )


def _replica(state: ReplicaState) -> dict[str, Any]:
    about = {name: getattr(state, name) for name in ("name", "role", "replica", "host", "phase", "restarts", "error")}
    about |= {"received": state.counts.received, "sent": state.counts.sent}
    if stats := state.stats:
        about |= {"items": stats.items, "seconds": stats.seconds, "stages": [asdict(stage) for stage in stats.stages]}
    return about
