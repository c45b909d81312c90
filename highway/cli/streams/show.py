"""``tensorshow``: show images from a link with their labels, as one picture."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice

from highway.cli import arguments, command
from highway.cli.pictures.output import check_output, put_out
from highway.cli.streams.subscription import add_subscription_options, subscribe
from highway.engine.batch import Field, Item
from highway.engine.stage import Passport
from highway.errors import ConfigError, LinkError
from highway.images.grid import Tile, draw_grid
from highway.images.pictures import Classes, tiles

URLS = [f"zsub://127.0.0.1:{port}" for port in range(7880, 7884)]
FILE = "tensorshow.png"
COUNT, COLUMNS, SIZE = 16, 8, 128  # number of images, images in a row, and pixels of the longer side of an image
_OF_STREAMS = ("link", "replica", "local", "timeout", "unbatched", "mode", "perbatch", "classes", "boxes", "mask", "points")
_OF_TRANSFORMS = ("image", "seed", "plugin")
_DEFAULTS = {"timeout": -1.0, "mode": "imgclass", "perbatch": 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subscription_options(parser, URLS)
    add = parser.add_argument
    add("-b", "--unbatched", action="store_true", help="the arrays have no batch axis")
    add("-m", "--mode", choices=["imgclass", "img2img"], default="imgclass", help="images and labels (default), or pairs of images")
    add("-B", "--perbatch", type=arguments.positive, default=1, metavar="N", help="number of images from each batch; default: 1")
    add("-c", "--count", type=arguments.positive, metavar="N", help=f"total number of images or pairs; default: {COUNT}")
    add("-C", "--classes", metavar="FILE.json", help="names of the labels: a list, or a map from numbers")
    for role, called in (("boxes", "boxes"), ("mask", "masks or mask"), ("points", "keypoints or points")):
        add(f"--{role}", metavar="FIELD", help=f"name or position of the field with the {role} to draw; default: {called}, if it exists")
    add(
        "-s",
        "--size",
        type=arguments.positive,
        default=SIZE,
        metavar="N",
        help=f"size of the longer side of each image in pixels; default: {SIZE}",
    )
    add(
        "-o",
        "--output",
        metavar="FILE",
        help=f"the picture to write, a .png or .jpg; default: show a window, or write {FILE} if there is no display",
    )
    transforms = "instead of a stream, show images before and after the transforms of a YAML file or topology"
    add("--transforms", metavar="FILE", help=f"{transforms}. --count is the number of transformed copies of each image; default: 5")
    add(
        "--image",
        action="append",
        metavar="FILE",
        help="with --transforms: an image to show instead of photographs of the package; repeatable",
    )
    add("--seed", type=arguments.natural, metavar="N", help="with --transforms: seed of all random numbers; default: 0")
    add("--plugin", action="append", metavar="MODULE", help="with --transforms: allow the file to name classes of this module")


def run(options: argparse.Namespace) -> int:
    """Collect ``--count`` images, or fewer if the senders end, and show them. With ``--transforms``, only show the effect of transforms."""
    check_output(options.output)
    if options.transforms is not None:
        _refuse(options, _OF_STREAMS, "is only for a stream: remove it, or remove --transforms")
        return _show_transforms(options)
    _refuse(options, _OF_TRANSFORMS, "needs --transforms FILE")
    count = options.count or COUNT
    classes = {} if options.classes is None else load_classes(options.classes)
    kind = "pairs" if options.mode == "img2img" else "images"
    found: list[list[Tile]] = []
    with subscribe(options) as subscription:
        print(f"waiting for {count} {kind} from {subscription.where}", flush=True)
        for item, passport in subscription.batches():
            missing = count - len(found)
            found += islice(pictures(item, passport, options, classes), min(options.perbatch, missing))
            if len(found) == count:
                break
    if not found:
        raise LinkError(f"{subscription.where}: all senders ended before {kind} arrived")
    title = f"The first {len(found)} {kind} from {subscription.where}"
    put_out(draw_grid([tile for picture in found for tile in picture], COLUMNS, options.size, title), title, options.output, FILE)
    return command.DONE


def _refuse(options: argparse.Namespace, names: Sequence[str], why: str) -> None:
    for name in names:
        if getattr(options, name) not in (None, False, _DEFAULTS.get(name)):
            raise ConfigError(f"--{name} {why}")


def _show_transforms(options: argparse.Namespace) -> int:
    from highway.cli.files import allow_plugins, variables  # imported here, because only --transforms needs these modules
    from highway.cli.pictures import before_after

    if options.urls != URLS:
        raise ConfigError(f"{options.urls[0]!r} is the URL of a stream, but --transforms draws files; remove it")
    allow_plugins(options.plugin or [])
    picture = before_after.draw(
        options.transforms,
        options.image or (),
        options.count or before_after.COUNT,
        options.seed or 0,
        options.size,
        options.role,
        variables(options.set or []),
        options.plugin or (),
    )
    put_out(picture, options.transforms, options.output, "transforms.png")
    return command.DONE


def load_classes(path: str) -> Classes:
    """Read the names of labels. If a name is a list, such as ``["n01440764", "tench"]``, its last element is used.

    Raises:
        ConfigError: the file does not exist, or is neither a list nor a mapping of names.
    """
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except OSError as error:
        raise ConfigError(f"--classes {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"--classes {path}: not JSON: {error}") from error
    if isinstance(found, list):
        found = dict(enumerate(found))
    if not isinstance(found, dict):
        raise ConfigError(f'--classes {path}: expected a list, ["cat", "dog"], or a map, {{"0": "cat"}}; found a {type(found).__name__}')
    return {str(number): str(name[-1] if isinstance(name, list) and name else name) for number, name in found.items()}


def pictures(item: Item, passport: Passport, options: argparse.Namespace, classes: Classes) -> Iterator[list[Tile]]:
    """Yield the tiles of each sample in an item, as the options request them."""
    return tiles(item, passport, options.size, options.unbatched, options.mode == "img2img", _given(item, options), classes)


def _given(item: Item, options: argparse.Namespace) -> dict[str, Field]:
    """Return the fields that ``--boxes``, ``--mask`` and ``--points`` name, by option. The name of a field in a tuple is its index."""
    named = {role: getattr(options, role) for role in ("boxes", "mask", "points")}
    is_position = re.compile(r"-?\d+").fullmatch
    found = {role: name for role, name in named.items() if name is not None}
    return {role: int(name) if not isinstance(item, dict) and is_position(name) else name for role, name in found.items()}


main = command.program("tensorshow")
