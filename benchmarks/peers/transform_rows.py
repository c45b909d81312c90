"""What the tables of transforms have in common."""

from __future__ import annotations

from typing import Any

LIBRARIES = ("highway", "functional", "cv2", "Pillow", "Albumentations", "torchvision")
Row = tuple[Any, Any, Any, Any, Any, Any]  # what each of these has; None where it has none
SIDE = 256
SIZE = (SIDE, SIDE)
CROP = (200, 200)
JITTER = (0.4, 0.4, 0.4, 0.1)
