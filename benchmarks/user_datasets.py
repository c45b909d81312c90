"""Map-style datasets of benchmarks/handover.py, as users write them. Worker processes import this module too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from PIL import Image

from work import PurePython

SIDE = 224  # pixels


@dataclass
class DecodedByOpenCV:
    """``(uint8 (224, 224, 3), label)`` of each file, decoded by OpenCV."""

    files: list[str]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> tuple[np.ndarray, int]:
        image = cv2.cvtColor(cv2.imread(self.files[number]), cv2.COLOR_BGR2RGB)
        return cv2.resize(image, (SIDE, SIDE)), number % 10


@dataclass
class DecodedByPillow:
    """The same by Pillow."""

    files: list[str]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> tuple[np.ndarray, int]:
        with Image.open(self.files[number]) as image:
            return np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)), number % 10


@dataclass
class InPython:
    """A number, after so much work of pure Python."""

    length: int
    work: PurePython

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, number: int) -> int:
        return int(self.work(number))


@dataclass
class InMemory:
    """``(uint8 (224, 224, 3), label)`` out of an array."""

    length: int

    def __post_init__(self) -> None:
        self.images = np.random.default_rng(0).integers(0, 256, (256, SIDE, SIDE, 3), np.uint8)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, number: int) -> tuple[np.ndarray, int]:
        return self.images[number % 256], number % 10


def nbytes(batch: Any) -> int:
    """Return the bytes of the images in a batch."""
    return int(batch[0].nbytes) if isinstance(batch, (list, tuple)) else 0
