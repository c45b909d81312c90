"""Small samples, by highway and by its peers: dicts of 1 kB of a dataset or stream to batches, sequences to rows, and shards of tar files.

The argument is a folder with ``job.json``: ``count`` samples of the dataset, ``batch``, ``workers``, and lists of ``shards`` by name. A
mode is one of the functions below and, behind a colon, what it takes.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from worker import serve

Sample = dict[str, Any]
Job = dict[str, Any]
Batches = Callable[[], Iterator[tuple["Came", None]]]


class Came:
    """So many samples, with so many bytes; in the place of their images."""

    def __init__(self, count: int, nbytes: int) -> None:
        self.count, self.nbytes = count, nbytes

    def __len__(self) -> int:
        return self.count


def load(folder: Path) -> Job:
    return json.loads((folder / "job.json").read_text())


def doubled(sample: Sample) -> Sample:
    """Return a sample with one of its arrays changed: what a map may do."""
    return {**sample, "x": sample["x"] * 2}


class Dicts:
    """Dicts of 1 kB: three small arrays and a number."""

    def __init__(self, count: int, change: Callable[[Sample], Sample] | None = None) -> None:
        self.count, self.change = count, change
        self.x, self.y, self.z = np.zeros(128, np.float32), np.zeros(64, np.float32), np.zeros(16)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Sample:
        sample = {"x": self.x, "y": self.y, "z": self.z, "number": number}
        return sample if self.change is None else self.change(sample)


class Sequences:
    """Sequences of 1 to 1024 int32, 125 on average: in each all values are its number, from 1 on."""

    def __init__(self, count: int) -> None:
        lengths = np.clip(np.random.default_rng(0).lognormal(4.5, 0.8, count).astype(int), 1, ROW)
        self.ends = np.cumsum(lengths)
        self.values = np.repeat(np.arange(1, count + 1, dtype=np.int32), lengths)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, number: int) -> Sample:
        return {"tokens": self.values[self.ends[number - 1] if number else 0 : self.ends[number]]}


ROW, ROWS = 1024, 16  # values in a row, and rows in a batch


def packed(job: Job, how: str) -> Batches:
    """highway's ``Pack``, or ``ConcatThenSplit``, behind its ``Reader``, which shuffles; of samples one by one, or in batches."""
    from highway import Pipeline
    from highway.modules import Batch, ConcatThenSplit, Pack, Reader

    data, batched = Sequences(job["count"]), "batched" in how
    pack = ConcatThenSplit(ROW, batched=batched) if "split" in how else Pack(ROW, batched=batched)
    batching = {"batch_size": 1024, "ragged": "list"} if batched else {}
    reader = Reader(data, epochs=1, num_workers=job["workers"], **batching)
    return whole(data, lambda: Pipeline([reader, pack, Batch(ROWS)]))


def bucketed(job: Job, how: str) -> Batches:
    """highway's ``Bucket`` behind its ``Reader``, or a reader that fills up batches of whatever length."""
    from highway import Pipeline
    from highway.modules import Bucket, Reader

    data = Sequences(job["count"])
    batched = how == "padded"
    reader = Reader(data, job["batch"] if batched else None, epochs=1, num_workers=job["workers"], ragged="pad" if batched else None)
    bucket = Bucket([64, 128, 256, 512], [256, 128, 64, 32, 16], by="tokens")
    return whole(data, lambda: Pipeline([reader] if batched else [reader, bucket]))


def grain_packed(job: Job, how: str) -> Batches:
    """Grain's packing, behind a shuffle of it."""
    import grain

    data = Sequences(job["count"])
    options = grain.ReadOptions(num_threads=job["workers"], prefetch_buffer_size=500)
    rows: Any = grain.MapDataset.source(data).shuffle(seed=0).to_iter_dataset(options)
    lengths = {"tokens": ROW}
    if how == "split":
        rows = grain.experimental.ConcatThenSplitIterDataset(rows, length_struct=lengths)
    else:
        rows = grain.experimental.FirstFitPackIterDataset(rows, length_struct=lengths, num_packing_bins=64, shuffle_bins=False)
    return whole(data, lambda: rows.batch(ROWS, drop_remainder=False))


def change_of(how: str) -> Callable[[Sample], Sample] | None:
    return doubled if "map" in how else None


