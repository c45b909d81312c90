"""torchvision's transforms, where its operators cannot be loaded, too: they need CUDA's libraries, and transforms need none of them."""

from __future__ import annotations

from torch import library

try:
    import torchvision  # noqa: F401
except (ImportError, RuntimeError):
    for name in ("nms", "qnms"):  # which it asks for as it is imported
        library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
from torchvision import tv_tensors as tv_tensors
from torchvision.transforms import v2 as v2
