"""Random access to the rows of Hugging Face tables."""

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
        wanted: The :class:`HuggingFace` dataset that reads the table.
        name: Name of the table in messages.

    Attributes:
        mapped: For each part of the table, the files that are mapped into memory, each with its size and modification time.
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
        """Convert sample indexes to row numbers in memory. Both differ after ``select``, ``filter`` or ``shuffle``."""
        numbers = [range(self.length)[number] for number in numbers]
        rows: list[int] = numbers if self.order is None else self.order[numbers].tolist()
        return rows

    @property
    def length(self) -> int:
        """The number of samples."""
        return len(self.spans) if self.order is None else len(self.order)


@checked
@dataclass
class HuggingFace(Table[HubLayout]):
    """The rows of a Hugging Face table, in the order that ``select``, ``filter`` and ``shuffle`` have defined.

    ``Reader`` also accepts a Hugging Face table itself. This class has several advantages. Images and audio stay encoded, so that many
    workers can decode the images. Arrays keep their dtypes. Samples have keys, and labels have names. Caches and checkpoints detect changes
    of the table.

    Args:
        dataset: A table of the package ``datasets``, a folder that ``save_to_disk`` wrote, the URL of such a folder, or a name for
            ``load_dataset``. A folder in an object store, such as S3, is copied into a local folder, which ``?cache_dir=FOLDER`` in the URL
            sets.
        split: The split to read, such as ``"train"``. Required if there are several splits.
        config: The second argument of ``load_dataset``, if the name has several configurations.
        fields: A dict from field names to columns. ``{"label": "fine_label;label"}`` reads the column ``fine_label``, or the column
            ``label`` if there is no column ``fine_label``. ``None`` reads all columns except ``__key__``, under their own names.
        key: The column that contains the keys of the samples. ``None``: the column ``__key__``. If there is no such column, the keys are
            the row numbers.
        nulls: A dict from field names to values that replace nulls: ``{"caption": ""}``. If any other field contains a null, reading the
            row raises an error.

    A sample is a dict with the same types as in :class:`~highway.datasets.Parquet`. If a table stores only the path of an image, highway
    reads the image file.

    Raises:
        ConfigError: the package ``datasets`` is not installed.
        ConfigError: there are several splits, and ``split`` is not the name of one of them.
        ConfigError: the table has a transform (``with_transform`` or ``set_transform``).
        ConfigError: ``dataset`` is a URL, but no local folder is set.
        ConfigError: ``dataset`` is a stream. Use :class:`~highway.modules.HuggingFaceSource`.
        ConfigError: ``blocks()`` is called, but the rows of the table were reordered.
        FileNotFoundError: ``dataset`` is a URL, but not the URL of a folder that ``save_to_disk`` wrote.
        DatasetError: the table is damaged or truncated, or one of its files has changed since the first read.
        DatasetError: a selected column does not exist or exists twice, or ``nulls`` has a name that is not a field.
        DatasetError: a value is null, and ``nulls`` has no replacement for the field.
        DatasetError: a key is null.

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
            batch.validate(full=True)  # checks all offsets, because reading single rows does not check offsets
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
        """Return a string that changes when the table, ``fields``, ``key`` or ``nulls`` changes."""
        return f"{self._loaded()._fingerprint} {self.fields} {self.key} {self.nulls}"


def _expect_table(found: Any) -> None:
    if not hasattr(found, "features") or not hasattr(found, "data"):
        way_out = "; use HuggingFaceSource for streams" if hasattr(found, "features") else ""
        raise ConfigError(f"HuggingFace: dataset is of type {type(found).__name__}; expected a Dataset of the package datasets{way_out}")


def load(dataset: Any, split: str | None, config: str | None, streaming: bool = False) -> Any:
    """Return a Hugging Face table or stream.

    Args:
        dataset: A table or stream, a dict from splits to tables or streams, a folder that ``save_to_disk`` wrote, or a name for
            ``load_dataset``.
        split: The split to read.
        config: The second argument of ``load_dataset``.
        streaming: Whether to return a stream.

    Raises:
        ConfigError: the package ``datasets`` is not installed.
        ConfigError: there are several splits, and ``split`` is not the name of one of them.
        FileNotFoundError: ``dataset`` is a URL, but not the URL of a folder that ``save_to_disk`` wrote.
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
                # Map the files, because _expect_whole() checks only mapped files.
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
    """Raise DatasetError if a mapped file ends too early. In a damaged file, zeros look like the end of the file."""
    for path in dict.fromkeys(chain.from_iterable(map(_mapped, (*_parts(table.data), *_parts(table._indices))))):
        with _naming(path), pa.memory_map(path) as file:
            content = file.read_buffer()
            source = pa.BufferReader(content)
            for _ in ipc.MessageReader.open_stream(source):
                check_cancelled()
            expect_whole(content, source.tell())


def _parts(table: Any) -> list[list[Any]]:
    """Return the parts of a table. Each part has consecutive rows, and is a list of tables with different columns of these rows."""
    return [] if table is None else getattr(table, "blocks", [[table]])


def _mapped(part: list[Any]) -> list[str]:
    """Return the files that are mapped into memory for a part of a table."""
    return [path for one in part if (path := getattr(one, "path", None))]


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Convert errors of pyarrow and ``datasets`` to DatasetErrors that name the table."""
    try:
        yield
    except Exception as error:
        known = (*unreadable(), ValueError, KeyError, TypeError, AttributeError)
        if not isinstance(error, known) or (isinstance(error, OSError) and error.errno):
            raise
        raise DatasetError(f"{name}: Hugging Face: the table is damaged or truncated; {error}") from error


def _order_of(indices: Any) -> np.ndarray | None:
    """Return the row number of each sample, or ``None`` if the order of the rows is unchanged."""
    if indices is None:
        return None
    column = indices.column(0)
    rows: np.ndarray = column.chunk(0).to_numpy() if column.num_chunks == 1 else column.to_numpy()
    return rows