def reader(job: Job, how: str) -> Batches:
    """highway's ``Reader``, which shuffles, over the dataset."""
    from highway import Pipeline
    from highway.modules import Reader

    return taken(job, lambda: Pipeline([Reader(Dicts(job["count"], change_of(how)), job["batch"], epochs=1, num_workers=job["workers"])]))


def stream(job: Job, how: str) -> Batches:
    """highway's stages behind a generator of the samples: any of ``Shuffle`` of 1000 and ``map``, and then ``Batch``."""
    from highway import Pipeline
    from highway.modules import Batch, Shuffle

    dicts = Dicts(job["count"])

    def source() -> Iterator[Sample]:
        for number in range(len(dicts)):
            yield dicts[number]

    def stages() -> list[Any]:
        shuffle = [Shuffle(1000)] if "Shuffle" in how else []
        return [source, *shuffle, *([doubled] if "map" in how else []), Batch(job["batch"])]

    return taken(job, lambda: Pipeline(stages()))


def loader(job: Job, how: str) -> Batches:
    """torch's DataLoader, which shuffles, in this process or with worker processes that stay."""
    import torch
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)
    workers = job["workers"] if "workers" in how else 0
    dataset: Any = Dicts(job["count"], change_of(how))
    loader = DataLoader(dataset, job["batch"], shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    return taken(job, lambda: ({name: value.numpy() for name, value in batch.items()} for batch in loader))


def grain(job: Job, how: str) -> Batches:
    """Grain's MapDataset, read by threads."""
    import grain

    dataset = grain.MapDataset.source(Dicts(job["count"]))
    dataset = dataset.shuffle(seed=0) if "shuffle" in how else dataset
    dataset = dataset.map(doubled) if "map" in how else dataset
    options = grain.ReadOptions(num_threads=job["workers"], prefetch_buffer_size=500)  # its defaults are 16 and 500
    return taken(job, lambda: dataset.batch(job["batch"], drop_remainder=False).to_iter_dataset(options))


def source(job: Job, how: str) -> Batches:
    """highway's WebDatasetSource."""
    from highway import Pipeline
    from highway.modules import WebDatasetSource

    shards = job["shards"][how]

    def samples() -> Iterator[tuple[Came, None]]:
        with Pipeline([WebDatasetSource(shards, epochs=1, shuffle=False)]) as pipeline:
            for sample in pipeline:
                yield Came(1, len(sample["bin"])), None

    return samples


def webdataset(job: Job, how: str) -> Batches:
    """webdataset's own reader."""
    import webdataset as wds

    shards = job["shards"][how]

    def samples() -> Iterator[tuple[Came, None]]:
        for sample in wds.WebDataset(shards, shardshuffle=False, nodesplitter=None):
            yield Came(1, len(sample["bin"])), None

    return samples


def taken(job: Job, batches: Callable[[], Any]) -> Batches:
    """Return what goes over batches of dicts once, and fails if a sample is missing or comes twice."""

    def fields() -> Iterator[tuple[Came, None]]:
        total = 0
        for batch in batches():
            total += int(batch["number"].sum(dtype=np.int64))
            yield Came(len(batch["number"]), sum(array.nbytes for array in batch.values())), None
        if total != job["count"] * (job["count"] - 1) // 2:
            raise ValueError("not every sample was read exactly once")

    return fields


def whole(data: Sequences, batches: Callable[[], Any]) -> Batches:
    """Return what goes over batches of rows once, and fails if a value is missing or comes twice."""
    expected = int(data.values.sum(dtype=np.int64))

    def rows() -> Iterator[tuple[Came, None]]:
        total = 0
        for batch in batches():
            total += int(batch["tokens"].sum(dtype=np.int64))
            yield Came(0, batch["tokens"].nbytes), None
        if total != expected:
            raise ValueError("not every sequence was read exactly once")
        yield Came(len(data), 0), None

    return rows


def prepare(job: Job, mode: str) -> Batches:
    function, _, how = mode.partition(":")
    return globals()[function](job, how)


if __name__ == "__main__":
    names = {"highway": "highway-data", "torch": "torch", "webdataset": "webdataset", "grain": "grain"}
    serve(prepare, *(package for module, package in names.items() if importlib.util.find_spec(module)), "numpy", load=load)
