"""``highway launch``: launch a topology on an engine, such as Ray or Slurm, which chooses the hosts of the roles.

A *role* is a pipeline of the topology file.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from highway.cli.command import DONE
from highway.cli.files import add_file_options, load_checked
from highway.cli.output import run_apart
from highway.cli.run import add_run_options
from highway.cli.summary import broken_off, document_of_errors
from highway.errors import ConfigError
from highway.run.engines import LiveEngine, RenderingEngine
from highway.run.launchers.table import ENGINES
from highway.topology.wiring import Wiring


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file_options(parser)
    places = "; ".join(f"{engine.name}: {engine.what}" for engine in ENGINES.values())
    parser.add_argument("--on", choices=ENGINES, required=True, metavar="ENGINE", help=f"the engine that runs the roles: {places}")
    add_run_options(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the files or jobs for the engine, and start nothing")
    parser.add_argument("--render", metavar="DIR", type=Path, help="the folder for the written files, for engines that only write files")
    for engine in ENGINES.values():
        group = parser.add_argument_group(f"options of {engine.name}")
        for option in engine.options:
            group.add_argument(f"--{option.name}", **option.settings)


def run(options: argparse.Namespace) -> int:
    """Launch a topology, or write the files for the engine's own tools, and return the exit code."""
    engine = ENGINES[options.on]
    for other in ENGINES.values():
        for option in other.options if other is not engine else ():
            if getattr(options, option.name) != option.settings.get("default"):
                raise ConfigError(f"--{option.name} is an option of --on {other.name}; remove it, or use another engine than {engine.name}")
    if isinstance(engine, RenderingEngine):
        return _render(engine, options)
    assert isinstance(engine, LiveEngine)
    if options.dry_run:
        if engine.preview is None:
            raise ConfigError(
                f"--dry-run: there is nothing to show for {engine.what}, because no files are written; use `highway "
                f"check` to check the topology"
            )
        return _show(engine.preview(_placed(engine, options), options))
    if options.json and engine.may_be_ended_by:
        return run_apart(lambda: _launch(engine, options), engine.may_be_ended_by, broken_off)
    return _launch(engine, options)


def _launch(engine: LiveEngine, options: argparse.Namespace) -> int:
    from highway.cli.run_here import run_processes  # imported here, because engines that only write files need no screen

    with document_of_errors(options.json):
        return run_processes(_placed(engine, options), options, engine.connect)


def _placed(engine: LiveEngine, options: argparse.Namespace) -> Wiring:
    topology = load_checked(options, look_only=False)
    engine.check(topology)
    return engine.placed(topology)


def _render(engine: RenderingEngine, options: argparse.Namespace) -> int:
    topology = load_checked(options, look_only=True)
    engine.check(topology)
    files = engine.render(topology, options)
    if options.dry_run:
        return _show(files)
    if options.render is None:
        raise ConfigError(f"--on {engine.name} writes files; pass --render DIR, the folder for the files, or --dry-run to print them")
    paths = {options.render / name: text for name, text in files.items()}
    for path in paths:
        if not path.resolve().is_relative_to(options.render.resolve()):
            raise ConfigError(f"--render {options.render}: {path} would be outside this folder; give the host another name in the topology")
    for path, text in paths.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--render {options.render}: {path} cannot be written: {error.strerror}") from None
        print(path)
    return DONE


def _show(texts: Mapping[str, str]) -> int:
    """Print the name and then the content of each text."""
    print("\n".join(f"# {name}\n{text}" for name, text in texts.items()), end="")
    return DONE
