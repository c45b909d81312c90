"""Random access to Hugging Face tables."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, ClassVar

import numpy as np

from highway.datasets.tables.arrow import expect_whole
from highway.datasets.tables.backend import ipc, pa, unreadable
from highway.datasets.tables.rows import DecodedRows
from highway.datasets.tables.schema import select
from highway.datasets.tables.table import Piece, Table, TableLayout
from highway.datasets.tables.values import Access, in_memory
from highway.engine.cancel import check_cancelled
from highway.errors import ConfigError, DatasetError
from highway.extras import pip_install
from highway.parameters.checks import checked
from highway.stores.file import exists, local, read_whole
from highway.stores.unchanging import FileState
from highway.stores.url import is_url, join, shown


class HubLayout(TableLayout):
    """The record batches of a Hugging Face table.

    Args:
        table: A ``datasets.Dataset``.
        wanted: The dataset of highway that reads the table.
        name: Name of the table in messages.

    Attributes:
        mapped: A dict from the index of a part of the table to the files that are mapped into memory, with their states.
    """

    def __init__(self, table: Any, wanted: HuggingFace, name: str) -> None:
        _expect_whole(table)
        columns, form = table.data.table, table.format
        shown = None if form["output_all_columns"] else {*form["columns"], wanted.key}
        columns = columns.select([column for column in columns.column_names if shown is None or column in shown])
        selection = select(columns.schema, wanted.fields, wanted.key, name)
        self.batches = [batch for batch in columns.select(selection.needed).to_batches() if batch.num_rows]
        self.order = _order_of(table._indices)
        firsts = accumulate((batch.num_rows for batch in self.batches), initial=0)
        parts = _parts(table.data)
        self.mapped = [[(path, FileState.of(path)) for path in _mapped(part)] for part in parts]
        ends = list(accumulate(part[0].num_rows for part in parts))
        pieces = [
            Piece(bisect_right(ends, first), number, first, batch.num_rows)
            for number, (first, batch) in enumerate(zip(firsts, self.batches))
        ]
        super().__init__(pieces, table.features.arrow_schema, selection, wanted.nulls, 0, name)

    def rows(self, numbers: Sequence[int]) -> list[int]:
        """Return the positions in memory of the rows with these indexes."""
        numbers = [range(self.length)[number] for number in numbers]
        rows: list[int] = numbers if self.order is None else self.order[numbers].tolist()
        return rows

    @property
    def length(self) -> int:
        """The number of rows."""
        return len(self.spans) if self.order is None else len(self.order)


@checked
@dataclass
class HuggingFace(Table[HubLayout]):
    """The rows of a Hugging Face table, in the order that ``select``, ``filter`` and ``shuffle`` have defined.

    ``Reader`` also accepts a table without this class. This class has these advantages: images and audio stay encoded, so that highway can
    decode the images. Arrays keep their dtypes. Samples have keys. The dataset has label names. Its fingerprint lets caches and checkpoints
    detect changes.

    Args:
        dataset: A table of the package ``datasets``, a folder of ``save_to_disk``, the URL of such a folder in an object store such as S3,
            or a name for ``load_dataset``.
        split: The split to read, such as ``"train"``. Required if there are several splits.
        config: The second argument of ``load_dataset``, for names with several configurations.
        fields: A dict from field names to columns. ``{"label": "fine_label;label"}`` reads the first of the columns ``fine_label`` and
            ``label`` that exists. ``None`` reads all columns except ``__key__``, under their own names.
        key: The column that contains the keys of the samples. ``None``: ``__key__`` if this column exists, otherwise the row numbers.
        nulls: A dict from field names to values that replace nulls: ``{"caption": ""}``. A null in any other field raises an error when the
            row is read.

    A sample is a dict with the same types as in :class:`~highway.datasets.Parquet`. If a table stores only the path of an image, the image
    file is read.

    Raises:
        ConfigError: the package ``datasets`` is not installed.
        ConfigError: there are several splits, and ``split`` is not the name of one of them.
        ConfigError: the table has a transform, such as ``with_transform`` sets.
        ConfigError: ``dataset`` is a stream. Use :class:`~highway.modules.HuggingFaceSource`.
        ConfigError: ``blocks()`` is called, but the rows of the table were reordered.
        FileNotFoundError: ``dataset`` is a URL, but not the URL of a folder of ``save_to_disk``.
        DatasetError: the table is damaged or truncated, or a mapped file has changed since it was opened.
        DatasetError: a selected column does not exist or exists twice, or ``nulls`` has a name that is not a field.
        DatasetError: a value is null, and ``nulls`` has no replacement for its field. A key is null.

    >>> from datasets import Dataset
    >>> table = Dataset.from_dict({"text": ["first", "second"], "labels": [3, 5]})
    >>> dataset = HuggingFace(table, fields={"label": "labels"})
    >>> len(dataset), dataset[1]
    (2, {'label': np.int64(5)})
    """

    piece: ClassVar = "record batch"

    dataset: Any
    split: str | None = None
    config: str | None = None
    fields: dict[str, str] | None = None
    key: str | None = None
    nulls: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.dataset, (str, Mapping)):
            _expect_table(self.dataset)

    def _open(self) -> HubLayout:
        return HubLayout(self._loaded(), self, self.dataset if isinstance(self.dataset, str) else "a table of Hugging Face")

    def _check(self, layout: HubLayout, file: int) -> None:
        for path, state in layout.mapped[file]:
            if FileState.of(path) != state:
                raise DatasetError(f"{path}: the file has changed since the table was opened; open the table again")

    def _decode(self, layout: HubLayout, piece: Piece) -> tuple[DecodedRows, int]:
        batch = layout.batches[piece.index]
        with _naming(layout.name):
            batch.validate(full=True)  # check the offsets here, because reading single rows does not check them
        return DecodedRows([batch], layout.selection.columns, Access(in_memory, read_whole)), 0

    def _column(self, layout: HubLayout, name: str) -> Iterator[pa.RecordBatch]:
        for batch in layout.batches:
            check_cancelled()
            if batch.column(name).null_count:
                raise DatasetError(f"{layout.name}: the key column {name!r} contains nulls; select another column by key=")
            yield batch.select([name])

    def __len__(self) -> int:
        return self._layout.length

    def _samples(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        return super()._samples(self._layout.rows(numbers))

    def _key(self, number: int) -> str:
        return str(number) if self._layout.selection.key is None else super()._key(*self._layout.rows([number]))

    def locate(self, number: int) -> str:
        return super().locate(*self._layout.rows([number]))

    def blocks(self) -> list[range]:
        if self._layout.order is not None:
            raise ConfigError(
                f"shuffle='blocks': the rows of {self._layout.name} were reordered by select, filter or shuffle, so consecutive rows "
                f"are not stored together; use shuffle=True, or dataset.flatten_indices()"
            )
        return super().blocks()

    def _loaded(self) -> Any:
        found = load(self.dataset, self.split, self.config)
        _expect_table(found)
        if (found.format or {}).get("type") == "custom":
            raise ConfigError(
                "HuggingFace: the table has a transform, but highway reads the rows from memory without the transform; apply it in a "
                "map of the pipeline after dataset.reset_format(), or pass the table itself to Reader"
            )
        return found

    def fingerprint(self) -> str:
        """Return a string that changes when the table changes. It also depends on ``fields``, ``key`` and ``nulls``."""
        return f"{self._loaded()._fingerprint} {self.fields} {self.key} {self.nulls}"


def _expect_table(found: Any) -> None:
    if not hasattr(found, "features") or not hasattr(found, "data"):
        way_out = "; use HuggingFaceSource for streams" if hasattr(found, "features") else ""
        raise ConfigError(f"HuggingFace: dataset is of type {type(found).__name__}; expected a Dataset of the package datasets{way_out}")


def load(dataset: Any, split: str | None, config: str | None, streaming: bool = False) -> Any:
    """Return a table or stream of Hugging Face. ``dataset`` is a table, a stream, a dict from splits to these, a folder, or a name.

    Raises:
        ConfigError: the package ``datasets`` is not installed.
        ConfigError: there are several splits, and ``split`` is not the name of one of them.
        FileNotFoundError: ``dataset`` is a URL, but not the URL of a folder of ``save_to_disk``.
    """
    found = dataset
    if isinstance(dataset, str):
        try:
            import datasets
        except ImportError as error:
            raise ConfigError(f"{dataset!r}: Hugging Face's tables need the package datasets: {pip_install('huggingface')}") from error
        if any(exists(join(dataset, name)) for name in ("state.json", "dataset_dict.json")):
            folder = local(dataset)
            with _naming(shown(dataset)):
                # Mapped into memory, because _expect_whole checks mapped files.
                found = datasets.load_from_disk(folder, keep_in_memory=False)
        elif is_url(dataset):
            raise FileNotFoundError(f"{shown(dataset)!r}: not a folder of save_to_disk; use Parquet or Arrow for files in stores")
        else:
            return datasets.load_dataset(dataset, config, split=split, streaming=streaming)
    if isinstance(found, Mapping):
        if split not in found:
            raise ConfigError(f"Hugging Face: split={split!r}; expected one of {', '.join(map(repr, found))}")
        found = found[split]
    if streaming and isinstance(dataset, str) and hasattr(found, "to_iterable_dataset"):
        _expect_whole(found)
        found = found.to_iterable_dataset()
    return found


def _expect_whole(table: Any) -> None:
    """Raise DatasetError if a mapped file has more rows than were found. Zeros in a damaged file look like its end."""
    for path in dict.fromkeys(chain.from_iterable(map(_mapped, (*_parts(table.data), *_parts(table._indices))))):
        with _naming(path), pa.memory_map(path) as file:
            content = file.read_buffer()
            source = pa.BufferReader(content)
            for _ in ipc.MessageReader.open_stream(source):
                check_cancelled()
            expect_whole(content, source.tell())


def _parts(table: Any) -> list[list[Any]]:
    """Split a table into parts with consecutive rows. Return each part as a list of tables that have different columns of these rows."""
    return [] if table is None else getattr(table, "blocks", [[table]])


def _mapped(part: list[Any]) -> list[str]:
    """Return the files of a part of a table that are mapped into memory."""
    return [path for one in part if (path := getattr(one, "path", None))]


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Add the name of the table to errors of pyarrow and ``datasets``."""
    try:
        yield
    except Exception as error:
        known = (*unreadable(), ValueError, KeyError, TypeError, AttributeError)
        if not isinstance(error, known) or (isinstance(error, OSError) and error.errno):
            raise
        raise DatasetError(f"{name}: Hugging Face: the table is damaged or truncated; {error}") from error


def _order_of(indices: Any) -> np.ndarray | None:
    """Return the row at each position (without a copy if the indices are contiguous), or ``None`` if the order is unchanged."""
    if indices is None:
        return None
    column = indices.column(0)
    rows: np.ndarray = column.chunk(0).to_numpy() if column.num_chunks == 1 else column.to_numpy()
    return rows
