"""Find the images of an item, check them, convert them for display, and name their files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
from PIL import Image

from highway.engine.batch import Field, Item, get, names
from highway.engine.stage import Passport
from highway.images.ops import NATIVE

MOST_CHANNELS = 4  # maximum number of channels of one image; with more, an array could be a batch of grey images


def image_field(item: Item) -> Field:
    """Return the default field of the images: ``"image"`` or ``"images"`` of a dict, otherwise the first field.

    Raises:
        ValueError: the item has no fields.
    """
    known = names(item)
    if not known:
        raise ValueError("an item without fields has no images")
    return next((name for name in ("image", "images") if name in known), known[0])


TARGETS = {  # for each parameter of a stage, a pattern for the usual names of the fields with such annotations
    "boxes": re.compile(r"(gt_?|bounding_?|object_?)?(boxes|bboxes|bbox|box)(_?(xyxy|xyxyn|abs))?"),
    "points": re.compile(r"points|keypoints|key_points|landmarks|joints|kpts"),
    "mask": re.compile(r"masks?|segmentation|segmentation_mask|seg|seg_mask|semantic_mask|instance_masks?"),
}


def expect_no_targets(item: Item, owner: str, advice: str, named: Collection[Field] = (), kinds: Collection[str] = TARGETS) -> bool:
    """Raise ValueError if an item has boxes, points or masks that no parameter names, because they would not move with the pixels.

    Args:
        item: A sample or a batch.
        owner: The component that moves the pixels.
        advice: The advice in the error. ``{parameter}`` and ``{field}`` are replaced by the names of the parameter and the field.
        named: The fields that parameters name.
        kinds: The parameters (keys of :data:`TARGETS`) to look for.

    Returns:
        Whether the check is complete, so that later items need no check. ``False`` if a field is an empty list, whose shape is unknown.
    """
    is_sure = True
    for field in names(item):
        value = get(item, field)
        if field in named or str(field).startswith(_STAYS):
            continue
        if isinstance(field, str) and (parameter := _target(field, value, kinds)):
            raise ValueError(
                f"{owner}: this stage moves pixels, but not the {parameter} in the field {field!r}; "
                f"{advice.format(parameter=parameter, field=field)}; if they must not move, rename their field before this stage: "
                f"Rename({{{field!r}: '{_STAYS}{field}'}})"
            )
        for path, key, inner in entries(value):
            if parameter := _target(key, inner, kinds):
                how = (
                    "unpack the dict before this stage with a map that returns {'image': image, **target}"
                    if isinstance(value, dict) and path == repr(key)
                    else f"add a map before this stage that returns {{'image': image, {parameter!r}: array}}"
                    + (", with one row x1, y1, x2, y2 in pixels per box (COCO has x, y, width, height)" if parameter == "boxes" else "")
                )
                raise ValueError(
                    f"{owner}: this stage moves pixels, but not {path} in the field {field!r}, a {type(value).__name__}; {how}, and pass "
                    f"the names of these fields to this stage; if they must not move, begin the name of their field with '{_STAYS}'"
                )
        is_sure = is_sure and not (isinstance(value, (list, tuple)) and 0 in _shape(value))
    return is_sure


_STAYS = "original_"  # prefix for the names of annotations that must not move


def entries(value: Any, path: str = "", depth: int = 4) -> Iterator[tuple[str, str, Any]]:
    """Yield the path, key and value of each entry in the dicts of a field. The dicts can be nested in lists and dicts.

    Only ``depth`` levels, and only the first 100 elements of each list, are searched.
    """
    if isinstance(value, dict) and depth:
        for key, inner in value.items():
            place = f"{path}[{key!r}]" if path else repr(key)
            yield place, str(key), inner
            yield from entries(inner, place, depth - 1)
    elif isinstance(value, (list, tuple)) and depth:
        for number, inner in enumerate(value[:_MOST_OBJECTS]):
            if isinstance(inner, dict) or (isinstance(inner, (list, tuple)) and any(isinstance(one, dict) for one in inner)):
                yield from entries(inner, f"{path}[{number}]", depth - 1)


_MOST_OBJECTS = 100  # maximum number of entries of a list to check
_AXES: dict[str, Callable[[tuple[int, ...]], bool]] = {
    "boxes": lambda shape: shape[-1:] == (4,) or 0 in shape,
    "points": lambda shape: len(shape) > 1 and shape[-1] in (2, 3),
    "mask": lambda shape: len(shape) > 1,
}


def _target(field: str, value: Any, kinds: Collection[str]) -> str:
    """Return the parameter for a field (boxes, points or mask), or an empty text for any other field."""
    parameter = next((name for name in kinds if TARGETS[name].fullmatch(field.lower())), "")
    return parameter if parameter and _AXES[parameter](_shape(value)) else ""


def _shape(value: Any) -> tuple[int, ...]:
    """Return the shape of an array, or of nested lists by their first elements. The shape of any other value is empty."""
    if isinstance(value, (list, tuple)):
        return (len(value), *(_shape(value[0]) if value else ()))
    return tuple(getattr(value, "shape", ()))


def is_batch(value: Any, owner: str) -> bool:
    """Return whether a value is a batch of images: an array ``(B, H, W, C)``, or a list of images. Otherwise, it is one image.

    Args:
        value: The value of the field.
        owner: The component that is named in errors.

    Raises:
        ValueError: the value is neither a batch nor an image, or is ambiguous.
    """
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and (value.ndim == 4 or value.dtype == object)):
        if len(value) and isinstance(value[0], bytes):
            raise ValueError(f"{owner}: the image field contains {short(value[0])}{_ways_out(value[0])}, and before Batch")
        return True
    if not isinstance(value, np.ndarray) or value.ndim not in (2, 3):
        raise ValueError(
            f"{owner}: the image field contains {short(value)}; expected images (B, H, W, C), or one image (H, W, C) or (H, "
            f"W){_ways_out(value)}"
        )
    if value.ndim == 3 and value.shape[2] > MOST_CHANNELS:
        raise ValueError(
            f"{owner}: the image field contains an array of the ambiguous shape {value.shape}; expected (B, H, W, C), (H, W, C) or (H, W). "
            "Convert a batch of grey images (B, H, W) with images[..., None], an image with the channels first with "
            f"image.transpose(1, 2, 0), and an image with more than {MOST_CHANNELS} channels with image[None], a batch of one"
        )
    return False


def checked_image(value: Any, owner: str) -> np.ndarray:
    """Check that a value is an image, ``(H, W)`` or ``(H, W, C)``, and return it.

    Raises:
        ValueError: the value is not an image, is not numeric, has no pixels, or has its channels first.
    """
    if type(value) is np.ndarray and value.dtype in NATIVE and value.ndim == 3 and 0 < value.shape[2] <= MOST_CHANNELS and value.size:
        return value  # the usual case; this check is faster than the other checks
    if not isinstance(value, np.ndarray) or value.ndim not in (2, 3) or value.dtype.kind not in "buif":
        raise ValueError(f"{owner}: expected an image, an array (H, W, C) or (H, W); got {short(value)}{_ways_out(value)}")
    if value.size == 0:
        raise ValueError(f"{owner}: an image of shape {value.shape} has no pixels; expected (H, W, C) or (H, W), each at least 1")
    if value.ndim == 3 and value.shape[2] > MOST_CHANNELS >= value.shape[0]:
        raise ValueError(
            f"{owner}: an image of shape {value.shape} seems to have its channels first; expected (H, W, C): put the channels last, "
            "image.transpose(1, 2, 0), or images.transpose(0, 2, 3, 1) for a batch"
        )
    return value


def short(value: Any) -> str:
    """Describe a value for an error message: the shape of an array, a short value, or the type of the value."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}" + (f" {value.dtype}" if value.dtype.kind not in "biuf" else "")
    shown = repr(value) if isinstance(value, (str, int, float, list, tuple, type(None))) else ""
    return shown if 0 < len(shown) <= 80 else f"an object of type {type(value).__name__}"


