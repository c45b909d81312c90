"""What writes the samples of ``highway convert``.

Decoded images are ``image``, and their label ``label``; else samples are as in :mod:`highway.cli.convert.readers`.
"""

from __future__ import annotations

import glob
import io
import os
import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from highway.datasets.cache_files.folder import CacheFolder
from highway.datasets.field_codecs import IMAGES
from highway.datasets.shards import encoded, shard_writer
from highway.datasets.writing import writing
from highway.engine.batch import Item, fields, names
from highway.engine.stage import Items, Passport
from highway.errors import ConfigError
from highway.images.decode import decode
from highway.modules.ten_files import TenSink
from highway.process.memory import free_disk

_NUMBER = re.compile(r"%0?\d*d")


@dataclass
class Decoded:
    """A map: from the bytes of an image, under any of its extensions, to ``image``, and from ``cls`` to ``label``."""

    parallel = True

    def __call__(self, item: Item) -> Item:
        if not isinstance(item, dict):
            return item
        pixels = {name: decode(value) for name, value in item.items() if name in IMAGES and isinstance(value, bytes)}
        return {_DECODED.get(name, name): value for name, value in (item | pixels).items()}


_DECODED = {**dict.fromkeys(IMAGES, "image"), "cls": "label"}


@dataclass
class Writer:
    """Writes samples to a path.

    Args:
        path: A folder, or what the kind of writer says.
        size: Samples in a shard, where there are shards.
    """

    decoded: ClassVar[bool] = True  # whether images go there as pixels

    path: str
    size: int
    skipped: int = field(default=0, init=False)  # samples that were there already

    @property
    def folder(self) -> str:
        """The folder of what is written."""
        return self.path

    def is_empty(self) -> bool:
        """Say whether nothing is there."""
        return not os.path.isdir(self.path) or not os.listdir(self.path)

    def skip(self, number: int) -> bool:
        """Say whether the sample with a number is there already, and count it if it is."""
        is_there = self.has(number)
        self.skipped += is_there
        return is_there

    def has(self, number: int) -> bool:
        """Say whether the sample with a number is there, whole."""
        return False


@dataclass
class Shards(Writer):
    """Writes shards, to a path with their number (``photos-%06d.tar``): shard ``i`` holds ``size`` samples, from ``i * size`` on."""

    decoded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if len(_NUMBER.findall(self.path)) != 1 or self.path.count("%") != 1:
            raise ConfigError(f"{self.path}: expected one place for the shard's number, such as photos-%06d.tar")

    @property
    def folder(self) -> str:
        return os.path.dirname(self.path) or "."

    def is_empty(self) -> bool:
        before, after = _NUMBER.split(self.path)
        return not glob.glob(f"{glob.escape(before)}[0-9]*{glob.escape(after)}")

    def has(self, number: int) -> bool:
        return os.path.exists(self.path % (number // self.size))

    def consume(self, items: Items) -> None:
        sample = next(items, None)
        while sample is not None:
            shard = items.passport.index // self.size
            with shard_writer(self.path % shard, durable=True) as writer:
                while sample is not None and items.passport.index // self.size == shard:
                    writer.add(encoded(_key(items.passport), _dict(sample)))
                    sample = next(items, None)


@dataclass
class Images(Writer):
    """Writes image files below a folder: under their keys, or in folders named by their labels. Decoded images become PNG."""

    decoded: ClassVar[bool] = False

    def consume(self, items: Items) -> None:
        for item in items:
            sample = _dict(item)
            extension, data = _encoded(sample)
            path = os.path.join(self.path, f"{_place(_key(items.passport), sample)}.{extension}")
            if not os.path.exists(path):
                with writing(path, durable=True) as name, open(name, "wb") as file:
                    file.write(data)


@dataclass
class Tens(Writer):
    """Writes each sample to a .ten file named by its number."""

    def has(self, number: int) -> bool:
        return os.path.exists(os.path.join(self.path, f"{number:09d}.ten"))

    def consume(self, items: Items) -> None:
        TenSink(self.path, "{index:09d}.ten", overwrite=True).consume(items)


@dataclass
class WholeCache(Writer):
    """Writes a cache, of which nothing is there before all is. Its key is "converted"."""

    def consume(self, items: Items) -> None:
        with CacheFolder(self.path, "converted samples").writer(free_disk(self.path) * 9 // 10) as writer:
            if writer is None:
                raise FileExistsError(f"{self.path!r}: another process writes this cache, or has finished it")
            for item in items:
                writer.add(_dict(item), items.passport.keys)
            if len(writer):
                writer.seal(1)


WRITERS: dict[str, type[Writer]] = {"folder": Images, "shards": Shards, "ten": Tens, "cache": WholeCache}


def _place(key: str, sample: dict[str, Any]) -> str:
    label = sample.get("cls", sample.get("label"))
    if "/" not in key and label is not None:
        key = f"{int(label):04d}/{key}"
    if os.path.isabs(key) or ".." in key.split("/"):
        raise ValueError(f"the key {key!r} leads out of the folder")
    return key


def _key(passport: Passport) -> str:
    return passport.keys[0] if passport.keys else f"{passport.index:09d}"


def _dict(item: Item) -> dict[str, Any]:
    """Return a sample as a dict whose values without axes are numbers."""
    pairs = zip(names(item), fields(item), strict=True)
    return {str(name): value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value for name, value in pairs}


def _encoded(sample: dict[str, Any]) -> tuple[str, bytes]:
    for name, value in sample.items():
        if name in IMAGES and isinstance(value, bytes):
            return name, value
    image = sample.get("image")
    if not isinstance(image, np.ndarray):
        raise ValueError(f"a folder holds images, but the sample has {', '.join(sample)}; expected image, or one of {', '.join(IMAGES)}")
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return "png", file.getvalue()
