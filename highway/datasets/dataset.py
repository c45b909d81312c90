"""What a dataset is: what can be read by number, such as a list, an array, or a dataset of torch, Hugging Face or Grain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Dataset(Protocol):
    """Samples by number, from 0.

    It may say more of itself; none of these has to be there:

    - ``keys``: a name for each number, a sequence of ``str``; passports carry them.
    - ``__getitems__(numbers)``: returns the list of several samples, for what has a price for each request.
    - ``blocks()``: returns ranges of numbers, one after the other, whose neighbours are cheap to read together: row groups, chunks, shards.
    - ``fingerprint()``: returns a text that changes when the samples do; caches and checkpoints are known by it.
    - ``locate(number)``: returns where a sample lies, a path for example, for error messages.
    - ``classes``: the names of the labels, by number.
    """

    def __len__(self) -> int: ...
    def __getitem__(self, number: int, /) -> Any: ...


def keys_of(dataset: Dataset) -> Sequence[str] | None:
    """Return a dataset's names of its samples, if it has any; the methods ``keys()`` of mappings are something else."""
    keys = getattr(dataset, "keys", None)
    return keys if isinstance(keys, Sequence) and not isinstance(keys, str) else None


def locate(dataset: Dataset, number: int) -> str:
    """Return where a sample lies, for messages."""
    if callable(own := getattr(dataset, "locate", None)):
        return str(own(number))
    keys = keys_of(dataset)
    return f"sample {number}{f' ({keys[number]})' if keys else ''} of {type(dataset).__name__}"
