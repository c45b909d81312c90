"""``highway schema``: print the JSON schema of topology files, for editors."""

from __future__ import annotations

import argparse
import json

from highway.topology.schema import schema


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Do nothing, because the command has no options."""


def run(options: argparse.Namespace) -> int:
    """Print the JSON schema and return the exit code."""
    print(json.dumps(schema(), indent=2))
    return 0
