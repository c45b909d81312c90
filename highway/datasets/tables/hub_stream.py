"""Convert the examples of a Hugging Face stream (an ``IterableDataset``) to samples, from any position in the stream."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from highway.datasets.tables.backend import pa
from highway.datasets.tables.rows import SampleFields, key_text
from highway.datasets.tables.schema import Selection, select
from highway.datasets.tables.values import Access, in_memory, values_of
from highway.errors import ConfigError, DatasetError
from highway.stores.file import read_whole

_ACCESS = Access(in_memory, read_whole)


def encoded_stream(stream: Any) -> Any:
    """Return a copy of a stream. The copy does not decode images and audio.

    Raises:
        ConfigError: ``stream`` is not an ``IterableDataset``, or the version of the package ``datasets`` is not supported.
    """
    if not hasattr(stream, "features") or not hasattr(stream, "load_state_dict"):
        way_out = "; use Reader(HuggingFace(...)) for tables" if hasattr(stream, "features") else ""
        raise ConfigError(f"HuggingFaceSource: a {type(stream).__name__}; expected an IterableDataset of the package datasets{way_out}")
    own = (stream if stream.features is None else stream.decode(False)).with_format(None)
    own._ex_iterable = _own_part(own._ex_iterable)
    return own


def _own_part(part: Any) -> Any:
    """Copy a part of a stream and the parts in it. Each part stores a position, which the copy must not share. The data are shared."""
    own = copy.copy(part)
    for name, value in list(vars(part).items()):
        if _is_part(value):
            setattr(own, name, _own_part(value))
        elif isinstance(value, list) and any(map(_is_part, value)):
            setattr(own, name, list(map(_own_part, value)))
    return own


def _is_part(value: Any) -> bool:
    return type(value).__name__.endswith("ExamplesIterable")


def has_shuffle_buffer(stream: Any) -> bool:
    """Return whether a stream shuffles in a buffer. A resume loses the examples in the buffer, which the state does not contain."""
    parts = [stream._ex_iterable]
    for part in parts:  # the loop also visits the parts that it adds
        for value in vars(part).values():
            parts += filter(_is_part, value if isinstance(value, list) else [value])
    return any("ShuffledExamples" in type(part).__name__ for part in parts)


def examples_from(stream: Any, epoch: int, state: Any, passed: int) -> Iterator[dict[str, Any]]:
    """Set the state of a stream in an epoch. Return the examples that follow, without the first ``passed`` examples."""
    stream.set_epoch(epoch)
    stream.load_state_dict(state)
    return islice(iter(stream), passed, None)


class ExampleConverter:
    """Converts examples to samples, in the same way as the rows of a table are converted.

    Args:
        stream: The stream of the examples. If the stream has ``features``, these determine the columns.
        fields: See :func:`select`.
        key: See :func:`select`.
        nulls: A dict from field names to values that replace nulls.
        name: Name of the stream in messages.
    """

    def __init__(self, stream: Any, fields: Mapping[str, str] | None, key: str | None, nulls: Mapping[str, Any] | None, name: str) -> None:
        self._schema: pa.Schema | None = None if stream.features is None else stream.features.arrow_schema
        self._select: Callable[[pa.Schema], Selection] = lambda schema: select(schema, fields, key, name)
        self._nulls, self._name = nulls, name
        self._selection: Selection | None = None

    def __call__(self, example: Mapping[str, Any], where: str) -> tuple[str | None, dict[str, Any]]:
        """Return the key of an example, and the sample. The key is ``None`` if there is no key column."""
        if self._selection is None:
            self._selection = self._select(self._schema or pa.schema([(name, pa.null()) for name in example]))
            self._fields = SampleFields(self._selection, self._nulls, self._name)
        values = [self._value(name, example, where) for name in self._selection.columns]
        sample = self._fields.sample([lambda _, found=found: found for found in values], 0, lambda: where)  # type: ignore[misc]
        key = self._selection.key
        return None if key is None else key_text(example[key]), sample

    def _value(self, name: str, example: Mapping[str, Any], where: str) -> Any:
        field = self._schema.field(name) if self._schema is not None else pa.field(name, pa.null())
        kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
        try:
            array = pa.array([example[name]], None if self._schema is None else kind)
            return values_of(array, pa.field(name, array.type, metadata=field.metadata), _ACCESS)(0)
        except (KeyError, ValueError, TypeError, pa.ArrowException) as error:
            found = type(example.get(name)).__name__
            raise DatasetError(f"{where}, column {name!r}: a table cannot contain this {found}: {error}") from error
