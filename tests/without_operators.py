"""torchvision as far as it goes without its operators: the wheel that there is wants CUDA's libraries for these."""


def torchvision_without_operators():
    import torch

    try:
        import torchvision
    except (ImportError, RuntimeError):
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision
    return torchvision
