"""Train a classifier of images in JAX alone, on all devices of this process.

python examples/imagenet_jax.py  # on photographs of the package; takes seconds
python examples/imagenet_jax.py --data /data/imagenet --size 128 --batch-size 1024 --epochs 30
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from highway import Pipeline
from highway.adapters.jax import ranks, to_device
from highway.modules import ImageFileReader
from highway.transforms import RandomResizedCrop

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", default="highway:photos", help="folder with `train` and `val`, in which each label has a folder")
parser.add_argument("--size", type=int, default=32, help="height and width of the images, in pixels")
parser.add_argument("--batch-size", type=int, default=16, help="images in a batch of this process")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--seed", type=int, default=0)


def make_model(key: jax.Array, num_classes: int) -> list[jax.Array]:
    """Return the weights of three convolutions and of the last layer."""
    shapes = [(3, 3, 3, 16), (3, 3, 16, 32), (3, 3, 32, 64), (64, num_classes)]
    keys = jax.random.split(key, len(shapes))
    return [jax.random.normal(k, shape) * (2 / np.prod(shape[:-1])) ** 0.5 for k, shape in zip(keys, shapes, strict=True)]


def logits(weights: list[jax.Array], images: jax.Array) -> jax.Array:
    values = images / 127.5 - 1
    for kernel in weights[:-1]:
        values = jax.lax.conv_general_dilated(values, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        values = jax.nn.relu(jax.nn.standardize(values, axis=(1, 2, 3)))
    return values.mean((1, 2)) @ weights[-1]


@partial(jax.jit, donate_argnums=(0, 1, 2))
def step(weights, first, second, number, lr, images, labels):
    """Take a step of Adam."""

    def loss(weights):
        return -jnp.take_along_axis(jax.nn.log_softmax(logits(weights, images)), labels[:, None], 1).mean()

    value, gradients = jax.value_and_grad(loss)(weights)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, gradients)
    scale = lr * jnp.sqrt(1 - 0.99**number) / (1 - 0.9**number)
    weights = jax.tree.map(lambda w, m, v: w - scale * m / (jnp.sqrt(v) + 1e-8), weights, first, second)
    return weights, first, second, value


def main(args: argparse.Namespace) -> None:
    sharding = NamedSharding(Mesh(jax.devices(), ("batch",)), PartitionSpec("batch"))
    shape, crop = (args.size, args.size), RandomResizedCrop((args.size, args.size), scale=(0.35, 1.0))
    reader = ImageFileReader(f"{args.data}/train", args.batch_size, crop=crop, flip=0.5, drop_last=True, **ranks())
    val = Pipeline([ImageFileReader(f"{args.data}/val", args.batch_size, shape, shuffle=False)])
    weights = make_model(jax.random.key(args.seed), len(reader.classes))
    first, second, number = jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights), 0
    with to_device(Pipeline([reader], args.seed), sharding) as train, val:
        for epoch in range(args.epochs):
            for images, labels in train:
                number += 1
                weights, first, second, loss = step(weights, first, second, number, args.lr, images, labels)
            right = [np.asarray(logits(weights, images)).argmax(1) == labels for images, labels in val]
            print(f"epoch {epoch}: loss {loss:.3f}, accuracy {np.concatenate(right).mean():.3f}", flush=True)


if __name__ == "__main__":
    main(parser.parse_args())
