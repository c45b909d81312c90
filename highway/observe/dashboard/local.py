"""Serve the page for pipelines of this process, and for runs that are polled over HTTP."""

from __future__ import annotations

import html
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Self

from highway.engine import Pipeline
from highway.errors import ConfigError
from highway.observe.dashboard.looking import Looker, Take, at_link, at_pipeline
from highway.observe.dashboard.site import Site
from highway.observe.endpoint import Answers
from highway.observe.poll import View
from highway.observe.snapshot import Snapshot
from highway.observe.state import Phase, ReplicaState
from highway.topology import Topology
from highway.topology.graph import graph
from highway.topology.spec import MetricsSpec, parse_metrics

OPTION = "--dashboard"
ELSEWHERE = "Logs are on the page of the run itself: highway run --dashboard."


def parse_address(text: str) -> MetricsSpec:
    """Parse the value of ``--dashboard [[ADDRESS:]PORT]``. The default is any free port, reachable only from this machine.

    Raises:
        ConfigError: the text is invalid.
    """
    return parse_metrics(text or "0", option=OPTION)


def site_of(topology: Topology, look: Callable[[], View] | None = None, check: Sequence[str] = (), note: str = ELSEWHERE) -> Site:
    """Return the page of a topology, with pictures of the batches on its links.

    Args:
        topology: The topology.
        look: A function that returns a view. ``None``: the page shows the view of its own endpoint.
        check: The messages of ``highway check``.
        note: A note on what the page cannot show.
    """
    plan = topology.plan
    looker = Looker({link: at_link(plan, link) for link in plan.links})
    return Site(plan.name, look, looker, list(plan.links), graph(topology), check, note)


class ServedPage:
    """A page that is served until :meth:`close` is called. A notebook shows the address of the page as a link.

    Attributes:
        url: The address of the page.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers, self.url = answers, answers.page

    def close(self) -> None:
        """Stop serving the page. Closing again does nothing."""
        self._answers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"dashboard at {self.url}"

    def _repr_html_(self) -> str:
        address = html.escape(self.url)
        return f'<a href="{address}" target="_blank" rel="noopener">dashboard at {address}</a>'


def serve(pipelines: Mapping[str, Pipeline], address: str = "", title: str = "") -> ServedPage:
    """Serve the page for pipelines of this process, and print the address of the page. The keys of ``pipelines`` are names to show.

    The page is served until :meth:`ServedPage.close`, or until all of the pipelines are deleted.

    Raises:
        ConfigError: the address is invalid, in use, or not an address of this machine.
    """
    spec = parse_address(address)
    left = {name: weakref.ref(pipeline) for name, pipeline in pipelines.items()}
    title = title or ", ".join(map(str, pipelines.values()))
    snapshot = partial(_snapshot, left, title)
    site = Site(title, None, Looker({name: _taken(each) for name, each in left.items()}), list(pipelines))
    try:
        served = ServedPage(answers := Answers(snapshot, spec, site, OPTION))
    except ConfigError:
        site.close()
        raise
    alive = set(left)
    for name, pipeline in pipelines.items():
        weakref.finalize(pipeline, _forget, alive, name, answers.stop)
    print(f"dashboard at {served.url}", flush=True)
    return served


def _forget(alive: set[str], name: str, stop: Callable[[], None]) -> None:
    alive.discard(name)
    if not alive:
        stop()


def _taken(pipeline: weakref.ref[Pipeline]) -> Take:
    def take() -> Any:
        if (one := pipeline()) is None:
            raise TimeoutError
        return at_pipeline(one)()

    return take


def _snapshot(pipelines: Mapping[str, weakref.ref[Pipeline]], title: str) -> Snapshot:
    found = ((name, pipeline()) for name, pipeline in pipelines.items())
    return Snapshot(title, [_state(name, pipeline) for name, pipeline in found if pipeline is not None])


def _state(name: str, pipeline: Pipeline) -> ReplicaState:
    stats, (has_ended, failure) = pipeline.stats(), pipeline.outcome()
    phase: Phase = "failed" if failure else "ended" if has_ended else "running" if stats.seconds else "starting"
    return ReplicaState(name, phase=phase, stats=stats, error=f"{type(failure).__name__}: {failure}" if failure else "")
