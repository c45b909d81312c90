"""torchvision as far as it goes without its operators: the wheel that there is wants CUDA's libraries for these."""


def torchvision_without_operators():
    from torch import library

    try:
        import torchvision
    except (ImportError, RuntimeError):
        for name in ("nms", "qnms"):
            library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision
    return torchvision


class WithoutOperators:
    """A map that leaves items as they are; in a process that gets it by pickle, torchvision can be imported from then on."""

    def __init__(self):
        torchvision_without_operators()

    def __reduce__(self):
        return WithoutOperators, ()

    def __call__(self, item):
        return item
