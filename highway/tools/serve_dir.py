"""``serve-imagenet-dir``: serve the images of a folder, cropped and flipped at random."""

from __future__ import annotations

import argparse
import os

from highway.modules import ImageFileReader
from highway.tools import command, serving
from highway.transforms import RandomResizedCrop


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the tool."""
    serving.add_arguments(parser)
    parser.add_argument(
        "-d", "--dir", default="./imagenet", metavar="DIR", help="holds `train`, and that a folder for each label; default: ./imagenet"
    )
    parser.add_argument("-w", "--workers", type=int, default=0, metavar="N", help="threads that decode; default: 0, one for each core")
    parser.add_argument("-P", "--parallel", type=int, default=0, metavar="N", help="the same: what are processes in tensorcom are threads")
    parser.add_argument("-S", "--no-shuffle", action="store_true", help="keep the order of the paths")
    parser.add_argument("-n", "--normalize", action="store_true", help="send float32 of mean 0 and deviation 1 instead of uint8")


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted, or for ``epochs``."""
    reader = ImageFileReader(
        os.path.join(options.dir, "train"),
        options.batch_size,
        epochs=options.epochs,
        shuffle=not options.no_shuffle,
        seed=options.seed,
        num_workers=serving.threads(options.workers, options.parallel),
        crop=RandomResizedCrop(serving.SHAPE),
        flip=0.5,
    )
    return serving.serve([reader], options, options.normalize)


TOOL = command.Tool("serve-imagenet-dir", "serve-dir", "serve the images of a folder, cropped and flipped at random", add_arguments, run)
main = TOOL.main
