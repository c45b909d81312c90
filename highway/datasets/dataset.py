"""The interface of datasets. A dataset is any object with random access, such as a list, an array or a PyTorch dataset."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar, get_args, overload, runtime_checkable

from highway.errors import ConfigError, DatasetError
from highway.parameters.overrides import is_overridden, speaks_for
from highway.redacted import without_secrets

T = TypeVar("T")

Several = Literal["__getfiles__", "__getviews__", "__getitems__"]
_SEVERAL: tuple[Several, ...] = get_args(Several)


@runtime_checkable
class Dataset(Protocol):
    """Any object with ``__len__`` and ``__getitem__``. Indexes start at 0.

    These attributes are optional:

    - ``keys``: a sequence with the name of each sample, as ``str``. The passport of a batch (the metadata: epoch, index, keys) contains the
      keys of the samples.
    - ``__getitems__(numbers)``: returns a list of several samples. Define this method if reading several samples at once is faster than
      reading the samples one by one.
    - ``__getfiles__(numbers)``: returns the files of several samples as :class:`~highway.datasets.dataset.StoredFiles`. Define this method
      if samples are ``(bytes of a file, label)`` or ``(bytes of a file,)``. Readers of images then read many files with one call.
    - ``__getviews__(numbers)``: like ``__getitems__``, but samples can contain a ``memoryview`` instead of ``bytes``. A ``memoryview``
      saves a copy. Readers of images call this method.
    - ``blocks()``: returns consecutive ranges of indexes. The samples of a range are cheap to read together, such as the rows of a row
      group or chunk.
    - ``fingerprint()``: returns a string that changes when the samples change. Caches and checkpoints use this string to detect changed
      data.
    - ``locate(number)``: returns the location of a sample, such as a path, for error messages.
    - ``classes``: the names of the labels, indexed by label.
    - ``costs(kind)``: returns the number of ``"pixels"`` or ``"tokens"`` of each sample. ``None``: the dataset does not know these numbers.
      :class:`~highway.reading.deal.Deal`, which balances batches by cost, then reads all samples to count the pixels or tokens.
    - ``kept_at(facts)``: returns the path of a file in which highway stores the costs that it has counted. ``facts`` is the kind of the
      costs, such as ``"pixels"``. ``None``: the costs are not stored.
    """

    def __len__(self) -> int: ...
    def __getitem__(self, number: int, /) -> Any: ...


class StoredFiles(list[str | bytes]):
    """Several samples. Each sample is the path of a file on this machine, or the content of a file in an object store.

    Args:
        files: The path or content of each file.
        labels: The label of each file, an integer; ``None`` if the files have no labels.
    """

    def __init__(self, files: Iterable[str | bytes], labels: Sequence[int] | None = None) -> None:
        super().__init__(files)
        self.labels = labels


class LazyKeys(Sequence[str]):
    """The keys of a dataset. A key is computed when it is requested.

    Args:
        key_at: A function that returns the key of a sample. The argument is the index of the sample, from 0.
        length: Number of keys.
    """

    def __init__(self, key_at: Callable[[int], str], length: int) -> None:
        self._key_at, self._length = key_at, length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> list[str]: ...
    def __getitem__(self, number: int | slice) -> str | list[str]:
        if isinstance(number, slice):
            return [self._key_at(one) for one in range(self._length)[number]]
        return self._key_at(range(self._length)[number])


def length_of(dataset: Dataset) -> int:
    """Return ``len(dataset)``. An error gets a note with the name of the dataset."""
    try:
        return len(dataset)
    except Exception as error:
        error.add_note(f"highway: the error was raised by the length of {described(dataset)}")
        raise


def keys_of(dataset: Dataset) -> Sequence[str] | None:
    """Return the keys of a dataset, or ``None`` if the dataset has no keys. A method ``keys()``, such as ``dict.keys``, is ignored.

    Raises:
        DatasetError: the dataset does not have as many keys as samples.
    """
    keys = getattr(dataset, "keys", None)
    if not isinstance(keys, Sequence) or isinstance(keys, str):
        return None
    if len(keys) != (total := length_of(dataset)):
        raise DatasetError(f"{described(dataset)} has {len(keys)} keys, but {total} samples; expected one key for each sample")
    return keys


def blocks_of(dataset: Dataset) -> Sequence[range]:
    """Return the ranges of indexes whose samples are cheap to read together.

    Raises:
        ConfigError: the dataset has no method ``blocks()``.
        DatasetError: the blocks are not consecutive ranges that cover the dataset.
    """
    if not callable(own := getattr(dataset, "blocks", None)):
        raise ConfigError(f"shuffle='blocks': {type(dataset).__name__} has no blocks(); use shuffle=True, which shuffles all samples")
    stop, total = 0, length_of(dataset)
    blocks: Sequence[range] = own()
    for block in blocks:
        if not isinstance(block, range) or block.step != 1 or block.start != stop:
            raise DatasetError(
                f"{described(dataset)}: blocks() returns {block!r}; expected a block that begins at {stop}: range({stop}, ...)"
            )
        stop = block.stop
    if stop != total:
        raise DatasetError(f"{described(dataset)}: blocks() returns ranges up to {stop}, but there are {total} samples")
    return blocks


def several_of(dataset: Dataset, best: Several) -> Several | None:
    """Return the name of a method that reads several samples at once.

    The methods are tried in this order, beginning with ``best``: ``__getfiles__``, ``__getviews__``, ``__getitems__``. Return ``None`` if
    the dataset has none of these methods.
    """
    for method in _SEVERAL[_SEVERAL.index(best) :]:
        if callable(getattr(dataset, method, None)) and _is_meant(method, dataset):
            return method
    return None


def _is_meant(method: Several, dataset: Dataset) -> bool:
    """Return whether a method returns the same samples as ``__getitem__``.

    If a subclass overrides only ``__getitem__``, an inherited method still returns the samples of the base class.
    """
    if method == "__getitems__":
        return not is_overridden(method, "__getitem__", dataset)
    return speaks_for(method, "__getitem__", dataset) and speaks_for(method, "__getitems__", dataset)


def read_several(dataset: Dataset, method: Several, numbers: Sequence[int]) -> Sequence[Any]:
    """Read several samples with a method whose name :func:`several_of` returned.

    Raises:
        DatasetError: the method returned more or fewer samples or labels than ``numbers`` has indexes.
        TypeError: the method ``__getfiles__`` did not return :class:`StoredFiles`.
    """
    found = getattr(dataset, method)(numbers)
    if method == "__getfiles__" and not isinstance(found, StoredFiles):
        raise TypeError(f"{described(dataset)}: {method} returned a {type(found).__name__}; expected StoredFiles")
    samples: Sequence[Any] = found if method == "__getfiles__" else list(found)
    labels = samples.labels if isinstance(samples, StoredFiles) else None
    for what, many in (("samples", samples), ("labels", samples if labels is None else labels)):
        if len(many) != len(numbers):
            how_many = f"{len(many)} {what} for {len(numbers)} indexes; expected one for each index"
            raise DatasetError(f"{described(dataset)}: {method} returned {how_many}")
    return samples


def described(dataset: Dataset) -> str:
    """Return a name of a dataset for messages: a short ``repr`` of a dataclass, without secrets; otherwise the name of the type."""
    shown = without_secrets(repr(dataset)) if dataclasses.is_dataclass(dataset) else ""
    return shown if 0 < len(shown) <= 200 else type(dataset).__name__


def locate(dataset: Dataset, number: int) -> str:
    """Return the location of a sample, for messages."""
    if callable(own := getattr(dataset, "locate", None)):
        return str(own(number))
    keys = keys_of(dataset)
    return f"sample {number}{f' ({keys[number]})' if keys else ''} of {type(dataset).__name__}"


def chosen(found: Mapping[str, T], fields: Mapping[str, str] | None) -> Mapping[str, T]:
    """Select and rename the fields of a sample, or the columns of a table.

    Args:
        found: A dict from field names to values.
        fields: A dict from new names to old names. ``{"x": "a;b"}`` selects ``a``, or ``b`` if there is no ``a``. ``None`` keeps all
            fields.

    Raises:
        ValueError: none of the old names of a field exists.
    """
    return found if fields is None else {new: found[_first(found, new, old.split(";"))] for new, old in fields.items()}


def named(fields: Mapping[str, str] | None) -> frozenset[str] | None:
    """Return all old names in ``fields``; see :func:`chosen`. Return ``None`` if ``fields`` is ``None``, which selects all fields."""
    return None if fields is None else frozenset(name for old in fields.values() for name in old.split(";"))


def _first(found: Mapping[str, T], new: str, old: list[str]) -> str:
    for name in old:
        if name in found:
            return name
    raise ValueError(f"there is no value for the field {new!r}: expected {' or '.join(old)}, found {', '.join(found)}")
