"""Damages a file of each format at random, reads it, and prints the outcomes: ``python damaged_files.py FORMAT FIRST_CASE CASES FOLDER``.

It is a program of its own, so that a library that crashes or never returns ends one process, and not the tests.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import random
import shutil
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from test_spoilt_files import KINDS, N, colours, digits, lines, written

from highway.datasets import (
    CIFAR10,
    COCO,
    MDS,
    MNIST,
    VOC,
    Arrow,
    HuggingFace,
    ImageFolder,
    LevelDB,
    MegatronIndexed,
    Npz,
    SVMLight,
    TenFiles,
    Zarr,
)
from highway.datasets.formats import formats as writers
from highway.errors import HighwayError
from highway.modules import WebDatasetSource


class Format(NamedTuple):
    """How the files of a format are written, which of them are damaged, and what reads them."""

    write: Callable[[Path], None]
    pattern: str
    dataset: Callable[[Path], Any]


def images(root: Path) -> None:
    for number in range(N):
        (root / f"{number % 2}").mkdir(exist_ok=True)
        (root / f"{number % 2}/{number}.jpg").write_bytes(random.Random(number).randbytes(2000))


def shards(compress: Callable[[bytes], bytes], name: str) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        written("shards", "b.tar")(root)
        (root / name).write_bytes(compress((root / "b.tar").read_bytes()))

    return write


def zipped_digits(root: Path) -> None:
    digits(root)
    for path in list(root.iterdir()):
        Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        path.unlink()


def zipped_arrays(root: Path) -> None:
    numbers = np.arange(16 * N, dtype=np.float32).reshape(N, 16)
    np.savez_compressed(root / "a.npz", x=numbers, text=np.array([f"{number} " * 40 for number in range(N)]))


def tens(root: Path) -> None:
    with writers()["ten"].write(str(root / "a.ten"), {}) as writer:
        writer.add("a", {"x": np.arange(3000, dtype=np.float32)})


def arrow_stream(root: Path) -> None:
    import pyarrow as pa

    table = pa.table({"x": list(range(N)), "text": [f"{number} " * 40 for number in range(N)]})
    with pa.ipc.new_stream(str(root / "a.arrow"), table.schema) as out:
        out.write_table(table, 10)


def coco(root: Path) -> None:
    numbers = range(N)
    polygon = [10, 1, 15, 1, 12, 6, 10, 6]
    content = {
        "images": [{"id": number, "file_name": f"{number}.jpg", "height": 20, "width": 30} for number in numbers],
        "annotations": [{"image_id": n, "category_id": 17, "bbox": [1, 2, 3, n + 1], "segmentation": [polygon]} for n in numbers],
        "categories": [{"id": 17, "name": "cät"}],
    }
    (root / "a.json").write_text(json.dumps(content, ensure_ascii=False))
    (root / "images").mkdir()
    for number in numbers:
        (root / f"images/{number}.jpg").write_bytes(b"%d" % number)


def voc(root: Path) -> None:
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (root / name).mkdir(parents=True)
    for number in range(4):
        (root / f"JPEGImages/{number}.jpg").write_bytes(b"%d" % number)
        box = f"<bndbox><xmin>{number + 1}</xmin><ymin>2</ymin><xmax>30</xmax><ymax>40</ymax></bndbox>"
        text = f"<annotation><filename>{number}.jpg</filename><object><name>cat</name>{box}</object></annotation>"
        (root / f"Annotations/{number}.xml").write_text(text)
    (root / "ImageSets/Main/train.txt").write_text("0\n1\n2\n3\n")


def zarr_arrays(root: Path) -> None:
    import zarr

    group = zarr.open_group(str(root / "a.zarr"), mode="w")
    group.create_array("x", data=np.arange(16 * N, dtype=np.float32).reshape(N, 16), chunks=(8, 16))
    group.create_array("y", data=np.arange(N), chunks=(N,))


def megatron(root: Path) -> None:
    lengths = np.arange(1, N + 1, dtype="<i4")
    offsets = 2 * (np.cumsum(lengths, dtype="<i8") - lengths)
    np.arange(lengths.sum(), dtype="<u2").tofile(root / "a.bin")
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, N, N + 1)
    (root / "a.idx").write_bytes(header + lengths.tobytes() + offsets.tobytes() + np.arange(N + 1, dtype="<i8").tobytes())


def hub_table(root: Path) -> None:
    from datasets import Dataset

    Dataset.from_dict({"x": list(range(N)), "text": [f"{number} " * 40 for number in range(N)]}).save_to_disk(root / "t")


def streamed(name: str) -> Callable[[Path], Any]:
    return lambda root: [stamped.item for stamped in WebDatasetSource(f"{root}/{name}", epochs=1)]


# By their names in docs/howto/formats.md.
FORMATS = {
    "ImageFolder, Files": Format(images, "1/7.jpg", lambda root: ImageFolder(str(root))),
    "Tar, .tar": Format(*KINDS["Tar"]),
    "WebDatasetSource, .tar": Format(written("shards", "a.tar"), "a.tar", streamed("a.tar")),
    "WebDatasetSource, .tar.gz": Format(shards(gzip.compress, "a.tar.gz"), "a.tar.gz", streamed("a.tar.gz")),
    "WebDatasetSource, .tar.bz2": Format(shards(bz2.compress, "a.tar.bz2"), "a.tar.bz2", streamed("a.tar.bz2")),
    "WebDatasetSource, .tar.xz": Format(shards(lzma.compress, "a.tar.xz"), "a.tar.xz", streamed("a.tar.xz")),
    "TenFiles": Format(tens, "a.ten", lambda root: TenFiles(f"{root}/a.ten")),
    "Npy": Format(*KINDS["Npy"]),
    "Npz": Format(*KINDS["Npz"]),
    "Npz(verify=True)": Format(*KINDS["Npz"][:2], lambda root: Npz(f"{root}/a.npz", verify=True)),
    "Npz, compressed": Format(zipped_arrays, "a.npz", lambda root: Npz(f"{root}/a.npz")),
    "VOC": Format(voc, "Annotations/2.xml", lambda root: VOC(str(root), "train")),
    "COCO": Format(coco, "a.json", lambda root: COCO(f"{root}/images", f"{root}/a.json", masks=True)),
    "MNIST, FashionMNIST": Format(digits, "train-images-idx3-ubyte", lambda root: MNIST(str(root))),
    "MNIST, FashionMNIST, .gz": Format(zipped_digits, "train-*.gz", lambda root: MNIST(str(root))),
    "CIFAR10, CIFAR100": Format(colours, "data_batch_2.bin", lambda root: CIFAR10(str(root))),
    "SVMLight": Format(lines, "a.svm", lambda root: SVMLight(f"{root}/a.svm")),
    "TFRecord": Format(*KINDS["TFRecord"]),
    "ArrayRecord": Format(*KINDS["ArrayRecord"]),
    "MegatronIndexed": Format(megatron, "a.*", lambda root: MegatronIndexed(f"{root}/a")),
    "LMDB": Format(*KINDS["LMDB"]),
    "Parquet": Format(*KINDS["Parquet"]),
    "Arrow": Format(*KINDS["Arrow"]),
    "Arrow, streams": Format(arrow_stream, "a.arrow", lambda root: Arrow(f"{root}/a.arrow")),
    "HuggingFace": Format(hub_table, "t/*", lambda root: HuggingFace(f"{root}/t")),
    "LevelDB": Format(KINDS["LevelDB"][0], "a.leveldb/*", lambda root: LevelDB(f"{root}/a.leveldb")),
    "HDF5": Format(*KINDS["HDF5"]),
    "Zarr": Format(zarr_arrays, "a.zarr/**/*", lambda root: Zarr(f"{root}/a.zarr")),
    "MDS": Format(*KINDS["MDS"]),
    "MDS(verify=True)": Format(KINDS["MDS"][0], "m/*", lambda root: MDS(f"{root}/m", verify=True)),
    "DecodedCache": Format(KINDS["DecodedCache"][0], "c/*", KINDS["DecodedCache"][2]),
}


def cut_short(data: bytes, chosen: random.Random) -> bytes:
    return data[: chosen.randrange(len(data))]


def bytes_added(data: bytes, chosen: random.Random) -> bytes:
    return data + chosen.choice([bytes, chosen.randbytes])(chosen.choice([1, 512, 4096, 100_000]))


def zeros(data: bytes, chosen: random.Random) -> bytes:
    size = chosen.choice([8, 64, 512, 4096])
    begin = chosen.randrange(-(-len(data) // size)) * size
    return data[:begin] + bytes(len(data[begin : begin + size])) + data[begin + size :]


def flipped_bits(data: bytes, chosen: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chosen.choice([1, 1, 1, 10])):
        changed[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
    return bytes(changed)


def swapped_blocks(data: bytes, chosen: random.Random) -> bytes:
    size = chosen.choice([8, 64, 512, 4096])
    blocks = [data[begin : begin + size] for begin in range(0, len(data), size)]
    one, other = (chosen.randrange(max(1, len(data) // size)) for _ in range(2))
    blocks[one], blocks[other] = blocks[other], blocks[one]
    return b"".join(blocks)


# By their names in docs/howto/formats.md.
KINDS_OF_DAMAGE = {
    "cut short": cut_short,
    "cut while open": cut_short,
    "bytes added": bytes_added,
    "zeros": zeros,
    "flipped bits": flipped_bits,
    "swapped blocks": swapped_blocks,
}


def plain(value: Any) -> Any:
    """Return a value that can be compared by ``==``."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return (str(value.dtype), value.shape, value.tobytes()) if isinstance(value, (np.ndarray, np.generic)) else value


