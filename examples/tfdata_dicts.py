"""Prepare dicts by plain Python functions, in parallel, for tf.data: the question that from_generator and py_function leave open.

python examples/tfdata_dicts.py              # on photographs of the package, with 8 threads; takes seconds
python examples/tfdata_dicts.py --processes  # the same items with 8 processes, for functions that hold the GIL
python examples/tfdata_dicts.py --data /data/imagenet --size 160 --batch-size 64 --epochs 30
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from highway import Pipeline, Stage
from highway.data import photos
from highway.modules import Batch, Processes, Reader

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", type=Path, default=Path(photos()), help="folder with `train` and `val`, in which each label has a folder")
parser.add_argument("--size", type=int, default=32, help="height and width of the images, in pixels")
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--workers", type=int, default=8)
parser.add_argument("--processes", action="store_true", help="workers are processes, not threads")
parser.add_argument("--seed", type=int, default=0)


def samples(folder: Path, size: int, train: bool) -> list[dict]:
    """Return what is known of each image before it is opened."""
    labels = sorted(path.name for path in folder.iterdir() if path.is_dir())
    files = [(path, number) for number, label in enumerate(labels) for path in sorted((folder / label).glob("*.jp*g"))]
    return [{"path": str(path), "label": number, "size": size, "train": train} for path, number in files]


def prepare(sample: dict, rng: np.random.Generator) -> dict:
    """Open an image, cut it at random, and say besides how bright it is: a nested dict of arrays and numbers."""
    with Image.open(sample["path"]) as opened:
        image = opened.convert("RGB")
    share = rng.uniform(0.6, 1.0) if sample["train"] else 1.0
    width, height = (share * np.array(image.size)).astype(int)
    left, top = (rng.uniform(size=2) * (np.array(image.size) - (width, height))).astype(int)
    pixels = np.asarray(image.resize((sample["size"],) * 2, box=(left, top, left + width, top + height)))
    if sample["train"] and rng.random() < 0.5:
        pixels = pixels[:, ::-1]
    return {"image": pixels, "colour": pixels.mean((0, 1), dtype=np.float32) / 255, "label": sample["label"]}


def pipeline(args: argparse.Namespace, part: str) -> Pipeline:
    """Return what makes the batches of an epoch: dicts, in an order and with a chance that do not hang on the number of workers."""
    train = part == "train"
    workers = Processes([prepare], args.workers) if args.processes else Stage(prepare, num_workers=args.workers)
    return Pipeline([Reader(samples(args.data / part, args.size, train), shuffle=train), workers, Batch(args.batch_size)], args.seed)


def main(args: argparse.Namespace) -> None:
    import keras  # imported here, because the processes also import this script for prepare(), and do not need TensorFlow
    from keras import layers

    from highway.adapters.tensorflow import to_dataset

    keras.utils.set_random_seed(args.seed)
    inputs = {"image": keras.Input((args.size, args.size, 3), name="image"), "colour": keras.Input((3,), name="colour")}
    values = layers.Rescaling(1 / 127.5, -1)(inputs["image"])
    for channels in (16, 32, 64):
        values = layers.Conv2D(channels, 3, strides=2, padding="same", activation="relu")(values)
    values = layers.Concatenate()([layers.GlobalAveragePooling2D()(values), inputs["colour"]])
    classes = sum(path.is_dir() for path in (args.data / "train").iterdir())
    model = keras.Model(inputs, layers.Dense(classes)(values))
    model.compile(keras.optimizers.Adam(1e-2), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    with pipeline(args, "train") as train, pipeline(args, "val") as val:
        dataset, validation = (to_dataset(one).map(lambda batch: (batch, batch.pop("label"))) for one in (train, val))
        model.fit(dataset, validation_data=validation, epochs=args.epochs, verbose=2)


if __name__ == "__main__":
    main(parser.parse_args())
