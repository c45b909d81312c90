"""``highway convert``: convert images and samples from one format to another format.

If a conversion was interrupted and the source has not changed, the next call of the command continues the conversion and keeps complete
files. A conversion to a single file starts again from the beginning. If a sample cannot be read or written, the conversion ends with an
error that names the sample. No sample is skipped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from highway.cli import arguments, command
from highway.cli.convert.check import Compared, Differences
from highway.cli.convert.format import read, read_back, table, written_to, written_with
from highway.cli.convert.reading import Input
from highway.cli.convert.target import Target
from highway.cli.convert.writing import Prepared, converting, unwritten
from highway.datasets.folder_writer import EXTENSIONS
from highway.datasets.opening import recognised
from highway.datasets.writing import write_whole
from highway.engine import Pipeline
from highway.engine.stage import Stage
from highway.engine.stats import PipelineStats
from highway.errors import ConfigError, DatasetError, ImageError, StoreError
from highway.images.decode import decode
from highway.images.header import read_header
from highway.run.role import run as run_pipeline
from highway.stores.file import exists, open_text, remove
from highway.stores.url import is_url, join, shown, without_options

Images = Literal["files", "bytes", "pixels"]
Sample = dict[str, Any]

_OF_FORMAT = {"BMP": "bmp", "GIF": "gif", "JPEG": "jpg", "PNG": "png", "PPM": "ppm", "TIFF": "tif", "WEBP": "webp"}


def _as_files(sample: Sample) -> Sample:
    """Rename the field ``image`` to the image's extension, such as ``jpg``, and ``label`` to ``cls``, as in a shard.

    The label ``cls`` becomes an int32. If ``image`` is not an encoded image, or not the only one, the names stay.

    Raises:
        ValueError: the label does not fit into int32.
    """
    name, extension = _encoded_image(sample), ""
    if name == "image":
        with contextlib.suppress(ImageError):  # the bytes are not an image
            extension = _OF_FORMAT[read_header(sample[name]).format]
    found = _renamed(sample, {name: extension} | _label(sample, "label", "cls")) if extension else sample
    if not isinstance(label := found.get("cls"), (int, np.integer)):
        return found
    if not -(2**31) <= label < 2**31:
        raise ValueError(f"the label {label} does not fit into int32, the type of labels in shards")
    return found | {"cls": np.int32(label)}


def _as_bytes(sample: Sample) -> Sample:
    """Rename the encoded image of a sample to ``image``, and its label to ``label``."""
    name = _encoded_image(sample)
    return _renamed(sample, {name: "image"} | _label(sample, "cls", "label")) if name and "image" not in sample else sample


def _as_pixels(sample: Sample) -> Sample:
    """Decode the images of a sample to uint8 ``(H, W, 3)``. Rename a single image to ``image``, and the label to ``label``."""
    name = _encoded_image(sample)
    names = [name] if name else [name for name in sample if _is_encoded(sample, name)]
    renamed = {name: "image"} if name and "image" not in sample else {}
    return _renamed(sample | {name: decode(sample[name]) for name in names}, renamed | _label(sample, "cls", "label"))


AS: dict[Images, Callable[[Sample], Sample]] = {"files": _as_files, "bytes": _as_bytes, "pixels": _as_pixels}


def _is_encoded(sample: Sample, name: str) -> bool:
    return isinstance(sample[name], bytes) and name in EXTENSIONS


def _encoded_image(sample: Sample) -> str:
    """Return the name of the field with an encoded image, or an empty text if there is no such field or several."""
    names = [name for name in sample if _is_encoded(sample, name) or (name == "image" and isinstance(sample[name], bytes))]
    return names[0] if len(names) == 1 else ""


def _label(sample: Sample, old: str, new: str) -> dict[str, str]:
    return {old: new} if isinstance(sample.get(old), (int, np.integer)) and new not in sample else {}


def _renamed(sample: Sample, names: dict[str, str]) -> Sample:
    return {names.get(name, name): value for name, value in sample.items()}


_SHARD = 1000  # default samples per file
_TICK = 0.1  # seconds between two updates of the progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"Formats:\n{table()}"
    sources = "the dataset to read: a path, a pattern ('photos-{000..015}.tar', photos-*.tar), or several paths of one format"
    parser.add_argument("source", nargs="+", metavar="SRC", help=sources)
    target = "the path to write; to write several files, include a number format: photos-%%06d.tar"
    parser.add_argument("target", metavar="DST", help=target)
    parser.add_argument(
        "--from", dest="source_format", metavar="FORMAT", help="the format of SRC; default: determined by the name or content of SRC"
    )
    parser.add_argument("--to", metavar="FORMAT", help="the format of DST; default: determined by the name of DST")
    said = "a parameter of the dataset that reads SRC, such as split=val (see `highway list`); VALUE can be JSON; repeatable"
    parser.add_argument("--read", action="append", default=[], type=_option, metavar="NAME=VALUE", help=said)
    said = "a parameter of the writer of DST; docs/howto/formats.md lists the parameters; repeatable"
    parser.add_argument("--write", action="append", default=[], type=_option, metavar="NAME=VALUE", help=said)
    said = f"number of samples per file, if DST has a number format; default: {_SHARD}"
    parser.add_argument("--shard-size", type=arguments.positive, metavar="N", help=said)
    parser.add_argument(
        "--images",
        choices=("encoded", "decoded"),
        help="write images as encoded files or as decoded pixels; the default depends on the format",
    )
    said = "names for the fields of tuples; default: image,label if the first field is an encoded image, otherwise 0,1,..."
    parser.add_argument("--names", metavar="NAME,...", help=said)
    parser.add_argument("--fields", metavar="NAME,...", help="the fields to write, by their names in SRC; default: all")
    parser.add_argument("--number-keys", action="store_true", help="use the index of a sample as its key, instead of its key in SRC")
    said = "after the conversion, compare each sample in DST with SRC, and verify the checksums in SRC and DST"
    parser.add_argument("--check", action="store_true", help=said)
    parser.add_argument(
        "--workers",
        type=arguments.positive,
        metavar="N",
        help="number of threads that read, decode and write; default: the number of cores, or 16 for one object per sample in a store",
    )


def run(options: argparse.Namespace) -> int:
    """Convert all samples that are not converted yet, and print a summary."""
    to = written_to(options.target, options.to)
    target = Target(options.target, to, options.shard_size or _SHARD, written_with(to, dict(options.write)))
    if options.shard_size and not (target.pattern and to.layout == "files"):
        several = f"samples-%06d{to.suffixes[0]}" if to.layout == "files" else f"{to.name} has none"
        raise ConfigError(f"{target.name}: --shard-size writes several files, so DST needs a number format: {several}")
    of, paths = recognised(options.source, options.source_format)
    if _place(options.target) in map(_place, paths):
        raise ConfigError(f"{target.name}: SRC and DST are the same")
    if options.check:
        target.expect_readable()
    names, fields = (tuple(given.split(",")) if given else () for given in (options.names, options.fields))
    encoded: Images = "bytes" if to.images == "pixels" else to.images
    images: Mapping[str | None, Images] = {None: to.images, "encoded": encoded, "decoded": "pixels"}
    source = Input(read(of, paths, dict(options.read), options.check), AS[images[options.images]], names, fields, options.number_keys)
    if source.total == 0:
        raise DatasetError(f"{options.source[0]}: the dataset has no samples")
    said: dict[str, Any] = {  # further settings that change the result
        "shard_size": target.size if target.pattern and to.layout == "files" else None,
        "images": options.images,
        "names": options.names,
        "fields": options.fields,
        "read": dict(options.read),
        "write": dict(options.write),
        "number_keys": options.number_keys,
    }
    about = {"files": source.fingerprint(paths), "kind": to.name, **{name: value for name, value in said.items() if value}}
    record = Record.open(join(target.folder, target.record), target.path, about, target.is_empty())
    if record.samples is None and (whole := target.whole(source.total)) is not None:
        record.finish(whole)
    if record.samples is None or target.lacks(record.samples):
        target.remove_parts()
        if record.was_begun and not target.is_written_in_parts and not target.pattern:
            print(f"{target.name}: the conversion starts again from the beginning, because a single file cannot be continued")
        try:
            written, kept = _convert(source, target, options.workers)
        except BaseException:
            with contextlib.suppress(StoreError, PermissionError):  # the first error takes precedence
                if target.is_empty():
                    record.remove()
            raise
        record.finish(written + kept)
        there = f"; {kept:,} already existed" if kept else ""
        print(f"{target.name}: {written:,} samples written{there}")
    else:
        print(f"{target.name}: all {record.samples:,} samples already exist")
    return _check(source, target, options.workers) if options.check else command.DONE


def _option(text: str) -> tuple[str, Any]:
    """Return the name and the value of an option ``NAME=VALUE``, for the parameter ``type`` of argparse."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text}; expected NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _place(path: str) -> str:
    """Return a normalised path or URL, which is equal for two names of the same place."""
    return without_options(path).rstrip("/") if is_url(path) else os.path.realpath(path)


