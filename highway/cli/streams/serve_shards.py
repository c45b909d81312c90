"""``serve-imagenet-shards``: serve the images in WebDataset shards, with random crops and flips, or unchanged."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from highway.cli import command
from highway.cli.streams import serving
from highway.engine.stage import Items, Stage, Stamped
from highway.images.items import row_keys
from highway.modules import Batch, Shuffle
from highway.modules.decode import DecodeImage
from highway.modules.webdataset import WebDatasetSource
from highway.transforms import RandomResizedCrop

FIELDS = {"image": "png;jpg;jpeg;ppm", "label": "cls"}
BUFFER = 1000  # encoded images in the shuffle buffer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    serving.add_arguments(parser)
    shards = "the shards: paths or URLs, such as 'imagenet-{0000..0147}.tar' or 'pipe:COMMAND'"
    parser.add_argument("-u", "--url", required=True, metavar="BRACES", help=shards)
    serving.add_threads(parser, ("-N", "--num-workers"), "-p")
    size = "x".join(map(str, serving.SHAPE))
    stored = (
        "send images in their stored size, as tensorcom's command did; all images of a batch must have the same size. Default: crop "
        f"each image to {size} at random, and mirror half of the images"
    )
    parser.add_argument("--as-stored", action="store_true", help=stored)
    parser.add_argument(
        "-S", "--shuffle", action="store_true", help=f"shuffle the shards, and shuffle images in a buffer of {BUFFER} images"
    )


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted, or for ``--epochs`` passes over the images."""

    def stages(seed: int, num_workers: int | None) -> list[Any]:
        source = WebDatasetSource(options.url, FIELDS, options.epochs, options.shuffle, seed)
        shuffle = [Shuffle(BUFFER, seed=seed)] if options.shuffle else []
        cropped = DecodeImage("image", crop=RandomResizedCrop(serving.SHAPE), flip=0.5)
        decode = Stage(DecodeImage("image") if options.as_stored else cropped, num_workers=num_workers, buffer_size=4)
        return [source, *shuffle, decode, Batch(options.batch_size, as_list=options.as_stored), _Stacked() if options.as_stored else _pair]

    return serving.serve(stages, options)


def _pair(batch: dict[str, Any]) -> tuple[Any, Any]:
    return batch["image"], batch["label"]


class _Stacked:
    """Converts the images and labels of a batch to arrays."""

    def stream(self, items: Items) -> Iterator[Stamped]:
        for batch in items:
            images = batch["image"]
            if other := next((row for row, image in enumerate(images) if image.shape != images[0].shape), 0):
                (height, width), (high, wide) = images[0].shape[:2], images[other].shape[:2]
                first, second = (row_keys(items.passport, len(images))[row] for row in (0, other))
                raise ValueError(
                    f"image {first!r} is {height}x{width} and image {second!r} is {high}x{wide} (height x width); all images of a batch "
                    f"must have the same size: remove --as-stored, so that images are cropped, or store images of one size"
                )
            yield Stamped((np.stack(images), np.asarray(batch["label"], np.int32)), items.passport)


main = command.program("serve-imagenet-shards")
