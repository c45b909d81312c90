import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def photos(tmp_path):
    """Twelve images in two folders; pixel values say which."""
    for number in range(12):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((7, 9, 3), number, np.uint8)).save(path)
    return tmp_path / "photos"


@pytest.fixture
def one_worker(monkeypatch):
    """Have maps that would get a worker for each core get one: of several, two may read the same at once, and the more read ahead."""
    monkeypatch.setattr("highway.engine.running.available_cores", lambda: 1)