def _convert(source: Input, target: Target, workers: int | None) -> tuple[int, int]:
    """Write the missing samples. Return how many samples were written, and how many existed before."""
    kept = 0 if source.total is None else source.total - sum(map(len, target.units(source.total)))
    pipeline = converting(source, target, workers)
    with target.opened():
        _run(pipeline, source.total, kept)
    written, skipped = _counted(pipeline.stats())
    if source.total is not None and written + kept != source.total:
        raise RuntimeError(f"only {written + kept} of {source.total} samples were converted; please report this error of highway")
    return written, kept + skipped


def _check(source: Input, target: Target, workers: int | None) -> int:
    """Compare the converted dataset with the source, print the differences, and return the exit code."""
    back = Input(read_back(target.format, target.paths()), lambda sample: sample)
    compared = Compared(Prepared(source), back, target.format)
    found = Differences(back.total or 0)
    pipeline = Pipeline([unwritten(source, None), Stage(compared, num_workers=workers), found])
    _run(pipeline, source.total, 0)
    return found.report(target.name)


def _run(pipeline: Pipeline, total: int | None, kept: int) -> None:
    """Run a pipeline with a progress bar."""
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeElapsedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total, completed=kept, rate="")

        def progress(stats: PipelineStats) -> None:
            done, skipped = _counted(stats)
            bar.update(task, completed=done + skipped + kept, rate=f"{done / max(stats.seconds, 1e-9):,.0f} samples/s")

        run_pipeline(pipeline, progress, _TICK)


