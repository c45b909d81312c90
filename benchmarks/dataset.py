"""Make a folder of JPEGs like ImageNet's. The cost of decoding depends on the bytes, so the files have the same mean size (110 kB)."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from highway.data import photos

FOLDER = Path(tempfile.gettempdir()) / "highway-benchmark-images"
SIZES = [(500, 375)] * 6 + [(375, 500), (500, 333), (400, 400), (640, 480)]  # width, height


def imagenet_like(data: Path, count: int, seed: int = 0) -> Path:
    """Make ``count`` images in label folders below a folder in ``data``, unless they are there, and return the folder.

    Crops of photographs, enlarged, varied in colour and brightness, with so much 1/f noise (sigma 11 to 27) that they come to the bytes of
    camera pictures of their size; quality 92, four fifths of them 4:2:0.
    """
    folder = data / str(count)
    done = folder / f"complete-{count}-{seed}"
    if not done.exists():
        for number, (label, data) in enumerate(_images(count, seed)):
            path = folder / label / f"{number:05}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        done.touch()
    return folder


def tiny(data: Path, count: int) -> Path:
    """Make ``count`` photographs of 16x16, unless they are there, and return their folder."""
    folder = data / f"tiny-{count}"
    done = folder / "complete"
    if not done.exists():
        sources = sorted(Path(photos()).rglob("*.jpg"))
        for number in range(count):
            path = folder / str(number % 10) / f"{number:05}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            with Image.open(sources[number % len(sources)]) as photo:
                photo.convert("RGB").resize((16, 16)).save(path, quality=90 + number // len(sources) % 10)
        done.touch()
    return folder


def describe(folder: Path) -> str:
    """Return one line with the number, mean bytes and mean size of the images."""
    files = sorted(folder.glob("*/*.jpg"))
    sizes = np.array([Image.open(path).size for path in files])
    mean = np.mean([path.stat().st_size for path in files])
    return f"{len(files)} JPEGs, mean {mean / 1e3:.0f} kB, {sizes[:, 0].mean():.0f}x{sizes[:, 1].mean():.0f}"


def _images(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    rng = np.random.default_rng(seed)
    sources = sorted(Path(photos()).rglob("*.jpg"))
    for _ in range(count):
        path = sources[rng.integers(len(sources))]
        with Image.open(path) as photo:
            width, height = SIZES[rng.integers(len(SIZES))]
            part = rng.uniform(0.6, 1.0) * min(photo.width / width, photo.height / height)
            w, h = part * width, part * height
            left, top = rng.uniform(0, photo.width - w), rng.uniform(0, photo.height - h)
            crop = photo.convert("RGB").resize((width, height), Image.Resampling.BICUBIC, box=(left, top, left + w, top + h))
        pixels = np.asarray(crop, np.float32) * rng.uniform(0.7, 1.2, 3) + rng.uniform(-15, 15)
        pixels += rng.uniform(11, 27) * _one_over_f(height, width, rng)[..., None]
        data = io.BytesIO()
        subsampling = 2 if rng.random() < 0.8 else 0
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(data, "JPEG", quality=92, subsampling=subsampling)
        yield path.parent.name, data.getvalue()


def _one_over_f(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    spectrum = np.fft.rfft2(rng.standard_normal((height, width))) / np.maximum(frequency, 1 / max(height, width)) ** 0.5
    noise = np.fft.irfft2(spectrum, (height, width))
    return (noise / noise.std()).astype(np.float32)
