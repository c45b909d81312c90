"""``tensorshow``: the images of a stream, as a picture with their labels."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from highway.cli import arguments, command
from highway.cli.pictures.output import check_output, put_out
from highway.cli.streams.subscription import add_subscription_options, subscribe
from highway.engine.batch import Field, Item, get, names
from highway.engine.stage import Passport
from highway.errors import ConfigError, LinkError
from highway.images.annotations import annotations_of, fields_of, labelled, rows_of, text_of
from highway.images.decode import decode
from highway.images.drawing import Drawn, draw_on
from highway.images.grid import Tile, draw_grid, fitted
from highway.images.items import image_field, row_keys, rows, to_pillow

URLS = [f"zsub://127.0.0.1:{port}" for port in range(7880, 7884)]
FILE = "tensorshow.png"
COUNT, COLUMNS, SIZE = 16, 8, 128  # images in all, and in a row; pixels of the longer side of each
_OF_STREAMS = ("link", "replica", "local", "timeout", "unbatched", "mode", "perbatch", "classes", "boxes", "mask", "points")
_OF_TRANSFORMS = ("image", "seed", "plugin")
_DEFAULTS = {"timeout": -1.0, "mode": "imgclass", "perbatch": 1}

Classes = Mapping[str, str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subscription_options(parser, URLS)
    add = parser.add_argument
    add("-b", "--unbatched", action="store_true", help="the arrays have no batch axis")
    add("-m", "--mode", choices=["imgclass", "img2img"], default="imgclass", help="images and labels (default), or pairs of images")
    add("-B", "--perbatch", type=arguments.positive, default=1, metavar="N", help="images of each batch; default: 1")
    add("-c", "--count", type=arguments.positive, metavar="N", help=f"images, or pairs, in all; default: {COUNT}")
    add("-C", "--classes", metavar="FILE.json", help="names of the labels: a list, or a map from numbers")
    for role, called in (("boxes", "boxes"), ("mask", "masks or mask"), ("points", "keypoints or points")):
        add(f"--{role}", metavar="FIELD", help=f"the field of the {role} to draw, its name or position; default: {called}, if there is one")
    add("-s", "--size", type=arguments.positive, default=SIZE, metavar="N", help=f"pixels of each image's longer side; default: {SIZE}")
    add("-o", "--output", metavar="FILE", help=f"write the picture there, a .png or .jpg; default: a window or, without a display, {FILE}")
    transforms = "in place of a stream: images before and after the transforms in a YAML file, or of a topology"
    add("--transforms", metavar="FILE", help=f"{transforms}. --count is how often each image is transformed; default: 5")
    add("--image", action="append", metavar="FILE", help="with --transforms: an image to show in place of photographs of the package")
    add("--seed", type=arguments.natural, metavar="N", help="with --transforms: what all that is random derives from; default: 0")
    add("--plugin", action="append", metavar="MODULE", help="with --transforms: allow the file to name classes of this module")


def run(options: argparse.Namespace) -> int:
    """Collect images until there are ``count`` or the senders end, and show them; or show what transforms do."""
    check_output(options.output)
    if options.transforms is not None:
        _refuse(options, _OF_STREAMS, "is for a stream: leave it out with --transforms")
        return _show_transforms(options)
    _refuse(options, _OF_TRANSFORMS, "is for --transforms FILE: say that too")
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
        raise LinkError(f"{subscription.where}: the senders have ended without any {kind}")
    tiles = [tile for picture in found for tile in picture]
    title = f"The first {len(found)} {kind} from {subscription.where}"
    put_out(draw_grid(tiles, COLUMNS, options.size, title), title, options.output, FILE)
    return command.DONE


def _refuse(options: argparse.Namespace, names: Sequence[str], why: str) -> None:
    for name in names:
        if getattr(options, name) not in (None, False, _DEFAULTS.get(name)):
            raise ConfigError(f"--{name} {why}")


def _show_transforms(options: argparse.Namespace) -> int:
    from highway.cli.files import allow_plugins, variables  # here, since who looks at a stream needs none of these
    from highway.cli.pictures import before_after

    if options.urls != URLS:
        raise ConfigError(f"{options.urls[0]!r} is a stream, which is not looked at with --transforms: leave it out")
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
    """Read the names of labels.

    Raises:
        ConfigError: there is no such file, or it holds neither a list nor a map of names.
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
    """Yield what is to be seen of each sample of an item: an image with what belongs to it and its label, or a pair of images."""
    pairs = options.mode == "img2img"
    first, second = _fields(item, {} if pairs else fields_of(item, _given(item, options)))
    images = _images(item, first, options.unbatched)
    keys = row_keys(passport, len(images))
    if pairs:
        others = _images(item, second, options.unbatched)
        for image, other, key in zip(images, others, keys, strict=True):
            yield [_tile(image, options.size, str(first), key), _tile(other, options.size, str(second), key)]
        return
    found = annotations_of(item, [image.shape[:2] for image in images], _given(item, options), not options.unbatched)
    for image, belongs, label, key in zip(images, found, _labels(item, second, len(images), options.unbatched), keys, strict=True):
        drawn, at_boxes = labelled(belongs, label, classes)
        text = "" if at_boxes or label is None else _label(label)
        yield [_tile(image, options.size, classes.get(text, text), key, drawn)]


