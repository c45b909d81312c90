"""``tensorshow``: the images of a stream, as a picture with their labels."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np

from highway.cli import arguments, command
from highway.cli.streams.subscription import add_subscription_options, subscribe
from highway.datasets.writing import writing
from highway.engine.batch import Field, Item, get, names
from highway.engine.stage import Passport
from highway.errors import ConfigError, LinkError
from highway.images.grid import Tile, draw_grid, fitted
from highway.images.items import image_field, row_keys, rows, to_pillow

PORTS = range(7880, 7884)
FILE = "tensorshow.png"
COLUMNS, SIZE = 8, 128  # images in a row; pixels of the longer side of each

Classes = Mapping[str, str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subscription_options(parser, [f"zsub://127.0.0.1:{port}" for port in PORTS])
    add = parser.add_argument
    add("-b", "--unbatched", action="store_true", help="the arrays have no batch axis")
    add("-m", "--mode", choices=["imgclass", "img2img"], default="imgclass", help="images and labels (default), or pairs of images")
    add("-B", "--perbatch", type=arguments.positive, default=1, metavar="N", help="images of each batch; default: 1")
    add("-c", "--count", type=arguments.positive, default=16, metavar="N", help="images, or pairs, in all; default: 16")
    add("-C", "--classes", metavar="FILE.json", help="names of the labels: a list, or a map from numbers")
    add("-o", "--output", metavar="FILE.png", help=f"write the picture there; default: a window or, without a display, {FILE}")


def run(options: argparse.Namespace) -> int:
    """Collect images until there are ``count`` or the senders end, and show them."""
    if options.output and not options.output.lower().endswith(".png"):
        raise ConfigError(f"--output {options.output}: expected a name that ends in .png")
    classes = {} if options.classes is None else load_classes(options.classes)
    kind = "pairs" if options.mode == "img2img" else "images"
    found: list[list[Tile]] = []
    with subscribe(options) as subscription:
        print(f"waiting for {options.count} {kind} from {subscription.where}", flush=True)
        for item, passport in subscription.batches():
            missing = options.count - len(found)
            found += islice(pictures(item, passport, options, classes), min(options.perbatch, missing))
            if len(found) == options.count:
                break
    if not found:
        raise LinkError(f"{subscription.where}: the senders have ended without any {kind}")
    tiles = [tile for picture in found for tile in picture]
    _show(tiles, f"The first {len(found)} {kind} from {subscription.where}", options.output)
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
    """Yield what is to be seen of each sample of an item: an image with its label, or a pair of images."""
    first, second = _fields(item)
    images = _images(item, first, options.unbatched)
    keys = row_keys(passport, len(images))
    if options.mode == "img2img":
        others = _images(item, second, options.unbatched)
        for image, other, key in zip(images, others, keys, strict=True):
            yield [_tile(image, str(first), key), _tile(other, str(second), key)]
        return
    labels = _labels(item, second, len(images), options.unbatched)
    for image, label, key in zip(images, labels, keys, strict=True):
        yield [_tile(image, classes.get(label, label), key)]


def _fields(item: Item) -> tuple[Field, Field | None]:
    """Return the field of the images, and that of what belongs to them: the labels, or the other images."""
    first = image_field(item)
    others = [name for name in names(item) if name != first]
    return first, next((name for name in ("label", "labels") if name in others), others[0] if others else None)


def _images(item: Item, field: Field | None, unbatched: bool) -> list[np.ndarray]:
    if field is None:
        raise ValueError(f"the batches have one field only, {names(item)[0]!r}; img2img needs two")
    value = np.asarray(get(item, field))
    images = [value] if unbatched or value.ndim == 0 else list(value)
    return rows({field: [_channels_last(image) for image in images]}, field)


def _channels_last(image: np.ndarray) -> np.ndarray:
    is_first = image.ndim == 3 and image.shape[0] in (1, 3, 4) and image.shape[2] not in (1, 3, 4)
    return image.transpose(1, 2, 0) if is_first else image


def _labels(item: Item, field: Field | None, count: int, unbatched: bool) -> list[str]:
    """Return what stands below each image: a number, the place of the one in a one-hot vector, or nothing where there is neither."""
    if field is None:
        return [""] * count
    values = np.asarray(get(item, field))
    values = values[None] if unbatched else values
    if len(values) != count:
        raise ValueError(f"field {field!r} has {len(values)} values for {count} images; say -b (unbatched) for a stream of samples")
    if values.ndim == 2 and values.shape[1] > 1 and (np.count_nonzero(values, axis=1) == 1).all():
        values = values.argmax(axis=1)
    values = values.reshape(count, -1)
    return [f"{value[0]:g}" if value.size == 1 else "" for value in values]


def _tile(image: np.ndarray, label: str, key: str) -> Tile:
    return Tile(fitted(to_pillow(image), SIZE), label, key)


def _show(tiles: list[Tile], title: str, output: str | None) -> None:
    picture = draw_grid(tiles, COLUMNS, SIZE, title)
    if output is None and has_display():
        picture.show(title)
        print("shown in a window", flush=True)
        return
    path = output or FILE
    with writing(path) as name:
        picture.save(name, "PNG")
    print(f"written to {os.path.abspath(path)}", flush=True)


def has_display() -> bool:
    """Say whether a window can be opened here."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


main = command.program("tensorshow")
