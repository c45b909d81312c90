"""Images and records of 1 kB by what holds them, read by highway and by its peers.

The argument is a folder with ``job.json``: the ``folder`` of the images, ``shape``, ``epochs``, ``batch``, ``workers``, how many
``records`` there are, and the ``place`` where files are written, by whoever needs them first. A mode is one of the functions below and,
behind a colon, what it takes. A record begins with its number, as int64.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from worker import serve

from samples import Came, load

SIZE = 1000  # bytes of a record

Job = dict[str, Any]
Batches = Callable[[], Iterator[tuple[Any, None]]]

# Of each format the writer and the dataset, in highway.datasets.
FORMATS = {
    "tar": ("shards:shard_writer", "Tar"),
    "tfrecord": ("records.tfrecord:tfrecord_writer", "TFRecord"),
    "arrayrecord": ("records.arrayrecord:arrayrecord_writer", "ArrayRecord"),
    "lmdb": ("keyed.lmdb:lmdb_writer", "LMDB"),
    "arrow": ("tables.writers:arrow_writer", "Arrow"),
    "parquet": ("tables.writers:parquet_writer", "Parquet"),
    "hdf5": ("hdf5.writer:hdf5_writer", "HDF5"),
    "mds": ("mds.writer:mds_writer", "MDS"),
}
RAW = {"tfrecord", "arrayrecord"}  # whose records need not be of the writer's own making


def writer_of(name: str) -> Any:
    module, _, function = FORMATS[name][0].partition(":")
    return getattr(importlib.import_module(f"highway.datasets.{module}"), function)


def dataset_of(name: str, path: str, **options: Any) -> Any:
    return getattr(importlib.import_module("highway.datasets"), FORMATS[name][1])(path, **options)


def images(job: Job, how: str) -> Batches:
    """highway's ``ImageFileReader``, with a crop at random and a flip."""
    from highway import Pipeline
    from highway.datasets import ImageFolder
    from highway.modules import ImageFileReader
    from highway.transforms import RandomResizedCrop

    folder = ImageFolder(job["folder"])
    dataset: Any = folder
    if how != "folder":
        path = f"{job['place']}/images.{how}"
        if not Path(path).exists():
            with writer_of(how)(path) as out:
                for number, key in enumerate(folder.keys):
                    data, label = folder[number]
                    out.add(key, {"jpg": data, "cls": label})
        dataset = dataset_of(how, path, **({"example": True} if how in RAW else {}))
    shuffle = "blocks" if how == "parquet" else True
    options = {"epochs": job["epochs"], "num_workers": job["workers"], "shuffle": shuffle, "seed": 0}
    reader = ImageFileReader(dataset, job["batch"], crop=RandomResizedCrop(tuple(job["shape"])), flip=0.5, **options)
    labels_of_all = job["epochs"] * sum(int(label) for label in folder._files.labels)

    def batches() -> Iterator[tuple[np.ndarray, None]]:
        total = 0
        with Pipeline([reader]) as pipeline:
            for _ in range(job["epochs"]):
                for pixels, labels in pipeline:
                    total += int(labels.sum(dtype=np.int64))
                    yield pixels, None
        if total != labels_of_all:
            raise ValueError("not every image was read once per epoch")

    return batches


def records_at(job: Job, name: str) -> str:
    """Return the file of records in a format, which is written if it is not there."""
    path = f"{job['place']}/records.{name}"
    if not Path(path).exists():
        rng = np.random.default_rng(0)
        with writer_of(name)(path) as out:
            for number in range(job["records"]):
                data = number.to_bytes(8, "little") + rng.bytes(SIZE - 8)
                if name in RAW:
                    out.write(data)
                elif name == "lmdb":
                    out.put(b"%08d" % number, data)
                else:
                    out.add(f"{number:08d}", {"data": data})
    return path


def array(record: bytes) -> np.ndarray:
    return np.frombuffer(record, np.uint8)


class Rows:
    """The records of a dataset as arrays."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, number: int) -> np.ndarray:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[np.ndarray]:
        return [array(record["data"] if isinstance(record, dict) else record) for record in self.dataset.__getitems__(numbers)]


def highway(job: Job, how: str) -> Batches:
    """highway's ``Reader``, which shuffles, but for ``in order``."""
    from highway import Pipeline
    from highway.modules import Reader

    name, _, order = how.partition(" ")
    dataset = Rows(dataset_of(name, records_at(job, name)))
    return taken(job, lambda: Pipeline([Reader(dataset, job["batch"], epochs=1, shuffle=not order, num_workers=job["workers"])]))


def grain(job: Job, how: str) -> Batches:
    """Grain: ``ArrayRecordDataSource``, shuffled and read by threads, or its reader of one TFRecord file, which has no other order."""
    import grain as library
    from grain.experimental import TFRecordIterDataset

    path = records_at(job, how)
    if how == "tfrecord":
        return taken(job, lambda: TFRecordIterDataset(path).map(array).batch(job["batch"], drop_remainder=False))
    source = library.sources.ArrayRecordDataSource([path])
    options = library.ReadOptions(num_threads=job["workers"], prefetch_buffer_size=500)  # its defaults are 16 and 500
    dataset = library.MapDataset.source(source).shuffle(seed=0).map(array)
    return taken(job, lambda: dataset.batch(job["batch"], drop_remainder=False).to_iter_dataset(options))


class Values:
    """The values of an LMDB database, as most people write it: opened in each worker, by a transaction that stays."""

    def __init__(self, path: str, length: int) -> None:
        self.path, self.length, self.transaction = path, length, None

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, number: int) -> np.ndarray:
        import lmdb

        if self.transaction is None:
            self.transaction = lmdb.open(self.path, readonly=True, lock=False, readahead=False, meminit=False).begin()
        return array(self.transaction.get(b"%08d" % number)).copy()  # torch wants memory that may be written to


def torch(job: Job, how: str) -> Batches:
    """torch's DataLoader, which shuffles, in this process or with worker processes that stay."""
    import torch as library
    from torch.utils.data import DataLoader

    library.set_num_threads(1)
    workers = job["workers"] if "workers" in how else 0
    dataset: Any = Values(records_at(job, "lmdb"), job["records"])
    loader = DataLoader(dataset, job["batch"], shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    return taken(job, lambda: (batch.numpy() for batch in loader))


def taken(job: Job, batches: Callable[[], Any]) -> Batches:
    """Return what goes over batches of records once, and fails if one is missing or comes twice."""

    def came() -> Iterator[tuple[Came, None]]:
        total = 0
        for batch in batches():
            total += int(np.ascontiguousarray(batch[:, :8]).view(np.int64).sum())
            yield Came(len(batch), batch.nbytes), None
        if total != job["records"] * (job["records"] - 1) // 2:
            raise ValueError("not every record was read exactly once")

    return came


def prepare(job: Job, mode: str) -> Batches:
    function, _, how = mode.partition(":")
    return globals()[function](job, how)


if __name__ == "__main__":
    sys.modules.setdefault("formats", sys.modules["__main__"])  # by which worker processes name what is theirs
    names = {"highway": "highway-data", "torch": "torch", "grain": "grain", "array_record": "array-record", "lmdb": "lmdb"}
    serve(prepare, *(package for module, package in names.items() if importlib.util.find_spec(module)), "numpy", load=load)
