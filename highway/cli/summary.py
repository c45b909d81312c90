"""The result of a run, for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from highway.columns import WIDTH, Cell, fit, number
from highway.observe.accounts import Account
from highway.observe.state import ReplicaState
from highway.run.supervise import Result


def links_table(links: Sequence[Account]) -> str:
    """Return the messages of each link, as a table."""
    rows = [list(map(Cell, ("link", "sent", "received", "missing")))]
    rows += [[Cell(link.link), *map(number, (link.sent, link.received, link.missing))] for link in links]
    return fit(rows, WIDTH).text()


def losses(result: Result) -> Iterator[str]:
    """Yield a sentence for each link with missing messages that were wanted, and for each process that died with messages."""
    yield from (str(one) for one in result.links if (one.missing or one.lost or (one.doubts and one.reasons)) and not one.unwanted)
    yield from (str(one) for one in result.departures if one.held)


def to_json(result: Result) -> str:
    """Return the result as JSON; docs/reference/running.md describes the keys."""
    return json.dumps(
        {
            "code": result.code,
            "message": result.message,
            "replicas": [_replica(state) for state in result.states],
            "links": [asdict(link) for link in result.links],
            "losses": list(losses(result)),
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
