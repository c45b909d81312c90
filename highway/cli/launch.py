"""``highway launch``: a topology on an engine, which decides on which hosts its roles run."""

from __future__ import annotations

import argparse
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

import highway
from highway.cli.command import DONE
from highway.cli.files import add_file_options, load_checked
from highway.cli.run import add_run_options
from highway.errors import ConfigError
from highway.run.engines import ENGINES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file_options(parser)
    places = "; ".join(f"{engine.name}: {engine.what}" for engine in ENGINES.values())
    parser.add_argument("--on", choices=ENGINES, required=True, metavar="ENGINE", help=f"where roles run: {places}")
    add_run_options(parser)
    parser.add_argument("--dry-run", action="store_true", help="print what would be handed to the engine, and start nothing")
    parser.add_argument(
        "--cluster", metavar="ADDRESS", default="auto", help="ray: the cluster's address (default: the one this host is in)"
    )
    parser.add_argument("--name", help="ray: what the run is called in the cluster (default: the file's name without .yaml)")
    parser.add_argument(
        "--folder", metavar="DIR", type=Path, help="slurm: a new folder of the run that all hosts see (default: in highway-runs)"
    )
    parser.add_argument("--render", metavar="DIR", type=Path, help="kubernetes, systemd: the folder to write the files into")
    image = f"highway:{highway.__version__}"
    parser.add_argument("--image", metavar="IMAGE", default=image, help="kubernetes: the container image (default: %(default)s)")
    claim = "kubernetes: a PersistentVolumeClaim, and where all pods find what it holds, such as datasets:/data"
    parser.add_argument("--claim", metavar="NAME:PATH", action="append", type=_claim, default=[], help=claim)


def _claim(text: str) -> tuple[str, str]:
    name, _, path = text.partition(":")
    if not (
        re.fullmatch(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?", name) and re.fullmatch(r"/[^:]*[^:/]", path) and posixpath.normpath(path) == path
    ):
        raise ValueError
    return name, path


_claim.__name__ = "claim, NAME:/PATH,"  # as argparse calls it in messages


def run(options: argparse.Namespace) -> int:
    """Launch a topology, or write what the engine's own tools start, and return the exit code."""
    engine = ENGINES[options.on]
    topology = load_checked(options, look_only=engine.renders)
    engine.check(topology)
    if not engine.renders:
        from highway.cli.run_here import run_processes  # here, since only what is watched needs a screen

        wiring = engine.module.placed(topology)
        if options.dry_run:
            return _show(engine.preview(wiring, options))
        return run_processes(wiring, options, engine.module.connect)
    files = engine.module.render(topology, options)
    if options.dry_run:
        return _show(files)
    if options.render is None:
        raise ConfigError(f"--on {engine.name} writes files; give --render DIR, the folder to write them into, or --dry-run to see them")
    paths = {options.render / name: text for name, text in files.items()}
    for path in paths:
        if not path.resolve().is_relative_to(options.render.resolve()):
            raise ConfigError(f"--render {options.render}: {path} is not in that folder; give the host another name in the file")
    for path, text in paths.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--render {options.render}: {path} cannot be written: {error.strerror}") from None
        print(path)
    return DONE


def _show(texts: Mapping[str, str]) -> int:
    """Print texts, each behind its name."""
    print("\n".join(f"# {name}\n{text}" for name, text in texts.items()), end="")
    return DONE
