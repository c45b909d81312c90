import subprocess
import sys

import numpy as np
import pytest
from image_backends import image_backend
from numpy.testing import assert_array_equal

from highway.images import ops as B
from highway.images import sampling as S

__all__ = ["image_backend"]


def test_opencv_is_none_where_it_is_not_installed_and_else_runs_no_threads_of_its_own(backend):
    cv2 = B.cv2_or_none()
    if backend == "pillow":
        assert cv2 is None
    else:
        assert cv2.getNumThreads() == 1


def test_importing_functions_and_transforms_imports_no_opencv():
    code = "import sys, highway.functional, highway.transforms; sys.exit('cv2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture
def photo():
    """A smooth picture: where there are edges, the two may differ by more."""
    y, x = np.mgrid[0:60, 0:80]
    waves = [128 + 100 * np.sin(x / 9 + k) * np.cos(y / 7 - k) for k in range(3)]
    return np.stack(waves, axis=2).round().astype(np.uint8)


TURN = np.array([[0.45, 0.15, 12.5], [-0.15, 0.45, 20.0]])  # reads from within the photo alone


def with_and_without_opencv(operation, monkeypatch):
    pytest.importorskip("cv2")
    with_opencv = operation()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "cv2", None)
        B.cv2_or_none.cache_clear()
        without = operation()
    B.cv2_or_none.cache_clear()
    assert with_opencv.dtype == without.dtype
    return with_opencv, without


@pytest.mark.parametrize("dtype", [np.uint8, np.float32], ids=lambda d: d.__name__)
@pytest.mark.parametrize(
    ("operation", "most", "average"),
    [
        (lambda x: B.scale(x, (150, 170), "bilinear"), 2, 0.5),
        (lambda x: B.scale(x, (150, 170), "bicubic"), 4, 0.5),
        (lambda x: B.scale(x, (45, 60), "bilinear"), 12, 1.5),
        (lambda x: B.scale(x, (30, 40), "area"), 1, 0.5),
        (lambda x: S.warp(x, TURN, (60, 80), "bilinear"), 3, 0.5),
        (lambda x: B.mix(x, np.float32([[0.6, -0.55, 1.1], [2.3, 0, 0], [0.31, 0.33, 0.3]])), 1, 0.1),
    ],
    ids=["enlarge", "enlarge bicubic", "shrink", "shrink by area", "warp", "mix"],
)
def test_resizing_warping_and_mixing_agree_nearly(photo, monkeypatch, operation, most, average, dtype):
    given = photo.astype(dtype)
    difference = np.abs(np.subtract(*with_and_without_opencv(lambda: operation(given), monkeypatch), dtype=np.float64))
    assert difference.max() <= most
    assert difference.mean() <= average


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: B.flip(x, 0),
        lambda x: B.flip(x, 1),
        lambda x: B.lookup(x, np.arange(255, -1, -1, dtype=np.uint8)),
        lambda x: B.scale(x, (33, 91), "nearest"),
        lambda x: S.warp(x, TURN, (60, 80), "nearest"),
    ],
    ids=["flip rows", "flip columns", "lookup", "nearest", "warp nearest"],
)
def test_flips_tables_and_nearest_neighbours_are_equal_to_the_bit(photo, monkeypatch, operation):
    assert_array_equal(*with_and_without_opencv(lambda: operation(photo), monkeypatch), strict=True)
