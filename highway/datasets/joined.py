"""Several datasets as one, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from highway.datasets.dataset import Dataset, LazyKeys, Several, StoredFiles, keys_of, length_of, locate, read_several, several_of
from highway.datasets.parts import Spans
from highway.engine.cancel import check_cancelled


class Joined:
    """The samples of several datasets, one dataset after the other.

    Args:
        datasets: The datasets, whose lengths are asked for here.

    Attributes:
        spans: Where their samples lie.
    """

    def __init__(self, datasets: Sequence[Dataset]) -> None:
        self.datasets = datasets
        self.spans = Spans(map(length_of, datasets))

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, number: int) -> Any:
        which, own = self.spans.place(number)
        return self.datasets[which][own]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Return several samples; those of a dataset that reads several at once, so."""
        return self._several(numbers, [several_of(dataset, "__getitems__") for dataset in self.datasets])[0]

    def __getviews__(self, numbers: Sequence[int]) -> list[Any]:
        """Return several samples; those of a dataset that reads views, so."""
        return self._several(numbers, [several_of(dataset, "__getviews__") for dataset in self.datasets])[0]

    @property
    def __getfiles__(self) -> Callable[[Sequence[int]], StoredFiles] | None:
        """What says which files several samples are, if all datasets do."""
        methods = [several_of(dataset, "__getfiles__") for dataset in self.datasets]
        return (lambda numbers: StoredFiles(*self._several(numbers, methods))) if set(methods) == {"__getfiles__"} else None

    def _several(self, numbers: Sequence[int], methods: Sequence[Several | None]) -> tuple[list[Any], list[int] | None]:
        """Return samples, each dataset's by the method of that name, and the labels that it says if all do."""
        samples, labels = [None] * len(numbers), [0] * len(numbers)
        all_labelled = True
        for which, mine in self.spans.rows_by_part(numbers).items():
            dataset, own_numbers = self.datasets[which], [own for _, own in mine]
            if (method := methods[which]) is not None:
                found = read_several(dataset, method, own_numbers)
            else:
                found = []
                for own in own_numbers:
                    check_cancelled()
                    found.append(dataset[own])
            own_labels = getattr(found, "labels", None)
            all_labelled &= own_labels is not None
            for place, (row, _) in enumerate(mine):
                samples[row] = found[place]
                labels[row] = own_labels[place] if own_labels is not None else 0
        return samples, labels if all_labelled else None

    @cached_property
    def keys(self) -> Sequence[str] | None:
        """The datasets' names of their samples, if all have some."""
        known = [keys for dataset in self.datasets if (keys := keys_of(dataset)) is not None]

        def key(number: int) -> str:
            which, own = self.spans.place(number)
            return known[which][own]

        return LazyKeys(key, len(self)) if len(known) == len(self.datasets) else None

    def locate(self, number: int) -> str:
        """Return where a sample lies."""
        which, own = self.spans.place(number)
        return locate(self.datasets[which], own)
