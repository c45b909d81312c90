"""Blend two images.

The arrays can be images or batches, uint8 or floats; see :mod:`highway.functional`.
"""

from __future__ import annotations

import numpy as np

from highway.images.ops import cv2_or_none, native, saturated


def blend(image: np.ndarray, other: np.ndarray, share: float, out: np.ndarray | None = None) -> np.ndarray:
    """Return ``image * share + other * (1 - share)``. uint8 results are rounded.

    Args:
        image: uint8 or floats.
        other: An image with the same shape and dtype as ``image``.
        share: The weight of ``image``, from 0 to 1. With 1, the result is a copy of ``image``.
        out: Array for the result. It must be C-contiguous, and must have the same shape and dtype as ``image``.

    Raises:
        TypeError: the images are neither uint8 nor floats.
        ValueError: the images differ in shape or dtype.

    >>> image, other = np.full((1, 2), 100, np.uint8), np.zeros((1, 2), np.uint8)
    >>> blend(image, other, share=0.7)
    array([[70, 70]], dtype=uint8)
    """
    if image.shape != other.shape or image.dtype != other.dtype:
        raise ValueError(
            f"blend: the images are {image.shape} {image.dtype} and {other.shape} {other.dtype}; expected the same shape and dtype"
        )
    if image.dtype != np.uint8 and image.dtype.kind != "f":
        raise TypeError(f"blend: the images are {image.dtype}; expected uint8 or a float type: convert them with astype()")
    out = np.empty(image.shape, image.dtype) if out is None else out
    if share == 1:
        out[...] = image
    elif image.size and native(image) and (cv2 := cv2_or_none()):
        one, another = (np.ascontiguousarray(given).reshape(len(given), -1) for given in (image, other))
        cv2.addWeighted(one, share, another, 1 - share, 0, out.reshape(len(out), -1))
    else:
        for row, one, another in zip(out, image, other, strict=True):  # row by row, so that intermediate results stay in the CPU caches
            mixed = one.astype(np.float32) * np.float32(share) + another.astype(np.float32) * np.float32(1 - share)
            row[...] = saturated(mixed, image.dtype)
    return out
