"""Train one layer on the batches of one_stream.yaml: ``python examples/one_stream.py torch``, or ``jax``, or ``tensorflow``.

All begin with the same weights and get the same batches, so that they print the same.
"""

import contextlib
import sys
from pathlib import Path

from highway import EndOfStream, Pipeline

SIZE, LABELS, RATE = 32 * 32 * 3, 8, 0.01


def with_torch(pipeline):
    """Return what yields an epoch of tensors, and what trains on a batch of them and returns the loss."""
    import torch

    layer = torch.nn.Linear(SIZE, LABELS)
    torch.nn.utils.vector_to_parameters(torch.zeros(SIZE * LABELS + LABELS), layer.parameters())
    optimizer = torch.optim.SGD(layer.parameters(), RATE)

    def step(images, labels):
        loss = torch.nn.functional.cross_entropy(layer(images.reshape(-1, SIZE) / 255), labels.long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Pipeline([pipeline, lambda batch: tuple(map(torch.from_numpy, batch))]), step


def with_jax(pipeline):
    import jax
    import jax.numpy as jnp

    from highway.adapters.jax import to_device

    weights = [jnp.zeros((SIZE, LABELS)), jnp.zeros(LABELS)]

    def loss_of(weights, images, labels):
        scores = jax.nn.log_softmax(images.reshape(-1, SIZE) / 255 @ weights[0] + weights[1])
        return -jnp.take_along_axis(scores, labels[:, None], axis=1).mean()

    gradients_of = jax.jit(jax.value_and_grad(loss_of))

    def step(images, labels):
        loss, gradients = gradients_of(weights, images, labels)
        weights[:] = [weight - RATE * gradient for weight, gradient in zip(weights, gradients, strict=True)]
        return loss

    return to_device(pipeline), step


def with_tensorflow(pipeline):
    import tensorflow as tf

    from highway.adapters.tensorflow import to_dataset

    weights = [tf.Variable(tf.zeros((SIZE, LABELS))), tf.Variable(tf.zeros(LABELS))]

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            scores = tf.reshape(tf.cast(images, tf.float32), (-1, SIZE)) / 255 @ weights[0] + weights[1]
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(RATE * gradient)
        return loss

    return to_dataset(pipeline), step


FRAMEWORKS = {"torch": with_torch, "jax": with_jax, "tensorflow": with_tensorflow}
framework = "".join(sys.argv[1:])
if framework not in FRAMEWORKS:
    sys.exit(f"usage: python {sys.argv[0]} {'|'.join(FRAMEWORKS)}")
with Pipeline.from_yaml(Path(__file__).with_suffix(".yaml"), role=framework) as pipeline:
    batches, step = FRAMEWORKS[framework](pipeline)
    with contextlib.suppress(EndOfStream):  # raised after the last epoch
        while True:
            losses = [float(step(images, labels)) for images, labels in batches]
            print(f"{len(losses)} batches, mean loss {sum(losses) / len(losses):.3f}", flush=True)
