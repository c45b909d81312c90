"""Compute how much longer ranks wait for the slowest rank if the costs of samples differ. Nothing is timed.

Eight ranks read two epochs. The time of a step is the cost of the rank with the most work. The sum over all steps is therefore the time of
a training that only computes. The bound is the best possible time for the same global batches: in each step the mean over the ranks, or
the cost of the largest sample.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from highway import Pipeline
from highway.data import photos
from highway.images.header import read_header
from highway.modules import Deal, Reader
from measure import Report, machine, parse, parser

RANKS, EPOCHS, WINDOW = 8, 2, 16  # WINDOW: global batches that are sorted together
ROOT = Path(__file__).parents[1]
Steps = Iterator[list[np.ndarray]]  # for each step, the samples of each rank


def by_reader(deal: Callable[[np.ndarray], Deal | None]) -> Callable[[np.ndarray, int], Steps]:
    """Return a function that yields the steps of the readers of all ranks."""

    def steps(costs: np.ndarray, batch_size: int) -> Steps:
        samples = np.arange(len(costs))
        given = {"epochs": EPOCHS, "drop_last": True, "on_uneven": "drop", "num_workers": 1, "world_size": RANKS, "deal": deal(costs)}
        readers = [Reader(samples, batch_size, rank=rank, **given) for rank in range(RANKS)]
        with contextlib.ExitStack() as stack:
            pipelines = [stack.enter_context(Pipeline([reader], seed=1)) for reader in readers]
            for _ in range(EPOCHS):
                yield from map(list, zip(*pipelines, strict=True))

    return steps


def sorted_in_windows(costs: np.ndarray, batch_size: int) -> Steps:
    """Yield steps of samples with neighbouring costs, as samplers do that group by length. This changes the global batches."""
    rng, size = np.random.default_rng(1), RANKS * batch_size
    for _ in range(EPOCHS):
        order = rng.permutation(len(costs))[: len(costs) // size * size]
        for begin in range(0, len(order), WINDOW * size):
            window = order[begin : begin + WINDOW * size]
            for step in rng.permutation(window[np.argsort(costs[window])].reshape(-1, size)):
                yield list(step.reshape(batch_size, RANKS).T)


STRATEGIES: dict[str, Callable[[np.ndarray, int], Steps]] = {
    "random (no deal)": by_reader(lambda costs: None),
    "sorted in windows": sorted_in_windows,
    "Deal": by_reader(lambda costs: Deal(costs)),
    "Deal, counts differ": by_reader(lambda costs: Deal(costs, equal_counts=False)),
}


def costs_of(count: int) -> dict[str, np.ndarray]:
    """Return lists of costs by name: drawn ones, and real ones, repeated up to ``count``."""
    sizes = [read_header(path.read_bytes()).size for path in sorted(Path(photos()).rglob("*.jpg"))]
    texts = [
        path.read_text() for folder in ("docs", "highway") for end in ("md", "py") for path in sorted((ROOT / folder).rglob(f"*.{end}"))
    ]
    return {
        "lognormal, sigma 1": np.random.default_rng(0).lognormal(size=count),
        "lognormal, sigma 0.5": np.random.default_rng(0).lognormal(sigma=0.5, size=count),
        f"pixels of highway's {len(sizes)} photographs": np.resize([height * width for height, width in sizes], count),
        f"words of highway's {len(texts)} modules and pages": np.resize([len(re.findall(r"\w+", text)) for text in texts], count),
    }


def main() -> None:
    options = parser(__doc__, 1)
    options.add_argument("--samples", type=int, default=16384, help="samples per epoch (default: %(default)s)")
    given = parse(options, samples=1024)
    report = Report("even_steps", given.record)
    report.line(machine("numpy"))
    for batch_size in (32, 4):
        rows = []
        for name, costs in costs_of(given.samples).items():
            bound, slowest = 0.0, {}
            for strategy, steps in STRATEGIES.items():
                taken = [[costs[samples] for samples in step] for step in steps(costs, batch_size)]
                slowest[strategy] = sum(max(rank.sum() for rank in step) for step in taken)
                if strategy == "Deal":
                    bound = sum(max(sum(rank.sum() for rank in step) / RANKS, max(rank.max() for rank in step)) for step in taken)
            rows.append([name, *(f"{cost / bound:.3f}" for cost in slowest.values())])
        title = f"Sum of the slowest rank's cost, divided by the bound: {RANKS} ranks, {batch_size} samples each"
        report.line(f"**{title}**")
        report.table(["costs", *STRATEGIES], rows)
    report.record()


if __name__ == "__main__":
    main()
