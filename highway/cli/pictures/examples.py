"""Images with boxes, masks, points and labels for pictures of transforms: photographs in the package, or the user's images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from highway.datasets import COCO
from highway.errors import ConfigError, ImageError
from highway.images.annotations import drawn_from
from highway.images.decode import decode
from highway.images.drawing import draw_on
from highway.images.grid import Tile, fitted
from highway.images.items import to_pillow

FOLDER, ANNOTATIONS = "highway:objects/JPEGImages", "highway:objects/instances_train.json"
SHOWN = ("astronaut_00", "coffee_02", "cat_05", "rocket_06")  # photographs with hand-labelled objects that are shown

FIELDS: dict[str, Any] = {
    "field": "image",
    "boxes": "boxes",
    "points": "points",
    "mask": "mask",
    "with_boxes": ["labels", "visibility", "points", "mask"],
    "with_points": ["visibility"],
    "visibility": "visibility",
}
"""Arguments with which stages find the image and its objects in an example."""

Example = dict[str, Any]
"""An ``image``, ``boxes`` ``(N, 4)``, and for each box its ``labels``, ``mask`` ``(H, W)``, ``points`` ``(K, 2)`` and ``visibility``."""

_PLACES = ((0.1, 0.15, 0.55, 0.8), (0.6, 0.4, 0.9, 0.9))  # corners of the invented boxes for user images, as fractions of the sides


def packaged() -> dict[str, Example]:
    """Return photographs in the package with their objects, by name."""
    dataset = COCO(FOLDER, ANNOTATIONS, masks=True, keypoints=True, crowds=False)
    found = {}
    for name in SHOWN:
        sample = dataset[dataset.keys.index(f"{name}.jpg")]
        rows = {role: sample[role] for role in ("boxes", "labels", "visibility")}
        found[name] = {"image": decode(sample["image"]), **rows, "mask": sample["masks"], "points": sample["keypoints"]}
    return found


def from_files(paths: Sequence[str]) -> dict[str, Example]:
    """Return the user's images. Each image has two invented boxes.

    The mask of a box is an ellipse. Each box has three points: the left, right and top ends of the ellipse.

    Raises:
        ConfigError: a file cannot be read, or is not an image.
    """
    found = {}
    for path in paths:
        try:
            with open(path, "rb") as file:
                image = decode(file.read())
        except OSError as error:
            raise ConfigError(f"--image {path}: {error.strerror}") from None
        except ImageError as error:
            raise ConfigError(f"--image {path}: {error}") from None
        found[os.path.basename(path)] = _with_objects(image)
    return found


def classes() -> list[str]:
    """Return the names of the labels of the photographs in the package."""
    return COCO(FOLDER, ANNOTATIONS).classes


def tile(example: Example, size: int, label: str, key: str = "", names: Sequence[str] = (), veil: float = 0.3) -> Tile:
    """Return an example as a tile, with the example's boxes, masks and points, if any, in the colours of the labels.

    Args:
        example: The example.
        size: Length of the longer side in pixels.
        label: The first line below the image.
        key: The second line.
        names: Names of the labels, which are shown at the boxes.
        veil: As for :class:`~highway.images.drawing.Drawn`.
    """
    picture, labels = to_pillow(example["image"]), np.asarray(example.get("labels", ())).tolist()
    roles = ["boxes", "mask", "points", "visibility"]
    belongs = {role: example[role] for role in roles if role in example}
    drawn = drawn_from(belongs, [names[one] for one in labels] if names else (), labels)._replace(veil=veil)
    return Tile(draw_on(fitted(picture, size), drawn, picture.size), label, key)


def _with_objects(image: np.ndarray) -> Example:
    height, width = image.shape[:2]
    boxes = (np.array(_PLACES) * [width, height, width, height]).astype(np.float32)
    masks = []
    for box in boxes.tolist():
        mask = Image.new("L", (width, height))
        ImageDraw.Draw(mask).ellipse(box, fill=1)
        masks.append(np.array(mask))
    x, y = (boxes[:, :2] + boxes[:, 2:]).T / 2
    left, top, right, _ = boxes.T
    points = np.stack([np.stack(pair, -1) for pair in ((left, y), (right, y), (x, top))], axis=1)  # three, as in the package's examples
    rows = {"labels": np.arange(len(boxes), dtype=np.int32), "visibility": np.full(points.shape[:2], 2, np.uint8)}
    return {"image": image, "boxes": boxes, **rows, "mask": np.stack(masks), "points": points.astype(np.float32)}
