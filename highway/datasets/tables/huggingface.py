"""Tables of Hugging Face by number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from highway.datasets.tables.dataset import OfTable
from highway.distribution import pip_install
from highway.errors import ConfigError
from highway.parameters.checks import checked
from highway.stores.file import exists, local
from highway.stores.url import is_url, join, shown

if TYPE_CHECKING:
    from highway.datasets.tables.table import Table


@checked
@dataclass
class HuggingFace(OfTable):
    """The rows of a table of Hugging Face, in its order, as its ``select``, ``filter`` and ``shuffle`` have left it.

    ``Reader`` takes such a table as it is, too. By this one images and sounds stay encoded, for highway's decoder, without ``cast_column``;
    numbers and arrays keep their dtypes; there are keys, names of labels, and a fingerprint, by which caches and checkpoints see changes.

    Args:
        dataset: A table of the package datasets, or what names one: a folder of ``save_to_disk``, or its URL, or the name that
            ``load_dataset`` takes.
        split: Which of its splits, such as ``"train"``.
        config: The second argument of ``load_dataset``, where a name stands for several data sets.
        fields: The columns to read, under new names: ``{"image": "img", "label": "fine_label;label"}`` takes the first that there is.
            ``None`` reads all as they are, but ``__key__``.
        key: The column that has the samples' keys. ``None``: ``__key__`` if there is one, else the numbers of the rows.
        nulls: What stands for nulls, by field: ``{"caption": ""}``. In all others a null is an error.

    A sample is a dict, as that of :class:`~highway.datasets.Parquet`. An image that is only the path of a file is read from there.

    Raises:
        ConfigError: the package datasets is not installed; there are several splits; the table has a transform, or is a stream, which
            :class:`~highway.modules.HuggingFaceSource` reads; ``blocks()`` are asked for, but it has an order of its own.
        DatasetError: a column is missing, or there is a null.

    >>> dataset = HuggingFace("beans", "train", fields={"image": "image", "label": "labels"})
    """

    dataset: Any
    split: str | None = None
    config: str | None = None
    fields: dict[str, str] | None = None
    key: str | None = None
    nulls: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.dataset, (str, Mapping)):
            _expect_table(self.dataset)

    def _opened(self) -> Table:
        loaded = self._loaded()
        from highway.datasets.tables.hub_table import HubTable  # here, since it needs pyarrow, which comes with the package

        name = self.dataset if isinstance(self.dataset, str) else "a table of Hugging Face"
        return HubTable(loaded, self.fields, self.key, self.nulls, name)

    def _loaded(self) -> Any:
        found = load(self.dataset, self.split, self.config)
        _expect_table(found)
        if (found.format or {}).get("type") == "custom":
            raise ConfigError(
                "HuggingFace: the table has a transform, which rows that are read from its memory do not go through; have a map of the "
                "pipeline do it, behind dataset.reset_format(), or give the table to Reader as it is"
            )
        return found

    def fingerprint(self) -> str:
        """Return a text that changes when the table does, or other fields are read."""
        return f"{self._loaded()._fingerprint} {self.fields} {self.key} {self.nulls}"


def _expect_table(found: Any) -> None:
    if not hasattr(found, "features") or not hasattr(found, "data"):
        way_out = "; HuggingFaceSource reads streams" if hasattr(found, "features") else ""
        raise ConfigError(f"HuggingFace: dataset is of type {type(found).__name__}; expected a Dataset of the package datasets{way_out}")


def load(dataset: Any, split: str | None, config: str | None, streaming: bool = False) -> Any:
    """Return a table of Hugging Face, or a stream; ``dataset`` may be one, or a dict of several by their splits, or name one.

    Raises:
        ConfigError: the package datasets is not installed, or there are several splits and none, or another one, is named.
    """
    found = dataset
    if isinstance(dataset, str):
        try:
            import datasets
        except ImportError as error:
            raise ConfigError(f"{dataset!r}: Hugging Face's tables need the package datasets: {pip_install('huggingface')}") from error
        if any(exists(join(dataset, name)) for name in ("state.json", "dataset_dict.json")):
            found = datasets.load_from_disk(local(dataset))
            found = found.to_iterable_dataset() if streaming and hasattr(found, "to_iterable_dataset") else found
        elif is_url(dataset):
            raise FileNotFoundError(f"{shown(dataset)!r}: no folder of save_to_disk; Parquet and Arrow read files in stores")
        else:
            return datasets.load_dataset(dataset, config, split=split, streaming=streaming)
    if isinstance(found, Mapping):
        if split not in found:
            raise ConfigError(f"Hugging Face: split={split!r}; expected one of {', '.join(map(repr, found))}")
        found = found[split]
    return found
