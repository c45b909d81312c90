"""Make a batch from samples: create its memory, fill ranges of its rows, and return the item.

Each class is one format (:class:`BatchFormat`). During a run, all threads of a reader share one object of the class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from highway.engine.batch import Item, fields, names
from highway.engine.ragged import RaggedOptions
from highway.reading.draws import Draws

NO_ERRORS: Mapping[int, Exception] = {}


class BatchFormat(Protocol):
    """Turns the samples of a batch into one item."""

    takes_files: bool  # whether fill() accepts StoredFiles (and reads the files), and samples with memoryviews instead of bytes

    def memory(self, length: int) -> Any:
        """Return the memory of a batch with ``length`` rows."""

    def fill(self, memory: Any, first: int, samples: Sequence[Any], draws: Draws | None) -> Mapping[int, Exception]:
        """Fill a range of rows.

        Args:
            memory: The memory of the batch.
            first: The first row.
            samples: The samples that the dataset returned for these rows.
            draws: The random numbers of these rows; ``None`` if none are needed.

        Returns:
            A dict with an error for each sample that cannot be used. The keys are indexes in ``samples``. The rows of all other samples
            are filled.
        """

    def item(self, memory: Any) -> Item:
        """Return the batch. All of its rows must be filled.

        Raises:
            BadRow: the sample of a row does not fit the other samples. The caller can replace the sample and call this method again.
        """


class BadRow(Exception):
    """The sample of a row cannot be used.

    Args:
        place: The row.
        cause: The error.
    """

    def __init__(self, place: int, cause: Exception) -> None:
        super().__init__(place)
        self.place, self.cause = place, cause


class Stacked:
    """Stacks samples. The options define how to batch ragged fields, whose shapes differ between samples."""

    takes_files = False

    def __init__(self, options: RaggedOptions | None = None) -> None:
        self._options = options or _STACKED

    def memory(self, length: int) -> list[Any]:
        return [None] * length

    def fill(self, memory: list[Any], first: int, samples: Sequence[Any], draws: Draws | None) -> Mapping[int, Exception]:
        memory[first : first + len(samples)] = samples
        missing = [place for place, sample in enumerate(samples) if sample is None]
        return {place: TypeError("the dataset returned None; expected a sample") for place in missing} if missing else NO_ERRORS

    def item(self, memory: list[Any]) -> Item:
        try:
            return self._options.collated(memory)
        except ValueError as error:
            raise odd_one(memory, error, self._options) from error


_STACKED = RaggedOptions()


def odd_one(samples: Sequence[Any], error: ValueError, options: RaggedOptions = _STACKED) -> BadRow:
    """Return the row because of which stacking a batch raised ``error``. If all rows have the same form, raise ``error``.

    This is the first row that fits no batch, or the first row whose form differs from the most common form.
    """
    forms: list[str] = []
    for row, sample in enumerate(samples):
        try:
            forms.append(_form(sample, options))
        except ValueError as own:
            return BadRow(row, own)
    (usual, _), *others = Counter(forms).most_common()
    if not others:
        raise error
    row = next(row for row, form in enumerate(forms) if form != usual)
    way_out = "give all samples the same form, in the dataset, or in a map between a reader without batch_size and Batch"
    return BadRow(row, ValueError(f"the sample is {forms[row]}, but others of its batch are {usual}; {way_out}"))


def _form(sample: Any, options: RaggedOptions) -> str:
    """Return a text that describes the properties that all samples of a batch must share.

    Raises:
        ValueError: the sample does not fit any batch.
    """
    options.collated([sample])
    arrays = RaggedOptions(options.ragged and "list", options.fields).collated([sample])
    parts = [_shape_of(column) for column in fields(arrays if isinstance(sample, _SEVERAL) else (arrays,))]
    if isinstance(sample, dict):
        parts = [f"{name!r}: {part}" for name, part in zip(sample, parts, strict=True)]
    return f"{type(sample).__name__} ({', '.join(parts)})" if isinstance(sample, _SEVERAL) else parts[0]


_SEVERAL = (dict, tuple, list)


def _shape_of(column: Any) -> str:
    """Return a text with the dtype and shape of a sample's field. ``column`` is this field in a batch of one sample."""
    if isinstance(column, (dict, tuple)):
        parts = (f"{name!r}: {_shape_of(part)}" for name, part in zip(names(column), fields(column), strict=True))
        return f"{type(column).__name__} ({', '.join(parts)})"
    if isinstance(column, list):
        dtype, shape = column[0].dtype, str(("*", *column[0].shape[1:])).replace("'", "")
    else:
        dtype, shape = column.dtype, str(column.shape[1:])
    return "str or object" if dtype.kind in "USO" else f"{dtype} {shape}"
