"""Read two files for ILSVRC (ImageNet): Caffe's mean image, and the boxes of the objects in the training images.

:class:`~highway.datasets.ImageFolder` and :class:`~highway.datasets.Files` read the images and their labels.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from highway.datasets.detection.voc_xml import read_objects
from highway.datasets.records.protobuf import BYTES, FIXED32, VARINT, read_fields, read_int64s
from highway.engine.cancel import check_cancelled
from highway.errors import DatasetError
from highway.stores.file import read_whole
from highway.stores.url import join, shown

# Caffe's BlobProto: num, channels, height and width (in old files), data, shape; https://github.com/BVLC/caffe, src/caffe/proto/caffe.proto
_OLD_SHAPE, _DATA, _SHAPE = (1, 2, 3, 4), 5, 7
_DIM = 1  # field number in BlobShape
_FIRST_PIXEL = np.array([1, 1, 0, 0], np.float32)  # the reader for VOC subtracts 1, because VOC numbers pixels from 1


def read_mean_image(path: str) -> np.ndarray:
    """Read a mean image written by Caffe, such as ``imagenet_mean.binaryproto``.

    Args:
        path: The file, or its URL. The archive ``caffe_ilsvrc12.tar.gz`` contains this file. highway does not download the archive.

    Returns:
        float32 ``(H, W, 3)`` in RGB, from 0 to 255. The mean image of ILSVRC has 256 x 256 pixels. :func:`highway.functional.resize` can
        change its size.

    Raises:
        FileNotFoundError: the file does not exist.
        DatasetError: the file is not a mean image of Caffe, or is damaged or truncated.
        DatasetError: the image does not have three channels.
    """
    data = read_whole(path)
    try:
        image = _blob(data)
    except ValueError as error:
        raise DatasetError(f"{shown(path)}: not a mean image of Caffe, or damaged or truncated: {error}") from error
    return np.ascontiguousarray(image[::-1].transpose(1, 2, 0), np.float32)


def _blob(data: bytes) -> np.ndarray:
    """Return the array in a BlobProto, ``(3, H, W)``. Raises ValueError."""
    old_shape, shape, values = dict.fromkeys(_OLD_SHAPE, 1), list[int](), list[bytes]()
    for tag, begin, end in read_fields(data, 0, len(data)):
        number, kind = tag >> 3, tag & 7
        if number in old_shape and kind == VARINT:
            old_shape[number] = begin
        elif number == _DATA and kind in (BYTES, FIXED32):
            values.append(data[begin:end])
        elif number == _SHAPE and kind == BYTES:
            shape = _dimensions(data, begin, end)
    shape = shape or list(old_shape.values())
    content = b"".join(values)
    *others, channels, height, width = [1, 1, 1, *shape]
    if channels != 3 or set(others) != {1} or 4 * channels * height * width != len(content) or not content:
        raise ValueError(
            f"the shape is {tuple(shape)}, with {len(content)} bytes of float32; expected the shape (1, 3, height, width), with 4 bytes "
            f"for each value"
        )
    return np.frombuffer(content, "<f4").reshape(channels, height, width)


def _dimensions(data: bytes, begin: int, end: int) -> list[int]:
    """Return the shape in a BlobShape. The lengths are in one packed field, or in separate fields."""
    found = list[int]()
    for tag, first, last in read_fields(data, begin, end):
        if tag == _DIM << 3 | BYTES:
            found += read_int64s(data, first, last).tolist()
        elif tag == _DIM << 3 | VARINT:
            found.append(first)
    return found


def read_training_boxes(data_dir: str, keys: Iterable[str]) -> list[np.ndarray]:
    """Read the boxes of the objects in training images of ILSVRC.

    Args:
        data_dir: The folder into which ``ILSVRC2012_bbox_train_v2.tar.gz`` was unpacked, or its URL. It contains XML files such as
            ``n01440764/n01440764_10040.xml``.
        keys: The paths of the images, for example ``ImageFolder("imagenet/train").keys``.

    Returns:
        A list with one array for each image, float32 ``(N, 4)``: xmin, ymin, xmax and ymax in pixels, as in the XML file of the image. N is
        0 for an image without an XML file.

    Raises:
        FileNotFoundError: no image has an XML file.
        DatasetError: an XML file does not describe objects, or is damaged or truncated.
    """
    found, any_file = list[np.ndarray](), False
    for key in keys:
        check_cancelled()
        path = join(data_dir, f"{key.rpartition('.')[0] or key}.xml")
        try:
            data = read_whole(path)
        except FileNotFoundError:
            found.append(np.empty((0, 4), np.float32))
        else:
            found.append(read_objects(shown(path), data).boxes + _FIRST_PIXEL)
            any_file = True
    if found and not any_file:
        raise FileNotFoundError(
            f"{shown(path)!r}: there is no such file, and no file for any other image; data_dir must be the folder that contains n01440764"
        )
    return found
