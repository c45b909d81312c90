"""Streams of Hugging Face as sources."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from highway.datasets.opened import opened
from highway.datasets.tables.huggingface import load
from highway.engine.component import Traits
from highway.engine.context import Context, here
from highway.engine.resume import Saved, keep, saved
from highway.engine.stage import Passport, Stamped
from highway.errors import DatasetError
from highway.parameters.checks import checked
from highway.parameters.ranges import Epochs

_MARK = 256  # samples between two states of the stream that are kept


@checked
@dataclass
class HuggingFaceSource:
    """Stream a data set of Hugging Face that has no numbers, such as one that is not downloaded, and yield its rows as dicts.

    What has numbers is better read by ``Reader(HuggingFace(...))``: in any order, by ranks, and resumed without reading anything again.

    Images and sounds are their encoded bytes. A run goes on where another one was: by the stream's own state, or, if it mixes its examples
    in a buffer (``stream.shuffle``), whose content that state leaves out, by reading the epoch again up to there.

    Args:
        dataset: An ``IterableDataset`` of the package datasets, or what names one: the name that ``load_dataset`` takes, or a folder of
            ``save_to_disk``. For several ranks give each its part, by ``split_dataset_by_node``.
        split: Which of its splits, such as ``"train"``.
        config: The second argument of ``load_dataset``, where a name stands for several data sets.
        fields: The columns to keep, under new names: ``{"image": "img", "label": "fine_label;label"}`` takes the first that there is.
            ``None`` keeps all as they are, but ``__key__``.
        key: The column that has the samples' keys. ``None``: ``__key__`` if there is one, else they have none.
        nulls: What stands for nulls, by field: ``{"caption": ""}``. In all others a null is an error.
        epochs: Passes over the stream, or ``None`` to repeat for ever; each is announced to it by ``set_epoch``.

    Yields:
        A dict for each row, as :class:`~highway.datasets.Parquet` gives it. Passport: epoch, index within the epoch, and the key.

    Raises:
        ConfigError: the package datasets is not installed, there are several splits, or it is no stream.
        DatasetError: a column is missing, there is a null, or an epoch has no samples.
    """

    dataset: Any
    split: str | None = None
    config: str | None = None
    fields: dict[str, str] | None = None
    key: str | None = None
    nulls: dict[str, Any] | None = None
    epochs: Epochs = None

    def __highway__(self) -> Traits:
        return Traits(makes="samples", draws=False, numbers_epochs=True, epochs=self.epochs, remake=self._remake)

    def __iter__(self, context: Context | None = None) -> Iterator[Stamped]:
        context = context or here()
        reading = _Reading(self, context)
        first, index, *reading.position = (saved() or Saved([0, 0, None, 0])).state
        epoch = first
        keep(lambda: Saved([epoch, index, *reading.position]))
        for epoch in count(first) if self.epochs is None else range(first, self.epochs):
            for sample in reading.samples(epoch, index, *reading.position):
                if context.is_skipped(epoch):
                    break
                index += 1
                yield sample
            if index == 0 and not context.is_skipped(epoch):
                raise DatasetError(f"{reading.name}: no samples in the whole epoch {epoch}")
            index, reading.position = 0, [None, 0]

    @opened
    def _again(self) -> _Again:
        return _Again(_Reading(self, here()))

    def _remake(self, epoch: int, index: int, part: list[Any]) -> Stamped:
        """Return a sample again; if they are asked for in their order, the stream is read once."""
        return self._again.sample(epoch, index, *part)


class _Reading:
    """A stream that is read.

    Attributes:
        position: The state to go on from behind the last sample, and how many examples come between the two.
    """

    def __init__(self, source: HuggingFaceSource, context: Context) -> None:
        self._context = context
        stream = load(source.dataset, source.split, source.config, streaming=True)
        from highway.datasets.tables import hub_stream  # here, since it needs pyarrow, which comes with the package

        self.name = source.dataset if isinstance(source.dataset, str) else "a stream of Hugging Face"
        self._stream = hub_stream.encoded_stream(stream)
        self._has_state = not hub_stream.has_shuffle_buffer(self._stream)
        self._examples_from = hub_stream.examples_from
        self._convert = hub_stream.ExampleConverter(self._stream, source.fields, source.key, source.nulls, self.name)
        self.position: list[Any] = [None, 0]

    def samples(self, epoch: int, index: int, state: Any, passed: int) -> Iterator[Stamped]:
        """Yield the samples of an epoch from ``index`` on: those behind a state, but for the first ``passed`` examples."""
        for example in self._examples_from(self._stream, epoch, state, passed):
            again = (None, (), [state, passed])
            passed += 1
            if passed >= _MARK and self._has_state:
                state, passed = self._stream.state_dict(), 0
            self.position = [state, passed]
            try:
                key, sample = self._convert(example, f"{self.name}: sample {index} of epoch {epoch}")
            except DatasetError as error:
                self._context.report_error(error)
                continue
            yield Stamped(sample, Passport(epoch, index, keys=() if key is None else (key,), made_of=again))
            index += 1


class _Again:
    """Samples that are read again."""

    def __init__(self, reading: _Reading) -> None:
        self._reading = reading
        self._next: tuple[int, int] | None = None
        self._samples: Iterator[Stamped] = iter(())

    def sample(self, epoch: int, index: int, state: Any, passed: int) -> Stamped:
        if self._next != (epoch, index):
            self._samples = self._reading.samples(epoch, index, state, passed)
        self._next = (epoch, index + 1)
        return next(self._samples)