def read(dataset: Any) -> tuple[list[Any], Any]:
    """Return the samples and their keys."""
    samples = [plain(dataset[number]) for number in range(len(dataset))]
    return samples, list(getattr(dataset, "keys", None) or ())


def outcome(format: Format, kind: str, root: Path, chosen: random.Random) -> tuple[str, str]:
    """Return what reading a damaged file gives: the ``same``, an ``error``, other ``values``, other ``samples``; or ``wrong`` and why."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    format.write(root)
    path = chosen.choice(sorted(path for path in root.glob(format.pattern) if path.is_file() and path.stat().st_size))
    data = path.read_bytes()
    copy = root.parent / "whole"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root, copy)
    expected = read(format.dataset(copy))
    opened = None
    if kind == "cut while open":
        opened = format.dataset(root)
        read(opened[:1] if isinstance(opened, list) else [opened[0]])
        if not path.exists():  # LevelDB has put its log into a table
            return "same", ""
        os.truncate(path, min(len(KINDS_OF_DAMAGE[kind](data, chosen)), path.stat().st_size))
    else:
        path.write_bytes(KINDS_OF_DAMAGE[kind](data, chosen))
    try:
        found = read(format.dataset(root) if opened is None else opened)
    except (HighwayError, OSError) as error:
        if not isinstance(error, HighwayError) and not error.errno:
            return "wrong", f"a bare {error!r}"
        return ("error", "") if str(root) in str(error) else ("wrong", f"an error that does not name the file: {error!r}")
    except Exception as error:
        return "wrong", f"a bare {error!r}"
    if len(found[0]) != len(expected[0]):
        return "samples", f"{len(found[0])} samples, expected {len(expected[0])}"
    keys, expected_keys = ([str(key).removeprefix(f"{place}/") for key in one[1]] for place, one in ((root, found), (copy, expected)))
    return ("same" if found[0] == expected[0] and keys == expected_keys else "values"), ""


if __name__ == "__main__":
    name, first, cases, folder = sys.argv[1:]
    for kind in KINDS_OF_DAMAGE:
        for case in range(int(first), int(first) + int(cases)):
            print(json.dumps([kind, case]), flush=True)
            print(json.dumps(outcome(FORMATS[name], kind, Path(folder, "files"), random.Random(f"{name}, {kind}, {case}"))), flush=True)
