"""Transform many small images with few calls. A transform that changes each row independently is called with several stacked images.

The images are stacked vertically. A call takes some microseconds. For an image of 32x32 pixels, this is most of the total time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from highway.transforms.base import TransformLike
from highway.transforms.compose import Chain, Step, note

Images = np.ndarray | list[np.ndarray]

_LARGEST = 2**14  # maximum size of an image in bytes; for larger images, the time of a call does not matter
_AT_ONCE = 2**17  # size of the images per call in bytes; images and results then fit into the CPU caches


def is_rowwise(transform: object) -> bool:
    """Return whether the class of a transform sets ``rowwise = True``. Subclasses might need whole images, so they do not inherit it."""
    return vars(type(transform)).get("rowwise") is True


def at_once(transforms: Sequence[object], images: object) -> int:
    """Return the number of images to transform in one call: 1, or more for an array ``(B, H, W, C)`` of small images."""
    if not (isinstance(images, np.ndarray) and images.ndim == 4 and images.size):
        return 1
    size = images[0].nbytes
    return _AT_ONCE // size if size <= _LARGEST and any(map(is_rowwise, transforms)) else 1


def changed(chain: Chain, images: np.ndarray, params: Sequence[list[Step]], first: int, last: int) -> Images:
    """Apply a chain to some images of a batch. The results are exactly the same as with one call per image.

    Args:
        chain: The transforms.
        images: The batch, ``(B, H, W, C)``.
        params: The parameters of each image.
        first: Index of the first image to change.
        last: Index of the last image to change, plus 1.

    Returns:
        An array, or a list if the results differ in shape or dtype.
    """
    done: Images = images[first:last]
    for together, part in groupby(zip(*params[first:last], strict=True), lambda several: is_rowwise(several[0].transform)):
        places, alone = list(part), list[np.ndarray]()  # places: for each transform of the chain, the steps of all images
        several_at_once = together and isinstance(done, np.ndarray) and done.shape[1:3] == places[0][0].size
        try:
            if several_at_once:
                for several in places:
                    done = _by_params(done, several)
            else:
                for image, *steps in zip(done, *places, strict=True):
                    alone.append(chain.image(image, steps))
                done = _together(alone)
        except Exception as error:
            which = f"images {first} to {last - 1}" if several_at_once else f"image {first + len(alone)}"
            error.add_note(f"{which} of a batch of {len(images)}")
            raise
    return done


def _by_params(images: Images, several: Sequence[Step]) -> Images:
    """Transform images, with one call for all images that have equal parameters."""
    if not isinstance(images, np.ndarray):
        return [step.transform.image(image, step.params) for image, step in zip(images, several, strict=True)]
    place, transform, _, _ = several[0]
    rows: dict[object, list[int]] = {}
    for row, step in enumerate(several):
        rows.setdefault(step.params, []).append(row)
    try:
        if len(rows) == 1:
            return _as_one(transform, images, several[0].params)
        parts = [(here, _as_one(transform, images[here], params)) for params, here in rows.items()]
    except Exception as error:
        note(error, place, transform)
        raise
    if len({(part.shape[1:], part.dtype) for _, part in parts}) > 1:
        found = {row: image for here, part in parts for row, image in zip(here, part, strict=True)}
        return [found[row] for row in range(len(images))]
    done = np.empty((len(images), *parts[0][1].shape[1:]), parts[0][1].dtype)
    for here, part in parts:
        done[here] = part
    return done


def _as_one(transform: TransformLike, images: np.ndarray, params: object) -> np.ndarray:
    """Stack images vertically, and transform them as one image."""
    count, height = images.shape[:2]
    tall = transform.image(images.reshape(count * height, *images.shape[2:]), params)
    return tall.reshape(count, height, *tall.shape[1:])


def _together(images: list[np.ndarray]) -> Images:
    """Return images as one array if they have the same shape and dtype."""
    return np.stack(images) if len({(image.shape, image.dtype) for image in images}) == 1 else images
