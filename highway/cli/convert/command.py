"""``highway convert``: images and samples from a folder, shards, .ten files or a cache, to one of these.

What was begun goes on where it stopped, if it was begun from the same files: whole shards, .ten files and images are kept; a cache is
written anew. A sample that cannot be read or written ends it with an error that names the sample; nothing is left out.
"""

from __future__ import annotations

import argparse
import os

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from highway.cli import arguments, command
from highway.cli.convert.readers import Input, open_reader
from highway.cli.convert.record import Record
from highway.cli.convert.writers import WRITERS, Decoded, Writer
from highway.engine import Pipeline
from highway.engine.stage import Stage
from highway.engine.stats import PipelineStats
from highway.errors import ConfigError
from highway.run.role import run as run_pipeline

_TICK = 0.1  # seconds between two looks at the progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    sources = "a folder of images, shards ('photos-{000..015}.tar' or photos-*.tar), .ten files, or a cache"
    parser.add_argument("source", nargs="+", metavar="SRC", help=sources)
    parser.add_argument("target", metavar="DST", help="a folder; for shards a path with their number: photos-%%06d.tar")
    parser.add_argument("--to", choices=WRITERS, help="what to make; default: shards if DST ends in .tar, else it must be said")
    parser.add_argument("--shard-size", type=arguments.positive, default=1000, metavar="N", help="samples in a shard; default: 1000")
    parser.add_argument("--workers", type=arguments.positive, metavar="N", help="threads that decode; default: the cores")


def run(options: argparse.Namespace) -> int:
    """Convert what is not converted yet, and say what was done."""
    kind = options.to or ("shards" if options.target.endswith(".tar") else "")
    if not kind:
        raise ConfigError(f"{options.target}: say what it is to be: --to {' or '.join(WRITERS)}")
    writer = WRITERS[kind](options.target, options.shard_size)
    reader = open_reader(options.source)
    if os.path.realpath(options.target) in map(os.path.realpath, options.source):
        raise ConfigError(f"{options.target}: SRC and DST are the same")
    about: dict[str, str | int] = {"files": reader.fingerprint, "kind": kind}
    if kind == "shards":
        about["shard_size"] = options.shard_size
    record = Record.open(writer.folder, os.path.basename(os.path.abspath(options.target)), about, writer.is_empty())
    if record.samples is None:
        written = _convert(reader, writer, options.workers)
        record.finish(written + writer.skipped)
        kept = f"; {writer.skipped:,} were there already" if writer.skipped else ""
        print(f"{options.target}: {written:,} samples written{kept}")
    else:
        print(f"{options.target}: all {record.samples:,} samples are there already")
    return command.DONE


def _convert(reader: Input, writer: Writer, workers: int | None) -> int:
    """Run it with a bar, and return how many samples were written."""
    decoding = [Stage(Decoded(), num_workers=workers)] if writer.decoded else []
    pipeline = Pipeline([reader.samples(writer.skip), *decoding, Stage(writer, name="write")])
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=reader.total, rate="")

        def progress(stats: PipelineStats) -> None:
            bar.update(task, completed=stats.items + writer.skipped, rate=f"{stats.rate:,.0f} samples/s")

        run_pipeline(pipeline, progress, _TICK)
    written = pipeline.stats().items
    if reader.total is not None and written + writer.skipped != reader.total:
        raise RuntimeError(f"{written + writer.skipped} of {reader.total} samples have arrived; please report this")
    return written
