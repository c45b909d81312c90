"""The Keras notebook up to its model: ``keras.py URL STEPS`` hands the batches to a ``fit_generator`` that takes so many of them."""

import sys

import numpy as np

import highway as tc

url, steps = sys.argv[1], int(sys.argv[2])

mean = np.array([0.485, 0.456, 0.406], "f")
std = np.array([0.229, 0.224, 0.225], "f")


def norm_image(xs):
    return (xs - mean[None, None, :]) / std[None, None, :]


def norm_cls(ys):
    return np.eye(1000, dtype=np.float32)[ys - 1]  # what keras.utils.to_categorical does


def fit_generator(batches, steps_per_epoch):
    for _ in range(steps_per_epoch):
        xs, ys = next(batches)
        print(xs.shape, xs.dtype, ys.shape, ys.dtype, ys.sum())


training = tc.Connection(url, epoch=1000000, batch_transforms=[norm_image, norm_cls])
fit_generator(iter(training), steps)
