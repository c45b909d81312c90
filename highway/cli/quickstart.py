"""``highway quickstart``: run the topology that is in the package."""

from __future__ import annotations

import argparse
from pathlib import Path

import highway.data
from highway.cli import run as run_command
from highway.cli.files import add_settings

FILE = Path(highway.data.__file__).with_name("quickstart.yaml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``highway run``, but no argument for the file, because the file is always the topology in the package."""
    parser.description = (
        "Read photographs of the highway package in one process, augment them in two processes, and draw the first images into "
        f"out/quickstart.png. This is `highway run {FILE}`; copy the file to begin your own."
    )
    parser.set_defaults(files=[str(FILE)])
    add_settings(parser)
    run_command.add_role_options(parser)


run = run_command.run
