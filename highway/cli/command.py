"""What all tools share: how they are started, and what they answer."""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from highway.errors import ConfigError
from highway.process import interrupt

DONE, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130


@dataclass(frozen=True)
class Tool:
    """A command of its own that is also one of ``highway``.

    Args:
        name: What it is called alone.
        command: What it is called behind ``highway``.
        summary: One line that says what it does.
        add_arguments: Adds its options to a parser.
        run: Does the work and returns the exit code. Raises ConfigError for an option, URL or file that cannot be used as written, and
            whatever else goes wrong.
    """

    name: str
    command: str
    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run the tool under its own name and return the exit code; wrong usage leaves by ``SystemExit(2)``, as always with argparse."""
        return interrupt.run_command(lambda: self._main(argv))

    def _main(self, argv: Sequence[str] | None) -> int:
        parser = argparse.ArgumentParser(self.name, description=self.summary, allow_abbrev=False)
        parser.add_argument("--traceback", action="store_true", help="show where in the code an error comes from")
        self.add_arguments(parser)
        return self._guarded(self.name, parser.parse_args(argv))

    def add_command(self, commands: Any, common: argparse.ArgumentParser) -> None:
        """Add the tool to the command line ``highway``; ``common`` has the options of all its commands, ``--traceback`` among them."""
        parser = commands.add_parser(self.command, parents=[common], help=self.summary, description=self.summary, allow_abbrev=False)
        self.add_arguments(parser)
        parser.set_defaults(command=partial(self._guarded, f"highway {self.command}"))

    def _guarded(self, name: str, options: argparse.Namespace) -> int:
        logging.basicConfig(format=f"{name}: %(message)s", level=logging.WARNING)
        try:
            return self.run(options)
        except KeyboardInterrupt:
            return INTERRUPTED
        except BrokenPipeError:  # as in `tensormon | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        except Exception as error:
            from highway.cli.messages import explain  # here, since highway.cli imports the tools

            print(f"{name}: {explain(error, options.traceback)}", file=sys.stderr, flush=True)
            return WRONG if isinstance(error, ConfigError) else FAILED


def positive(text: str) -> int:
    """Return a whole number above 0; for ``type=``."""
    return _whole(text, 1, "above 0")


def natural(text: str) -> int:
    """Return a whole number that is not negative; for ``type=``."""
    return _whole(text, 0, "at least 0")


def _whole(text: str, least: int, expected: str) -> int:
    if not re.fullmatch(r"-?\d+", text) or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text}; expected a whole number {expected}")
    return int(text)


def seconds(text: str) -> float:
    """Return a number of seconds above 0; for ``type=``."""
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text}; expected a number of seconds above 0")
    return number


def share(text: str) -> float:
    """Return a number that is not negative; for ``type=``."""
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}; expected a number, at least 0")
    return number