def _counted(stats: PipelineStats) -> tuple[int, int]:
    """Return how many samples were written or compared, and how many samples the source has skipped."""
    counts = [stage.counters for stage in stats.stages]
    return sum(count.get("samples", 0) for count in counts), sum(count.get("skipped", 0) for count in counts)


@dataclass
class Record:
    """The record of a conversion, which is a file.

    ``path`` is the path of the file, and ``about`` has the source and the settings. ``samples`` is the number of samples, or ``None``
    before the conversion is complete. ``was_begun`` is true if an earlier call has begun the conversion.
    """

    path: str
    about: Mapping[str, Any]
    samples: int | None = None
    was_begun: bool = False

    @classmethod
    def open(cls, path: str, target: str, about: Mapping[str, Any], is_empty: bool) -> Record:
        """Begin or continue a conversion to a target. ``is_empty``: whether the target has no files.

        Raises:
            ConfigError: the target has files without a record, the record is damaged, or its source or settings are different.
        """
        record, target, place = cls(path, about), shown(target), shown(path)
        if not is_empty and exists(path):
            try:
                with open_text(path) as file:
                    found = json.load(file)
                of, record.samples, record.was_begun = dict(found["about"]), found["samples"], True
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise ConfigError(
                    f"{place}: the record of the conversion is missing or damaged: {error!r}; remove the record and {target}"
                ) from error
            if of != about:
                changed = ", ".join(sorted(name for name in {**about, **of} if of.get(name) != about.get(name)))
                raise ConfigError(
                    f"{target}: an earlier conversion to this path had different inputs or settings ({changed}); remove {target} and "
                    f"{place}, or choose another DST"
                )
            return record
        if not is_empty:
            raise ConfigError(f"{target}: already exists, but no conversion has written it; choose another DST")
        record._save()
        return record

    def finish(self, samples: int) -> None:
        """Record that the conversion is complete, with the number of samples."""
        self.samples = samples
        self._save()

    def remove(self) -> None:
        """Remove the record of a conversion that has written nothing."""
        remove(self.path)

    def _save(self) -> None:
        write_whole(self.path, json.dumps({"about": self.about, "samples": self.samples}).encode())
