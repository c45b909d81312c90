"""``highway dashboard``: serve a page for browsers about a run that has already started, on this machine or other machines."""

from __future__ import annotations

import argparse
import time

from highway.cli.check import sentences
from highway.cli.files import add_file_options, load_checked
from highway.cli.run import add_dashboard_option
from highway.cli.top import endpoints, poller
from highway.observe.dashboard.local import ELSEWHERE, OPTION, parse_address, site_of
from highway.observe.dashboard.looking import Looker
from highway.observe.dashboard.site import Site
from highway.observe.endpoint import Answers
from highway.observe.poll import Poller, View
from highway.observe.snapshot import Snapshot

INTERVAL = 1.0  # seconds between two polls


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Serve a page that shows a running topology. You can pass endpoints (http://host:port) in place of FILE."
    add_file_options(parser)
    add_dashboard_option(parser)
    add = parser.add_argument
    add("--metrics", metavar="PORT", help="the port of the endpoints, or a range of ports; default: the port in the file")
    add("--host", metavar="NAME", help="show only this host of the file")
    add("--local", action="store_true", help="use this machine in place of all hosts of the file, as `highway run FILE` does")


def run(options: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C, and return the exit code."""
    latest = _Latest()
    if urls := endpoints(options):
        source = Poller(urls)
        title = ", ".join(target.host for target in urls)
        site = Site(title, latest.view, Looker({}), note=f"{ELSEWHERE} Pictures need the file: highway dashboard FILE.")
    else:
        topology = load_checked(options)
        topology = topology.on_this_machine() if options.local else topology
        source, title = poller(topology, options), topology.plan.name
        site = site_of(topology, latest.view, list(sentences(topology)))
    latest.seen = source.poll()
    with Answers(lambda: latest.snapshot(title), parse_address(options.dashboard or ""), site, OPTION) as answers:
        print(f"dashboard at {answers.page}", flush=True)
        try:
            while True:
                time.sleep(INTERVAL)  # polls are periodic until Ctrl-C
                latest.seen = source.poll()
        except KeyboardInterrupt:  # Ctrl-C is the normal end
            return 0


class _Latest:
    """The last view. Another thread can read the view."""

    def __init__(self) -> None:
        self.seen = View(())

    def view(self) -> View:
        return self.seen

    def snapshot(self, title: str) -> Snapshot:
        """Return the replicas of all runs as a single run."""
        samples = self.seen.samples
        return Snapshot(title, [one.state for one in samples], {one.state.name: one.ends for one in samples}, self.seen.losses)
