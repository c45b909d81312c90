"""``serve-imagenet-dir``: serve the images in a folder, with random crops and flips."""

from __future__ import annotations

import argparse
import os
from typing import Any

from highway.cli import command
from highway.cli.streams import serving
from highway.modules import Augmentations, ImageFileReader
from highway.transforms import Normalize, RandomResizedCrop


def add_arguments(parser: argparse.ArgumentParser) -> None:
    serving.add_arguments(parser)
    folder = "the folder that contains `train`, which has one folder per label; default: ./imagenet"
    parser.add_argument("-d", "--dir", default="./imagenet", metavar="DIR", help=folder)
    serving.add_threads(parser, ("-w", "--workers"), "-P")
    parser.add_argument("-S", "--no-shuffle", action="store_true", help="send images in the order of their paths")
    parser.add_argument("-n", "--normalize", action="store_true", help="send float32 with mean 0 and standard deviation 1 instead of uint8")


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted, or for ``--epochs`` passes over the images."""

    def stages(seed: int, num_workers: int | None) -> list[Any]:
        reader = ImageFileReader(
            os.path.join(options.dir, "train"),
            options.batch_size,
            epochs=options.epochs,
            shuffle=not options.no_shuffle,
            seed=seed,
            num_workers=num_workers,
            crop=RandomResizedCrop(serving.SHAPE),
            flip=0.5,
        )
        return [reader, Augmentations([Normalize()])] if options.normalize else [reader]

    return serving.serve(stages, options)


main = command.program("serve-imagenet-dir")
