"""``highway list``: lists the components and datasets, or describes one of them."""

from __future__ import annotations

import argparse
import inspect

from highway.parameters.docstrings import plain
from highway.topology.components import PACKAGES, Components, built_in


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add its options to a parser."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="the component or dataset to describe")
    parser.add_argument("--plugin", action="append", default=[], metavar="MODULE", help="allow classes of this module")


def run(options: argparse.Namespace) -> int:
    """Print the list or the description, and return the exit code."""
    if options.name:
        names = {name.lower(): name for package in PACKAGES for name in built_in(package)}
        print(Components(options.plugin).describe(names.get(options.name.lower(), options.name)))
        return 0
    for package in PACKAGES:
        print(f"{package}:")
        for name, cls in built_in(package).items():
            print(f"  {name:<20} {plain(inspect.getdoc(cls) or '').partition(chr(10))[0]}")
    print("`highway list NAME` shows the parameters of one.")
    return 0
