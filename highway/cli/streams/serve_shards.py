"""``serve-imagenet-shards``: serve the images of WebDataset shards, cropped and flipped at random."""

from __future__ import annotations

import argparse
from typing import Any

from highway.cli import command
from highway.cli.streams import serving
from highway.engine.stage import Stage
from highway.modules import Batch, Shuffle
from highway.modules.decode import DecodeImage
from highway.modules.webdataset import WebDatasetSource
from highway.transforms import RandomResizedCrop

FIELDS = {"image": "png;jpg;jpeg;ppm", "label": "cls"}
BUFFER = 1000  # encoded images among which the order is drawn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    serving.add_arguments(parser)
    shards = "the shards: paths or URLs, such as 'imagenet-{0000..0147}.tar' or 'pipe:COMMAND'"
    parser.add_argument("-u", "--url", required=True, metavar="BRACES", help=shards)
    serving.add_threads(parser, ("-N", "--num-workers"), "-p")
    parser.add_argument("-S", "--shuffle", action="store_true", help=f"mix the order of the shards, and that of each {BUFFER} images")


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted, or for ``epochs``."""

    def stages(seed: int, num_workers: int | None) -> list[Any]:
        source = WebDatasetSource(options.url, FIELDS, options.epochs, options.shuffle, seed)
        shuffle = [Shuffle(BUFFER, seed=seed)] if options.shuffle else []
        decode = DecodeImage("image", crop=RandomResizedCrop(serving.SHAPE), flip=0.5)
        return [source, *shuffle, Stage(decode, num_workers=num_workers, buffer_size=4), Batch(options.batch_size), _pair]

    return serving.serve(stages, options)


def _pair(batch: dict[str, Any]) -> tuple[Any, Any]:
    return batch["image"], batch["label"]


main = command.program("serve-imagenet-shards")
