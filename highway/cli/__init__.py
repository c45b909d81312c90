"""The command ``highway``: run, top, check, graph and so on. Thin: each command is a few lines over the library.

Exit codes: 0 done, 1 failed while running, 2 wrong usage or file, 130 interrupted (143: terminated).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Sequence

import highway
from highway.cli import catalogue, drain, graph, run, top, unit
from highway.cli import commands as tools
from highway.cli.messages import RunError, explain
from highway.errors import ConfigError
from highway.parameters.location import did_you_mean
from highway.run.role import StuckError

DONE, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser, commands = _parser()
    given = sys.argv[1:] if arguments is None else arguments
    if given and not given[0].startswith("-") and given[0] not in commands:
        parser.error(f"there is no command {given[0]!r}{did_you_mean(given[0], commands) or '; `highway --help` lists them'}")
    options = parser.parse_args(arguments)
    try:
        code: int = options.command(options)
    except ConfigError as error:
        code = _report(error, options.traceback, WRONG)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except RunError as error:
        code = _report(error, options.traceback, FAILED)
    except StuckError as error:
        code = _report(error, options.traceback, FAILED)
        sys.stdout.flush()
        os._exit(code)
    except BrokenPipeError:  # as in `highway list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    return code


def _report(error: BaseException, traceback: bool, code: int) -> int:
    print(f"highway: {explain(error, traceback)}", file=sys.stderr, flush=True)
    return code


def _parser() -> tuple[argparse.ArgumentParser, Collection[str]]:
    """Return the parser, and the names of the commands."""
    parser = argparse.ArgumentParser(prog="highway", description=highway.__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"highway {highway.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--traceback", action="store_true", help="show where in the code an error comes from")
    for command in (run, drain, top, catalogue, graph, unit, tools):
        command.add_commands(commands, common)
    return parser, commands.choices
