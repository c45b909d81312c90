"""The tools as commands of ``highway``."""

from __future__ import annotations

import argparse
from typing import Any

from highway.cli import bench, doctor
from highway.cli.convert import command as convert
from highway.cli.streams import mon, serve_dir, serve_shards, show, stat

TOOLS = (mon.TOOL, show.TOOL, stat.TOOL, serve_dir.TOOL, serve_shards.TOOL)  # of streams: they take URLs
LOCAL = (doctor.TOOL, bench.TOOL, convert.TOOL)


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the tools to the command line."""
    for tool in (*TOOLS, *LOCAL):
        tool.add_command(commands, common)