def _given(item: Item, options: argparse.Namespace) -> dict[str, Field]:
    """Return the fields that options name, by role; those of a tuple have positions."""
    named = {role: getattr(options, role) for role in ("boxes", "mask", "points")}
    is_position = re.compile(r"-?\d+").fullmatch
    found = {role: name for role, name in named.items() if name is not None}
    return {role: int(name) if not isinstance(item, dict) and is_position(name) else name for role, name in found.items()}


def _fields(item: Item, where: Mapping[str, Field]) -> tuple[Field, Field | None]:
    """Return the field of the images, and that of what belongs to them and has no other role: the labels, or the other images.

    In a dict with boxes, masks or points there is much besides; what is not called labels are none then.
    """
    first = image_field(item)
    taken = {first, *where.values(), *(f"{field}_{what}" for field in names(item) for what in ("count", "offsets"))}
    others = [name for name in names(item) if name not in taken]
    rest = others if not (where and isinstance(item, dict)) else []
    return first, next((name for name in ("label", "labels") if name in others), next(iter(rest), None))


def _images(item: Item, field: Field | None, unbatched: bool) -> list[np.ndarray]:
    if field is None:
        raise ValueError(f"the batches have one field only, {names(item)[0]!r}; img2img needs two")
    value = get(item, field)
    images = list(value) if not unbatched and (isinstance(value, (list, tuple)) or np.ndim(value)) else [value]
    return rows({field: [_channels_last(image) for image in images]}, field)


def _channels_last(value: Any) -> np.ndarray:
    image = decode(value) if isinstance(value, bytes) else np.asarray(value)
    is_first = image.ndim == 3 and image.shape[0] in (1, 3, 4) and image.shape[2] not in (1, 3, 4)
    return image.transpose(1, 2, 0) if is_first else image


def _labels(item: Item, field: Field | None, count: int, unbatched: bool) -> list[np.ndarray | None]:
    if field is None:
        return [None] * count
    try:
        return [np.asarray(value) for value in rows_of(item, field, count, not unbatched)]
    except ValueError as error:
        raise ValueError(f"{error}; say -b (unbatched) for a stream of samples") from None


def _label(value: np.ndarray) -> str:
    """Return what stands below an image: a number, the place of the one in a one-hot vector, a text, or nothing where there is neither."""
    if value.ndim == 1 and value.size > 1 and np.count_nonzero(value) == 1 and value.dtype.kind in "biuf":
        return str(value.argmax())
    return text_of(value.reshape(-1)[0]) if value.size == 1 else ""


def _tile(image: np.ndarray, size: int, label: str, key: str, drawn: Drawn | None = None) -> Tile:
    picture = to_pillow(image)
    small = fitted(picture, size)
    return Tile(small if drawn is None else draw_on(small, drawn, picture.size), label, key)


main = command.program("tensorshow")
