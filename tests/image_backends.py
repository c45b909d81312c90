"""The fixture that runs a test with OpenCV and without."""

import sys

import pytest

from highway.images.ops import cv2_or_none


@pytest.fixture(params=["opencv", "pillow"], name="backend")
def image_backend(request, monkeypatch):
    if request.param == "opencv":
        pytest.importorskip("cv2")
    else:
        monkeypatch.setitem(sys.modules, "cv2", None)  # what an import finds where nothing is installed
    cv2_or_none.cache_clear()
    yield request.param
    cv2_or_none.cache_clear()