def _ways_out(value: Any) -> str:
    if isinstance(value, bytes):
        return ": put DecodeImage before this stage to decode the bytes of an image"
    if isinstance(value, np.ndarray) and value.dtype.kind in "SO":
        return ": put DecodeImage before Batch to decode the bytes of an image"
    if isinstance(value, (tuple, dict, list)):
        return ", an item: to apply transforms to the image of an item, use the stage Augmentations([...])"
    if isinstance(value, np.ndarray) and value.ndim == 4:
        return ", a batch: to apply transforms to each image of a batch, use Augmentations([...])"
    return ": convert it with np.asarray()" if isinstance(value, Image.Image) else ""


def rows(item: Item, field: Field | None) -> list[np.ndarray]:
    """Return the images of a batch or sample.

    Raises:
        KeyError: the field does not exist.
        ValueError: the field does not contain images: an array ``(B, H, W, C)``, ``(H, W, C)`` or ``(H, W)`` with 1, 3 or 4 channels, or a
            list of images.
    """
    field = image_field(item) if field is None else field
    value = get(item, field)
    images = list(value) if isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) == 4 else [value]
    for image in images:
        if not isinstance(image, np.ndarray) or not (image.ndim == 2 or (image.ndim == 3 and image.shape[2] in (1, 3, 4))):
            what = f"{image.dtype} {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
            raise ValueError(
                f"field {field!r} contains {what}, which is not an image: expected (H, W), or (H, W, C) with 1, 3 or 4 channels; select "
                "another field=; add a channel axis to grey images in a batch, images[..., None]; put channels last"
            )
    return images


def to_pillow(image: np.ndarray) -> Image.Image:
    """Convert an image to a Pillow image for display.

    uint8 values do not change. Floats from 0 to 1 are multiplied by 255. Other values are scaled so that they range from 0 to 255.
    """
    if image.ndim == 3 and image.shape[2] == 1:
        image = image[..., 0]
    if image.dtype != np.uint8:
        values = np.nan_to_num(image.astype(np.float32))
        low, high = (0.0, 1.0) if image.dtype.kind == "f" and values.min() >= 0 and values.max() <= 1 else (values.min(), values.max())
        image = ((values - low) * (255 / max(high - low, 1e-12)) + 0.5).astype(np.uint8)
    return Image.fromarray(np.ascontiguousarray(image))


def row_keys(passport: Passport, count: int) -> list[str]:
    """Return the key of each of ``count`` images. If the passport (the metadata of an item) has no keys, return empty texts."""
    return list(passport.keys) if len(passport.keys) == count else [""] * count


def file_name(number: int, key: str, suffix: str) -> str:
    """Return a file name from a running number and the key of a sample. The name contains no folders, even if the key contains ``..``.

    >>> file_name(7, "cat/../00.jpg", "png")
    '000007-cat-00.png'
    """
    stem = re.sub(r"[^\w.-]+", "-", os.path.splitext(key)[0]).replace("..", "")
    stem = re.sub(r"-+", "-", stem).strip("-.")
    return f"{number:06d}-{stem[-100:]}.{suffix}" if stem else f"{number:06d}.{suffix}"
