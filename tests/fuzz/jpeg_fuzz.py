"""Mutated photographs against highway/images/_jpeg.c, under AddressSanitizer and UndefinedBehaviorSanitizer. For Linux, with gcc or clang.

    python tests/fuzz/jpeg_fuzz.py [--seconds 60] [--seed 0]

Builds the extension with the sanitizers, starts itself again with their library loaded first, and decodes boxes of damaged files through
highway's own seam: each by itself, and together as a run, half of them from the disk. A file may be decoded or refused with an ImageError;
it must do the same twice, and in a run, and write nothing beside its row. What
the sanitizers find ends the run; memory that the extension has lost is found at the end. CFLAGS and LDFLAGS are passed on, so that a
libjpeg-turbo that was itself built with the sanitizers can be linked: then what happens inside it is watched too.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import io
import os
import re
import shlex
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image

from highway.errors import ImageError

ROOT = Path(__file__).parents[2]
SANITIZED = "HIGHWAY_SANITIZED_JPEG"
RUN = 16  # files that are decoded together
MARKERS = (0x00, 0xC0, 0xC2, 0xC4, 0xD0, 0xD9, 0xDA, 0xDB, 0xDD, 0xEE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="how long to go on")
    parser.add_argument("--seed", type=int, default=0, help="where the sequence of mutations begins")
    options = parser.parse_args()
    if SANITIZED in os.environ:
        built = Path(os.environ[SANITIZED])
        load(built)
        fuzz(options.seconds, options.seed)
        done(built).touch()
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return run_sanitized(build(Path(folder)))


def build(folder: Path) -> Path:
    """Compile the extension with the sanitizers; return the file."""
    built = folder / f"_jpeg{sysconfig.get_config_var('EXT_SUFFIX')}"
    sanitizers = ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    before, after = (shlex.split(os.environ.get(name, "")) for name in ("CFLAGS", "LDFLAGS"))
    include = f"-I{sysconfig.get_path('include')}"
    command = [
        compiler(),
        *sanitizers,
        "-shared",
        "-fPIC",
        include,
        *before,
        ROOT / "highway/images/_jpeg.c",
        "-o",
        built,
        *after,
        "-ljpeg",
    ]
    subprocess.run(command, check=True)
    return built


def compiler() -> str:
    return os.environ.get("CC", "cc")


def done(built: Path) -> Path:
    """Return the file whose presence says that the fuzzing came to its end: the exit status tells nothing, since Python itself leaks."""
    return built.with_suffix(".done")


def run_sanitized(built: Path) -> int:
    """Run this script again, with the sanitizer's library before all others; return 0 if nothing was found."""
    found = subprocess.run([compiler(), "-print-file-name=libasan.so"], check=True, capture_output=True, text=True)
    sanitizer = {"LD_PRELOAD": found.stdout.strip(), "PYTHONMALLOC": "malloc", "ASAN_OPTIONS": "allocator_may_return_null=1"}
    environment = {**os.environ, **sanitizer, SANITIZED: str(built)}
    process = subprocess.run([sys.executable, *sys.argv], env=environment, stderr=subprocess.PIPE, text=True, errors="replace")
    reports = [process.stderr]
    if done(built).exists():
        reports = [report for report in process.stderr.split("\n\n") if "leak of" in report and "jpeg" in report]
    print(*reports, sep="\n\n", file=sys.stderr)
    return 1 if reports else 0


def load(file: Path) -> None:
    """Put the extension from ``file`` where highway's own would be."""
    loader = importlib.machinery.ExtensionFileLoader("highway.images._jpeg", str(file))
    spec = importlib.util.spec_from_file_location("highway.images._jpeg", file, loader=loader)
    sys.modules["highway.images._jpeg"] = importlib.util.module_from_spec(spec)
    loader.exec_module(sys.modules["highway.images._jpeg"])


def fuzz(seconds: float, seed: int) -> None:
    """Decode mutated photographs until the time is up, then print how many were decoded, and how often each error was met."""
    from highway.images.decode import backend

    assert backend() == "highway._jpeg"
    photos, outcomes, number, end = photographs(), Counter(), 0, time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end:
            files = []
            for _ in range(RUN):
                rng = np.random.default_rng((seed, number))
                files.append(mutated(photos, rng))
                choice = rng.integers(0, 2**32)
                first, second = (outcome(files[-1], np.random.default_rng(choice)) for _ in range(2))
                assert first == second, f"mutation {number} of seed {seed} gave two results"
                outcomes[first if isinstance(first, str) else "decoded"] += 1
                number += 1
            check_run(files, Path(folder), np.random.default_rng((seed, number)))
    print(f"{number} files, {outcomes['decoded']} decoded, {len(outcomes) - 1} kinds of error; the most frequent:")
    for message, count in outcomes.most_common(12):
        print(f"{count:8} {message}")


