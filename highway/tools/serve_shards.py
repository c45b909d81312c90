"""``serve-imagenet-shards``: serve the images of WebDataset shards, cropped and flipped at random."""

from __future__ import annotations

import argparse
from typing import Any

from highway.modules import Batch, Shuffle
from highway.modules.decode_image import DecodeImage
from highway.modules.webdataset import WebDatasetSource
from highway.stage import Stage
from highway.tools import command, serving
from highway.transforms import RandomResizedCrop

FIELDS = {"image": "png;jpg;jpeg;ppm", "label": "cls"}
BUFFER = 1000  # encoded images among which the order is drawn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the tool."""
    serving.add_arguments(parser)
    parser.add_argument(
        "-u",
        "--url",
        required=True,
        metavar="BRACES",
        help="the shards: paths or URLs, such as 'imagenet-{0000..0147}.tar' or 'pipe:COMMAND'",
    )
    parser.add_argument("-p", "--parallel", type=int, default=0, metavar="N", help="threads that decode; default: 0, one for each core")
    parser.add_argument(
        "-N", "--num-workers", type=int, default=0, metavar="N", help="the same: what are processes in tensorcom are threads"
    )
    parser.add_argument("-S", "--shuffle", action="store_true", help=f"mix the order of the shards, and that of each {BUFFER} images")


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted, or for ``epochs``."""
    source = WebDatasetSource(options.url, FIELDS, options.epochs, options.shuffle, options.seed)
    decode = DecodeImage("image", crop=RandomResizedCrop(serving.SHAPE), flip=0.5)
    workers = serving.threads(options.parallel, options.num_workers)
    shuffle = [Shuffle(BUFFER, seed=options.seed)] if options.shuffle else []
    return serving.serve([source, *shuffle, Stage(decode, num_workers=workers, buffer_size=4), Batch(options.batch_size), _pair], options)


def _pair(batch: dict[str, Any]) -> tuple[Any, Any]:
    return batch["image"], batch["label"]


TOOL = command.Tool(
    "serve-imagenet-shards", "serve-shards", "serve the images of WebDataset shards, cropped and flipped at random", add_arguments, run
)
main = TOOL.main
