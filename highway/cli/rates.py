"""The rates of a stream, in the line that the servers and ``tensormon`` print."""

from __future__ import annotations

from typing import NamedTuple


class Count(NamedTuple):
    """Batches, and the samples and bytes in them, that had passed by at a moment of ``time.monotonic()``."""

    at: float
    batches: int = 0
    samples: int = 0
    nbytes: float = 0


def line(now: Count, before: Count, samples: bool = True) -> str:
    """Return the batches so far, and the rates since ``before``; that of samples only if they are counted."""
    batches, *others = rates(now, before, samples)
    return "  ".join([f"{now.batches:10d} batches", f"{batches:>19}", *(f"{other:>20}" for other in others)])


def rates(now: Count, before: Count, samples: bool = True) -> list[str]:
    """Return the rates between two moments: batches/s, samples/s if they are counted, and MB/s."""
    seconds = max(now.at - before.at, 1e-9)
    parts = [f"{(now.batches - before.batches) / seconds:.1f} batches/s"]
    if samples:
        parts.append(f"{(now.samples - before.samples) / seconds:.1f} samples/s")
    return [*parts, f"{(now.nbytes - before.nbytes) / seconds / 1e6:.1f} MB/s"]
