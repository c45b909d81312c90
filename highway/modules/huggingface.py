"""A source for streamed datasets of Hugging Face."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from highway.datasets.opened import opened
from highway.datasets.tables.huggingface import load
from highway.engine.component import Position, Traits
from highway.engine.context import Context, here
from highway.engine.stage import Lineage, Passport, Stamped
from highway.errors import DatasetError
from highway.parameters.checks import checked
from highway.parameters.ranges import Epochs

MARK = 256  # number of samples between two stored states of the Hugging Face stream


@checked
@dataclass
class HuggingFaceSource:
    """Stream a Hugging Face dataset without random access, such as a dataset on the hub, and yield its rows as dicts.

    If a dataset has random access, use ``Reader(HuggingFace(...))`` in place of this source. The reader shuffles, supports ranks, and
    resumes without reading data again.

    Images and sounds are encoded bytes. A run resumes from the state of the Hugging Face stream. This state does not contain the buffer of
    ``stream.shuffle``. If the stream is shuffled, the resumed run therefore reads the epoch again from its start, and skips the samples
    before the saved position.

    Args:
        dataset: An ``IterableDataset`` of the package ``datasets``, a name for ``load_dataset``, or a folder of ``save_to_disk``. For
            several ranks, use ``split_dataset_by_node``.
        split: The split to read, such as ``"train"``.
        config: The second argument of ``load_dataset``. It selects one of several configurations of a dataset.
        fields: A dict from field names to columns. ``{"label": "fine_label;label"}`` reads the first of the columns ``fine_label`` and
            ``label`` that exists. ``None`` reads all columns except ``__key__``, under their own names.
        key: The column that contains the keys of the samples. ``None``: ``__key__`` if this column exists; otherwise, samples have no keys.
        nulls: A dict from field names to values that replace nulls: ``{"caption": ""}``. A null in any other field raises an error.
        epochs: Number of passes over the stream, or ``None`` to repeat indefinitely. Each pass calls ``set_epoch`` of the stream first.

    Yields:
        A dict for each row, with the same types as in :class:`~highway.datasets.Parquet`. The passport (the metadata of an item) contains
        the epoch, the index within the epoch, and the key.

    Raises:
        ConfigError: the package ``datasets`` is not installed, ``split`` does not select one of several splits, or ``dataset`` is not a
            stream.
        DatasetError: a column is missing, a row has a null without replacement, or an epoch has no samples.

    >>> from datasets import Dataset
    >>> stream = Dataset.from_dict({"text": ["a", "b"]}).to_iterable_dataset()
    >>> list(Pipeline([HuggingFaceSource(stream, epochs=1)]))
    [{'text': 'a'}, {'text': 'b'}]
    """

    dataset: Any
    split: str | None = None
    config: str | None = None
    fields: dict[str, str] | None = None
    key: str | None = None
    nulls: dict[str, Any] | None = None
    epochs: Epochs = None

    def __highway__(self) -> Traits:
        return Traits(makes="samples", draws=False, numbers_epochs=True, epochs=self.epochs, state=Position, remake=self._remake)

    def __iter__(self, context: Context | None = None) -> Iterator[Stamped]:
        context = context or here()
        reading = _Reading(self, context)
        position = context.state_of(self)
        epoch, index, *reading.position = position.value or [0, 0, None, 0]
        first, position.value = epoch, lambda: [epoch, index, *reading.position]
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
        """Create a sample again. Successive samples are read in one pass over the stream."""
        return self._again.sample(epoch, index, *part)


class _Reading:
    """Reads the samples of a Hugging Face stream.

    Attributes:
        position: The position after the last sample, as two values: a state of the Hugging Face stream (``None`` for its beginning), and
            the number of examples that were read after this state.
    """

    def __init__(self, source: HuggingFaceSource, context: Context) -> None:
        self._context = context
        stream = load(source.dataset, source.split, source.config, streaming=True)
        from highway.datasets.tables import hub_stream  # imported here, because it needs pyarrow; the package datasets installs pyarrow

        self.name = source.dataset if isinstance(source.dataset, str) else "a stream of Hugging Face"
        self._stream = hub_stream.encoded_stream(stream)
        self._has_state = not hub_stream.has_shuffle_buffer(self._stream)
        self._examples_from = hub_stream.examples_from
        self._convert = hub_stream.ExampleConverter(self._stream, source.fields, source.key, source.nulls, self.name)
        self.position: list[Any] = [None, 0]

    def samples(self, epoch: int, index: int, state: Any, passed: int) -> Iterator[Stamped]:
        """Yield the samples of an epoch that follow ``state``, except the first ``passed`` samples.

        The first yielded sample gets the index ``index``.
        """
        for example in self._examples_from(self._stream, epoch, state, passed):
            again = Lineage(part=[state, passed])
            passed += 1
            if passed >= MARK and self._has_state:
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
    """Reads samples again. Successive samples are read in one pass."""

    def __init__(self, reading: _Reading) -> None:
        self._reading = reading
        self._next: tuple[int, int] | None = None
        self._samples: Iterator[Stamped] = iter(())

    def sample(self, epoch: int, index: int, state: Any, passed: int) -> Stamped:
        if self._next != (epoch, index):
            self._samples = self._reading.samples(epoch, index, state, passed)
        self._next = (epoch, index + 1)
        return next(self._samples)