def outcome(data: bytes, rng: np.random.Generator) -> bytes | str:
    """Decode a random box into the middle of three rows; return the pixels, or the error's first words."""
    from highway.images.decode import checked_header, decode_crop

    batch = np.full((3, *rng.integers(1, 300, 2), 3), 77, np.uint8)
    try:
        header = checked_header(data, max_pixels=1 << 21)
        top, left = (int(rng.integers(0, length)) for length in header.size)
        rows, columns = (int(rng.integers(1, n - at + 1)) for n, at in zip(header.size, (top, left), strict=True))
        decode_crop(data, header, (top, left, rows, columns), batch[1], bool(rng.integers(2)), bool(rng.integers(2)))
    except ImageError as error:
        return re.sub(r"0x[0-9a-f]+|[0-9]+", "#", str(error))[:100]
    finally:
        assert (batch[[0, 2]] == 77).all(), "written beside the row"
    return batch[1].tobytes()


def check_run(files: list[bytes], folder: Path, rng: np.random.Generator) -> None:
    """Decode files as a run, from memory, views and the disk, with wild boxes too; the rows must be those of files that come alone."""
    from highway.images.run import decode_run

    sources: list[bytes | memoryview | str] = list(files)
    for place in range(1, len(files), 4):
        step = 1 + place % 3  # where that is not 1, the view does not lie in one piece
        sources[place] = memoryview(np.frombuffer(files[place], np.uint8).repeat(step))[::step]
    for place in range(0, len(files), 2):
        sources[place] = str(folder / str(place))
        Path(sources[place]).write_bytes(files[place])
    corners = rng.integers(0, 1000, (len(files), 2)) / 1000
    wild = rng.integers(-(2**40), 2**40, (len(files), 4)) * (rng.random((len(files), 1)) < 0.1)
    flipped, shape, antialias = rng.random(len(files)) < 0.5, rng.integers(1, 200, 2), bool(rng.integers(2))

    def rows_of(sources: list[bytes | memoryview | str], some: slice) -> tuple[np.ndarray, dict[int, str]]:
        def boxes_of(sizes: np.ndarray) -> tuple[np.ndarray, dict[int, Exception]]:
            first = (corners[some] * sizes).astype(np.int64)
            return np.concatenate([first, sizes - first], axis=1) + wild[some], {}

        batch = np.full((len(sources) + 2, *shape, 3), 77, np.uint8)
        errors = decode_run(sources, boxes_of, flipped[some], batch[1:-1], 1 << 21, antialias)
        assert (batch[[0, -1]] == 77).all(), "written beside the rows"
        assert all(isinstance(error, ValueError) for error in errors.values()), errors
        rows = batch[1:-1]
        rows[list(errors)] = 0
        return rows, {place: str(error) for place, error in errors.items()}

    together, errors = rows_of(sources, slice(0, len(files)))
    for place, data in enumerate(files):
        alone, its_errors = rows_of([data], slice(place, place + 1))
        assert (alone[0] == together[place]).all() and its_errors.get(0) == errors.get(place), "a run gave another result"


def photographs() -> list[bytes]:
    """Photographs of the package in every kind of JPEG that Pillow writes, small enough for thousands of mutations a minute."""
    files = sorted((ROOT / "highway/data/photos").rglob("*.jpg"))[::9]
    kept = [file.read_bytes() for file in files]
    for number, file in enumerate(files):
        for mode in ("RGB", "L", "CMYK"):
            image = Image.open(file).convert(mode).resize((40 + 37 * number % 300, 30 + 53 * number % 200))
            for progressive in (False, True):
                buffer = io.BytesIO()
                restart = {"restart_marker_blocks": 5} if number % 2 else {}
                image.save(buffer, "JPEG", quality=50 + number % 50, subsampling=number % 3, progressive=progressive, **restart)
                kept.append(buffer.getvalue())
    return kept


def mutated(photos: list[bytes], rng: np.random.Generator) -> bytes:
    """Damage one photograph in one to four places."""
    data = bytearray(photos[rng.integers(len(photos))])
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(2, min(len(data), 700) if rng.random() < 0.5 else len(data)))  # half of all in what is mostly header
        length = int(rng.integers(1, 200))
        kind = rng.integers(8)
        if kind == 0:
            data[at] = rng.integers(256)
        elif kind == 1:
            data[at : at + length] = rng.bytes(length)
        elif kind == 2:
            data[at : at + 2] = bytes((0xFF, MARKERS[rng.integers(len(MARKERS))]))
        elif kind == 3:
            del data[at : at + length]
        elif kind == 4:
            data[at:at] = data[at : at + length]
        elif kind == 5:
            other = photos[rng.integers(len(photos))]
            data[at:] = other[int(rng.integers(len(other))) :]
        elif kind == 6:
            data[at:] = b"\xff\xd9"  # cut short, but with an end
        else:
            resize(data, rng)
        if len(data) < 4:
            return bytes(data)
    return bytes(data)


def resize(data: bytearray, rng: np.random.Generator) -> None:
    """Have the file announce another height, width, or sampling of its colours."""
    at = max(data.find(b"\xff\xc0"), data.find(b"\xff\xc2"))
    if not 0 < at < len(data) - 20:
        return
    if rng.random() < 0.5:
        struct.pack_into(">H", data, at + int(rng.choice((5, 7))), rng.integers(1, 4000))
    else:
        data[at + int(rng.choice((11, 14, 17)))] = rng.integers(256)


if __name__ == "__main__":
    sys.exit(main())
