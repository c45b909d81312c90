"""Compare file formats: images from a folder, shards, records, databases and tables, and records of 1 kB in highway and other libraries.

The images of all formats are the same, in the same order, and one process reads the formats in turns. All libraries read the same files of
records.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path

from dataset import describe, imagenet_like
from loaders import BATCH, SHAPE, Case, options, present
from measure import Report, chosen, foreign, in_turns, machine

GRAIN = "grain"  # its environment has the library of ArrayRecord

IMAGES = {
    "folder": "folder",
    "Tar": "tar",
    "TFRecord": "tfrecord",
    "LMDB": "lmdb",
    "Arrow": "arrow",
    "Parquet, blocks": "parquet",
    "HDF5": "hdf5",
    "MDS": "mds",
}
IMAGE_TARGETS = {(name, "folder"): 0.95 for name in IMAGES if name != "folder"}

RECORDS = {
    "highway, TFRecord": Case("formats", "highway:tfrecord"),
    "highway, TFRecord, in order": Case("formats", "highway:tfrecord in order"),
    "highway, ArrayRecord": Case("formats", "highway:arrayrecord", GRAIN),
    "highway, Arrow": Case("formats", "highway:arrow"),
    "highway, LMDB": Case("formats", "highway:lmdb"),
    "Grain, TFRecord, in order": Case("formats", "grain:tfrecord", GRAIN),
    "Grain, ArrayRecord": Case("formats", "grain:arrayrecord", GRAIN),
    "DataLoader, LMDB": Case("formats", "torch:lmdb"),
    "DataLoader, LMDB, workers": Case("formats", "torch:lmdb workers"),
}
RECORD_TARGETS = {
    ("highway, TFRecord, in order", "Grain, TFRecord, in order"): 1.2,
    ("highway, ArrayRecord", "Grain, ArrayRecord"): 1.2,
    ("highway, LMDB", "DataLoader, LMDB, workers"): 1.5,
    ("highway, LMDB", "DataLoader, LMDB"): 1.0,
}


def main() -> None:
    given = options(__doc__, epochs=3)
    report = Report("formats", given.record)
    folder = imagenet_like(given.data, given.images)
    records = given.images * 100
    report.line(machine("highway-data", "numpy", "lmdb", "pyarrow", "h5py", "google-crc32c", "torch"))
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as closing:
        place = Path(temporary)
        job = {"folder": str(folder), "shape": SHAPE, "epochs": given.epochs, "batch": BATCH, "workers": given.workers, "records": records}
        (place / "job.json").write_text(json.dumps(job | {"place": temporary}))
        images = {name: Case("formats", f"images:{IMAGES[name]}", process="images") for name in chosen(IMAGES, given)}
        peers, absent = present(images, place, closing)
        rates = in_turns({name: peer.work for name, peer in peers.items()}, given.rounds, absent)
        report.line(f"{describe(folder)}, {given.epochs} times per turn; {given.workers} workers; {given.rounds} rounds.")
        report.rates("Images to batches, by format", rates, ["folder"], "images", absent)
        report.targets(rates, IMAGE_TARGETS)
        peers, absent = present({name: RECORDS[name] for name in chosen(RECORDS, given)}, place, closing)
        report.line(foreign({name: peer.process.versions for name, peer in peers.items()}))
        rates = in_turns({name: peer.work for name, peer in peers.items()}, given.rounds, absent)
        against = ["Grain, ArrayRecord", "DataLoader, LMDB", "DataLoader, LMDB, workers"]
        report.rates(
            f"{records:,} records of 1 kB to batches of {BATCH}, in random order, except in cases named in order",
            rates,
            against,
            "records",
            absent,
        )
        report.targets(rates, RECORD_TARGETS)
    report.record()


if __name__ == "__main__":
    main()
