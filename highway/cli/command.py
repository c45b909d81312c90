"""Define the commands, run a command, and show its errors."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, cast

from highway.cli.output import kept_for_json
from highway.errors import ConfigError, HighwayError, StuckError
from highway.process import interrupt
from highway.safe_text import for_terminal

DONE, FAILED, WRONG, INTERRUPTED = 0, 1, 2, interrupt.CODE


class CommandModule(Protocol):
    """The module of a command. mypy checks each module of a command against this protocol."""

    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None:
        """Add the options of the command to a parser."""

    def run(self, options: argparse.Namespace, /) -> int:
        """Run the command, and return the exit code.

        Raises:
            ConfigError: an option, URL or file is invalid.
        """


@dataclass(frozen=True)
class Command:
    """A command of ``highway``.

    Args:
        name: The name after ``highway``.
        module: The name of the :class:`CommandModule` in ``highway.cli``. The module is imported only if the command is given.
        summary: A one-line description.
        alone: The name of the separate program for this command, if there is one.
        logs: Whether errors and warnings begin with the command's name. If false, errors begin with ``highway``, and the command handles
            warnings.
    """

    name: str
    module: str
    summary: str
    alone: str = ""
    logs: bool = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of this command, and the common options of all commands, to a parser."""
        parser.add_argument("--traceback", action="store_true", help="show where in the code an error comes from")
        self._module().add_arguments(parser)

    def run(self, options: argparse.Namespace, name: str) -> int:
        """Run the command, print its error if it fails, and return the exit code. ``name`` is the name in messages.

        After a StuckError, the process ends at once, because a stage that does not stop would keep Python from exiting.
        """
        if self.logs:
            logging.basicConfig(format=f"{name}: %(message)s", level=logging.WARNING)
        try:
            module = self._module()
            interrupt.raise_again()  # called after the import, because an interrupt during an import could look like a failed import
            with kept_for_json() if getattr(options, "json", False) else contextlib.nullcontext():
                return module.run(options)
        except KeyboardInterrupt:
            return INTERRUPTED
        except BrokenPipeError:  # for example `tensormon | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        except Exception as error:
            print(f"{name}: {explain(error, options.traceback)}", file=sys.stderr, flush=True)
            if isinstance(error, StuckError):
                sys.stdout.flush()
                os._exit(FAILED)
            return exit_code(error)

    def _module(self) -> CommandModule:
        return cast(CommandModule, importlib.import_module(f"highway.cli.{self.module}"))


_tool = partial(Command, logs=True)

GROUPS: dict[str, tuple[Command, ...]] = {
    "run": (
        Command("quickstart", "quickstart", "run an example topology that comes with highway"),
        Command("run", "run", "run a topology, or the part of it that belongs to this machine"),
        Command("launch", "launch", "run a topology on Ray or Slurm, or write the files for Kubernetes or systemd"),
        Command("drain", "drain", "end processes of a role on this machine after they have delivered their items"),
        Command("unit", "unit", "print a systemd unit for one machine of a topology"),
    ),
    "look": (
        Command("check", "check", "check a topology file, without data or network"),
        Command("list", "list", "list the components, or describe one"),
        Command("graph", "graph", "draw a topology"),
        Command("top", "top", "show a running topology live: rates, queues, gaps, the bottleneck"),
        Command("dashboard", "streams.dashboard", "show a running topology on a page for a browser"),
        Command("schema", "schema", "print a JSON schema of topology files, for editors"),
    ),
    "measure": (
        _tool("doctor", "doctor", "report installed packages and resources of the machine, and how to be faster"),
        _tool("bench", "measure.bench", "measure each stage alone, and compute how many workers would balance the stages"),
        _tool("plan", "measure.plan", "estimate how many threads, processes and hosts a rate needs"),
    ),
    "data": (_tool("convert", "convert.command", "convert a dataset to another format, or compare two datasets"),),
    "streams": (
        _tool("show", "streams.show", "show the images of a stream with their labels, or the effect of transforms", "tensorshow"),
        _tool("mon", "streams.mon", "show the rates and losses of a stream live", "tensormon"),
        _tool("stat", "streams.stat", "report the contents of a stream, or compare them with an earlier report", "tensorstat"),
        _tool("serve-dir", "streams.serve_dir", "serve the images of a folder, randomly cropped and flipped", "serve-imagenet-dir"),
        _tool(
            "serve-shards",
            "streams.serve_shards",
            "serve the images of WebDataset shards, randomly cropped and flipped",
            "serve-imagenet-shards",
        ),
    ),
}
COMMANDS = tuple(command for group in GROUPS.values() for command in group)


class RunError(Exception):
    """A role failed at run time. The cause of this error is the error of the stage."""


def exit_code(error: BaseException) -> int:
    """Return the exit code of a command that ends with this error."""
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else WRONG if isinstance(error, ConfigError) else FAILED


def explain(error: BaseException, with_traceback: bool = False) -> str:
    """Return the message and the notes of an error.

    If highway does not define the error, the message begins with the class of the error.
    """
    if isinstance(error, RunError) and error.__cause__:
        error = error.__cause__
    if with_traceback:
        return "".join(traceback.format_exception(error)).rstrip()
    if isinstance(error, HighwayError):
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        lines = [text, *getattr(error, "__notes__", [])]
    else:
        lines = "".join(traceback.format_exception_only(error)).rstrip().splitlines()
        lines.append("(--traceback shows where in the code)")
    return "\n".join(map(for_terminal, "\n  ".join(lines).split("\n")))


def program(alone: str) -> Callable[[Sequence[str] | None], int]:
    """Return the ``main(argv=None)`` of a command that is a separate program. Wrong usage raises ``SystemExit(2)``, as in argparse."""
    (command,) = (command for command in COMMANDS if command.alone == alone)

    def run(argv: Sequence[str] | None) -> int:
        parser = argparse.ArgumentParser(alone, description=command.summary, allow_abbrev=False)
        command.add_arguments(parser)
        return command.run(parser.parse_args(argv), alone)

    def main(argv: Sequence[str] | None = None) -> int:
        if argv is None:  # this is the program itself, not a call by other code
            interrupt.begin_program()
        return run(argv)

    return main
