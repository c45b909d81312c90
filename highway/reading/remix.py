"""Replace the mixture of a run by a new mixture when the run resumes.

A *mixture* is the list of datasets in a ``MixedDataset``, with their weights.

The state of a reader holds the weights of its mixture, and how many samples each dataset of the mixture has given (yielded) so far. From
this state, a resumed run computes which samples each dataset has left. The new mixture assigns these samples to the positions after the
resume.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn

import numpy as np

from highway.datasets.dataset import Dataset
from highway.datasets.mixing.interleave import Interleave
from highway.datasets.mixing.mixed import Parts, positions_of
from highway.engine.component import fingerprint_of
from highway.engine.hashing import Hasher
from highway.engine.resume import packed, unpacked
from highway.errors import PipelineError
from highway.reading.rest import Rest
from highway.reading.sampler import Mixture, Sampler, Start

_AT = 5  # index of the mixture in the state of a reader
_WAY_OUT = "resume with the same mixture, or start again without the state"


class Part(NamedTuple):
    """A dataset of the current mixture, or of an earlier mixture of the run.

    Args:
        seed: Index of the seed that the dataset uses.
        samples: Length of the dataset.
        identity: A text that changes when the dataset changes.
        given: Number of samples that the dataset gave before the mixture began. Samples of earlier epochs do not count.
        left: The samples that the dataset had not given when the mixture began: a :class:`Rest` as JSON. The positions continue from one
            pass over the dataset to the next.
    """

    seed: int
    samples: int
    identity: str
    given: int = 0
    left: Any = 0


@dataclass(frozen=True)
class Mixed:
    """A mixture of named datasets, and the position at which the mixture began.

    Args:
        names: The names of its datasets.
        weights: The weights in the form that ``MixedDataset`` accepts, but never a function.
        stop: The rule that ends an epoch, as for ``MixedDataset``.
        length: Number of samples of an epoch; ``None`` if ``stop`` ends an epoch.
        parts: All datasets of the run so far, by name.
        epoch: The epoch in which the mixture began.
        begin: Number of samples that were read in that epoch before the mixture began.
        first: The first position of that epoch that no earlier mixture has used.
    """

    names: list[str]
    weights: list[float] | dict[int, list[float]]
    stop: Any
    length: int | None
    parts: dict[str, Part]
    epoch: int = 0
    begin: int = 0
    first: int = 0

    @classmethod
    def of(cls, dataset: Parts) -> Mixed:
        """Return the mixture of a dataset, as a mixture that begins with the run."""
        mixed, names = dataset.mixed, dataset.mixed.names
        assert names is not None
        given = zip(mixed.datasets, dataset.datasets, strict=True)
        parts = [Part(number, positions_of(opened), _identity(one, opened)) for number, (one, opened) in enumerate(given)]
        return cls(names, dataset.interleave.weights, mixed.stop, mixed.length, dict(zip(names, parts, strict=True)))

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Mixed:
        """Return the mixture from the return value of :meth:`as_json`."""
        weights = saved["weights"]
        if weights and isinstance(weights[0], str):
            begins, values = map(unpacked, weights)
            weights = dict(zip(begins.tolist(), values.view(np.float64).reshape(len(begins), -1).tolist(), strict=True))
        parts = {name: Part(*part) for name, part in saved["parts"].items()}
        return cls(**{**saved, "weights": weights, "parts": parts})

    def as_json(self) -> dict[str, Any]:
        """Return the mixture in a form that JSON can hold."""
        weights: Any = self.weights
        if isinstance(weights, dict):
            weights = [packed(np.array(list(weights))), packed(np.array(list(weights.values()), np.float64).ravel().view(np.int64))]
        return {**vars(self), "weights": weights, "parts": {name: list(part) for name, part in self.parts.items()}}

    def interleave(self, is_rest: bool) -> Interleave:
        """Return which dataset each position of an epoch reads. With ``is_rest``: only positions after the mixture began."""
        parts = [self.parts[name] for name in self.names]
        how: dict[str, Any] = {"begin": self.begin, "given": [part.given for part in parts]} if is_rest else {}
        return Interleave([part.samples for part in parts], self.weights, self.stop, self.length, **how)

    @property
    def start(self) -> Start:
        """The position at which the mixture begins."""
        parts = [self.parts[name] for name in self.names]
        left, seeds = tuple(Rest.from_json(part.left) for part in parts), tuple(part.seed for part in parts)
        return Start(self.epoch, self.interleave(is_rest=True), self.first, left, seeds)

    def sampler(self, like: Sampler) -> Sampler:
        """Return a sampler for the epochs of this mixture, without samplers for its datasets. All other parameters come from ``like``."""
        whole = self.interleave(is_rest=False)
        return replace(like, total=whole.length, mixture=Mixture(whole, np.zeros(len(self.names), np.int64), (), self.start))

    def replaced(self, new: Mixed, sampler: Sampler, epoch: int, rest: Rest) -> Mixed:
        """Return a mixture that replaces this one.

        Args:
            new: The new mixture, as if it began with the run.
            sampler: The sampler of this mixture.
            epoch: The epoch in which the new mixture begins.
            rest: The positions of the epoch that were not read.

        Raises:
            PipelineError: the content of a dataset has changed, but its name has not.
        """
        mixture = sampler.mixture
        assert mixture is not None
        order = mixture.order(sampler, epoch)
        end, stops = order.split(min(rest.tail, mixture.total(epoch)))
        which, taken = order.taken(np.concatenate([rest.singles, np.arange(rest.tail, end)]))
        before = mixture.drawn_before(epoch)
        begin = end - len(which) - mixture.first(epoch) + mixture.interleave_of(epoch).begin
        known = {name: part if epoch == self.epoch else part._replace(given=0) for name, part in self.parts.items()}
        for number, name in enumerate(self.names):
            places, stop, left = taken[which == number], int(stops[number]), Rest.from_json(self.parts[name].left)
            given = stop - int(before[number]) - len(places)
            known[name] = self.parts[name]._replace(given=given, left=left.without(places, stop).as_json())
        for name in new.names:
            known[name] = self._joined(name, known, new.parts[name])
        return replace(new, parts=known, epoch=epoch, begin=begin, first=rest.tail)

    def _joined(self, name: str, known: dict[str, Part], part: Part) -> Part:
        """Return a dataset of the new mixture. A dataset that the run has read before continues after the samples that it has given."""
        if name not in known:
            return part._replace(seed=1 + max(one.seed for one in known.values()))
        if known[name][1:3] != part[1:3]:
            before = known[name]
            what = "other samples or parameters"
            if before.samples != part.samples:
                what = f"{before.samples} samples, but now has {part.samples}"
            raise PipelineError(
                f"load_state_dict: MixedDataset(names=...): {name!r} had {what}; use a new name for a changed dataset, or {_WAY_OUT}"
            )
        return known[name]

    @property
    def rule(self) -> tuple[Any, ...]:
        """The parameters that determine the order of the datasets."""
        return self.names, self.weights, self.stop, self.length

    @property
    def is_over(self) -> bool:
        """Whether no sample of the epoch is left."""
        parts = [self.parts[name] for name in self.names]
        if self.length is not None:
            return self.begin >= self.length
        if self.stop == "first":
            return any(part.given > part.samples for part in parts) or self.interleave(is_rest=True).length <= self.begin
        return all(part.given >= part.samples for part in parts)

    def in_next_epoch(self) -> Mixed:
        """Return this mixture, but let it begin with the next epoch."""
        parts = {name: part._replace(given=0) for name, part in self.parts.items()}
        return replace(self, parts=parts, epoch=self.epoch + 1, begin=0, first=0)


class Mixing:
    """The mixture of a reader in one run.

    Attributes:
        mixed: The mixture of the state from which the run resumes. After :meth:`replace`, the mixture that the run reads.
        is_replaced: Whether :meth:`replace` must still replace ``mixed``, because the user asked for it.
    """

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.mixed: Mixed | None = None
        self.is_replaced = False
        self._saved: list[Any] | None = None  # what as_json() returns

    def resume(self, dataset: Callable[[], Dataset], states: Sequence[Any], is_replaced: bool) -> None:
        """Take over the mixture from the states of a reader. A state is a list ``[..., mixture]``.

        Raises:
            PipelineError: the states have different mixtures, or the user asked to replace a mixture that cannot be replaced.
        """
        saved = [state[_AT] if len(state) > _AT else None for state in states]
        self.mixed, self.is_replaced, self._saved = None, is_replaced and bool(saved), None
        if any(one != saved[0] for one in saved):
            raise PipelineError("load_state_dict: the states belong to runs with different mixtures; load the states of one checkpoint")
        own = dataset() if any(saved) or self.is_replaced else None
        names = own.mixed.names if isinstance(own, Parts) else None
        if self.is_replaced:
            if names is None or saved[0] is None:
                who = "this pipeline" if names is None else "the pipeline that saved the state"
                self._refuse(f"the dataset of {who} is not a MixedDataset with names=")
            if self._reader.deal is not None:
                self._refuse("deal= assigns samples to ranks by their costs, which are not part of the state")
        if names is not None and saved and saved[0] is not None:
            assert isinstance(own, Parts)
            mixed = Mixed.from_json(saved[0])
            if self.is_replaced or mixed.rule == Mixed.of(own).rule:  # otherwise, the user accepts lost or repeated samples
                self.mixed = mixed

    def _refuse(self, why: str) -> NoReturn:
        raise PipelineError(f"load_state_dict: the mixture cannot change here: {why}; {_WAY_OUT}")

    def as_json(self, dataset: Dataset) -> list[Any]:
        """Return the last part of the reader's state: a list with the mixture, or an empty list."""
        if self._saved is None:
            self._saved = []
            if isinstance(dataset, Parts) and dataset.mixed.names is not None:
                self._saved = [(self.mixed or Mixed.of(dataset)).as_json()]
        return self._saved

    @property
    def start(self) -> Start | None:
        """The position at which the mixture begins.

        ``None`` if no state with a mixture was loaded, or while :meth:`replace` must still be called.
        """
        return None if self.mixed is None or self.is_replaced else self.mixed.start

    def sampler(self, current: Sampler) -> Sampler:
        """Return the sampler of the run that saved the state. ``current`` is the sampler of this run."""
        return self.mixed.sampler(current) if self.mixed is not None and self.is_replaced else current

    def replace(self, dataset: Dataset, current: Sampler, epoch: int, rest: Rest) -> tuple[int, Rest]:
        """Replace the mixture, and return the epoch and its rest.

        Args:
            dataset: The dataset with the new mixture.
            current: The sampler of this run.
            epoch: The epoch in which the new mixture begins.
            rest: The positions of the epoch that were not read.

        Raises:
            PipelineError: nothing is left to read, or a dataset has changed.
        """
        assert self.mixed is not None and isinstance(dataset, Parts)
        mixed = self.mixed.replaced(Mixed.of(dataset), self.sampler(current), epoch, rest)
        if mixed.is_over:
            if self._reader.epochs is not None and epoch + 1 >= self._reader.epochs:
                self._refuse(
                    f"{mixed.begin} samples of the last epoch were read before (epochs={self._reader.epochs}), and the new mixture has no "
                    "more samples for this epoch"
                )
            mixed = mixed.in_next_epoch()
        self.mixed, self.is_replaced, self._saved = mixed, False, None
        return mixed.epoch, Rest(mixed.first)


def _identity(given: Any, opened: Any) -> str:
    """Return a text that changes when a dataset changes. ``given`` is a dataset or a path."""
    hasher, own = Hasher(strict=False), fingerprint_of(opened)
    parts = [hasher.of(given).values, *(say().encode() for say in [*hasher.data, *([own] if own is not None else [])])]
    return hashlib.blake2b(b" ".join(parts), digest_size=8).hexdigest()
