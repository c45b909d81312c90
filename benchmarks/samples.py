"""Compare highway with other loaders on small samples: dicts of 1 kB to batches of 64, sequences to packed rows, and tar shards.

Each loader runs in its own process, and the loaders take turns.
"""

from __future__ import annotations

import contextlib
import io
import json
import tarfile
import tempfile
from pathlib import Path

import numpy as np

import measure
from loaders import BATCH, Case, present
from measure import Report, chosen, foreign, in_turns, machine

DICTS = {
    "highway, Reader": "reader",
    "highway, Reader, map": "reader:map",
    "highway, stream": "stream",
    "highway, stream, map": "stream:map",
    "highway, stream, Shuffle": "stream:Shuffle",
    "highway, stream, Shuffle, map": "stream:Shuffle map",
    "Grain": "grain",
    "Grain, shuffle, map": "grain:shuffle map",
    "DataLoader": "loader",
    "DataLoader, map": "loader:map",
    "DataLoader, workers": "loader:workers",
    "DataLoader, workers, map": "loader:workers map",
}
# What is compared, with what, and how much faster it should be.
DICT_TARGETS = {
    ("highway, Reader", "DataLoader, workers"): 4.0,
    ("highway, Reader, map", "DataLoader, workers, map"): 4.0,
    ("highway, stream", "Grain"): 1.2,
    ("highway, stream, Shuffle, map", "Grain, shuffle, map"): 1.2,
    ("highway, stream, Shuffle", "highway, stream"): 0.8,
}
SEQUENCES = {
    "highway, Pack": "packed",
    "highway, Pack, batched": "packed:batched",
    "highway, ConcatThenSplit, batched": "packed:split batched",
    "Grain, first-fit": "grain_packed",
    "Grain, concat, split": "grain_packed:split",
    "highway, Bucket": "bucketed",
    "highway, Reader, padded": "bucketed:padded",
}
SEQUENCE_TARGETS = {
    ("highway, Pack, batched", "Grain, first-fit"): 10.0,
    ("highway, ConcatThenSplit, batched", "Grain, concat, split"): 10.0,
}
SHARDS = {"1 kB": (1_000, 20_000), "107 kB": (107_000, 3_000)}  # bytes of a sample, and how many there are
READERS = {"highway, WebDatasetSource": "source", "webdataset": "webdataset"}
SHARD_TARGETS = {("highway, WebDatasetSource", "webdataset"): 2.0}


def pack(folder: Path, size: int, count: int, shards: int = 4) -> list[str]:
    """Write samples of random bytes and a label into tar files, and return their paths."""
    rng, paths = np.random.default_rng(0), []
    folder.mkdir()
    for shard in range(shards):
        paths.append(str(folder / f"{shard}.tar"))
        with tarfile.open(paths[-1], "w") as tar:
            for number in range(shard, count, shards):
                for extension, data in (("bin", rng.bytes(size)), ("cls", str(number % 1000).encode())):
                    member = tarfile.TarInfo(f"{number:07}.{extension}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    return paths


def main() -> None:
    arguments = measure.parser(__doc__, rounds=5)
    arguments.add_argument("--samples", type=int, default=100_000, help="dicts per turn (default: %(default)s)")
    arguments.add_argument("--share", type=float, default=1.0, help="fraction of the samples that is in shards (default: %(default)s)")
    arguments.add_argument("--workers", type=int, default=2, help="number of reader threads or processes (default: %(default)s)")
    given = measure.parse(arguments, samples=10_000, share=0.1)
    report = Report("samples", given.record)
    report.line(machine("highway-data", "numpy", "torch", "webdataset"))
    absent: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as closing:
        place = Path(temporary)
        shards = {name: pack(place / name, size, int(count * given.share)) for name, (size, count) in SHARDS.items()}
        job = {"count": given.samples, "batch": BATCH, "workers": given.workers, "shards": shards}
        (place / "job.json").write_text(json.dumps(job))
        dicts = {name: Case("samples", DICTS[name], "grain" if name.startswith("Grain") else "") for name in chosen(DICTS, given)}
        peers, absent = present(dicts, place, closing)
        report.line(foreign({name: peer.process.versions for name, peer in peers.items()}))
        report.line(f"{given.samples:,} dicts per turn; {given.workers} workers; {given.rounds} rounds.")
        rates = in_turns({name: peer.work for name, peer in peers.items()}, given.rounds, absent)
        against = ["Grain", "Grain, shuffle, map", "DataLoader", "DataLoader, workers"]
        report.rates("Dicts of 1 kB to batches of 64", rates, against, "samples", absent)
        report.targets(rates, DICT_TARGETS)
        sequences = {
            name: Case("samples", SEQUENCES[name], "grain" if name.startswith("Grain") else "") for name in chosen(SEQUENCES, given)
        }
        peers, absent = present(sequences, place, closing)
        rates = in_turns({name: peer.work for name, peer in peers.items()}, given.rounds, absent)
        report.rates(
            "Sequences of 125 int32 to rows of 1024 (target of Pack: 100,000/s)",
            rates,
            ["Grain, first-fit", "Grain, concat, split"],
            "sequences",
            absent,
        )
        report.targets(rates, SEQUENCE_TARGETS)
        for size, (_, count) in SHARDS.items():
            readers = {name: Case("samples", f"{READERS[name]}:{size}") for name in chosen(READERS, given)}
            peers, absent = present(readers, place, closing)
            rates = in_turns({name: peer.work for name, peer in peers.items()}, given.rounds, absent)
            report.rates(
                f"{int(count * given.share):,} samples of {size} in shards, read one by one", rates, ["webdataset"], "samples", absent
            )
            report.targets(rates, SHARD_TARGETS)
    report.record()


if __name__ == "__main__":
    main()
