"""Libraries that highway's formats are compared with; they are in the environment `tox -e oracles`."""

import pytest

ELSEWHERE = "runs by `tox -e oracles`"


@pytest.fixture(scope="session")
def torchvision():
    torch = pytest.importorskip("torch", reason=ELSEWHERE)
    pytest.importorskip("pycocotools", reason=ELSEWHERE)  # alone in that environment: torchvision elsewhere may be of another build
    try:
        import torchvision
    except (ImportError, RuntimeError):  # its operators need CUDA's libraries; datasets need none of them
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision
    return torchvision
