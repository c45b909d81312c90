"""Train a classifier of images with Keras 3, on TensorFlow, JAX or PyTorch as KERAS_BACKEND says.

python examples/imagenet_keras.py  # on photographs of the package; takes seconds
KERAS_BACKEND=jax python examples/imagenet_keras.py --data /data/imagenet --model ResNet50 --size 224 --batch-size 256 --epochs 90
"""

import argparse

import keras
from keras import layers

from highway import Pipeline
from highway.adapters.keras import dataset
from highway.modules import ImageFileReader
from highway.transforms import RandomResizedCrop

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", default="highway:photos", help="folder with `train` and `val`, in which each label has a folder")
parser.add_argument("--model", help="a name of keras.applications; default: a small one")
parser.add_argument("--size", type=int, default=32, help="height and width of the images, in pixels")
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--seed", type=int, default=0)


def make_model(name: str | None, size: int, num_classes: int) -> keras.Model:
    """Return a network that takes uint8 images as they come, channels last."""
    images = keras.Input((size, size, 3))
    values = layers.Rescaling(1 / 127.5, -1)(images)
    if name is not None:
        return keras.Model(images, getattr(keras.applications, name)(weights=None, classes=num_classes, classifier_activation=None)(values))
    for channels in (16, 32, 64):
        values = layers.Conv2D(channels, 3, strides=2, padding="same", use_bias=False)(values)
        values = layers.Activation("relu")(layers.BatchNormalization(momentum=0.8)(values))
    return keras.Model(images, layers.Dense(num_classes)(layers.GlobalAveragePooling2D()(values)))


def main(args: argparse.Namespace) -> None:
    keras.utils.set_random_seed(args.seed)
    shape, crop = (args.size, args.size), RandomResizedCrop((args.size, args.size), scale=(0.35, 1.0))
    reader = ImageFileReader(f"{args.data}/train", args.batch_size, crop=crop, flip=0.5, drop_last=True)
    val_reader = ImageFileReader(f"{args.data}/val", args.batch_size, shape, shuffle=False)
    model = make_model(args.model, args.size, len(reader.classes))
    with Pipeline([reader], args.seed) as train, Pipeline([val_reader]) as val:
        rates = keras.optimizers.schedules.CosineDecay(args.lr, args.epochs * len(train))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(rates), loss, metrics=["accuracy"])
        model.fit(dataset(train), validation_data=dataset(val), epochs=args.epochs, verbose=2)


if __name__ == "__main__":
    main(parser.parse_args())
