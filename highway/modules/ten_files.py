"""Read and write ``.ten`` files. Each file contains one item and its passport, in the format of :mod:`highway.tenbin`.

The passport is the metadata of an item: epoch, index and keys.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

from highway.datasets.ten import TenFiles, save
from highway.engine.stage import Items, Stamped
from highway.errors import ConfigError, ItemError
from highway.parameters.checks import checked
from highway.parameters.ranges import Epochs, Seed
from highway.reading.sampler import Shuffle
from highway.reading.sampling import Sampling
from highway.stores.file import exists
from highway.stores.url import is_url, join, shown


class _WithPassports(TenFiles):
    def __getitem__(self, number: int) -> Stamped:
        return self.with_passport(number)


@dataclass
class _OfTenFiles:
    paths: str | list[str]
    epochs: Epochs = 1
    shuffle: Shuffle = False
    seed: Seed | None = None
    mmap: bool = False


@checked
@dataclass
class TenSource(Sampling, _OfTenFiles):
    """Read items from ``.ten`` files, one item per file. By default, the files are read in the sorted order of their paths.

    To read batches of these items, use ``Reader(TenFiles("data"), 32)``.

    Args:
        paths: A folder, a file, a pattern such as ``"data/*.ten"``, or a list of them.
        epochs: Number of passes over the files, or ``None`` to repeat indefinitely.
        shuffle: Whether to shuffle the files, in a different order for each epoch.
        mmap: Whether to map the files into memory instead of reading them. If a file is truncated while its item is in use, the process is
            killed.

    Yields:
        The saved items, with read-only arrays. The passport contains the saved keys, or the path of the file if no keys were saved.

    Raises:
        FileNotFoundError: there are no such files (raised on the first item, not in the constructor).
        FrameError: a file is incomplete, is not in tenbin format, or does not match its checksums. With ``on_error="skip"``, the file is
            skipped.

    >>> Pipeline([[np.arange(3, dtype=np.uint8)], TenSink("batches")]).run()
    >>> list(Pipeline([TenSource("batches/*.ten")]))
    [array([0, 1, 2], dtype=uint8)]
    """

    at_once: ClassVar[int] = 1  # an item can be a whole batch

    shuffle: Shuffle = False

    def open(self) -> TenFiles:
        """Return the dataset. Its samples have passports."""
        return _WithPassports(self.paths, self.mmap)


@checked
@dataclass
class TenSink:
    """Write each item to its own ``.ten`` file, with its passport and a checksum for each array.

    A file gets its final name when it is complete and on the disk. The package tensorcom can also read the file.

    Args:
        data_dir: Folder for the files, or the URL of the folder. The folder is created if it does not exist.
        name: Format of the file names. ``{epoch}`` and ``{index}`` are replaced by the values in the passport.
        overwrite: Whether to replace existing files.

    Raises:
        ConfigError: ``name`` contains fields other than ``{epoch}`` and ``{index}``, or does not end in ``.ten``.
        FileExistsError: the file exists, and ``overwrite`` is false.
        ItemError: a field cannot be saved. With ``on_error="skip"``, the item is skipped.

    >>> Pipeline([[np.arange(3, dtype=np.uint8)], TenSink("batches")]).run()
    >>> list(Pipeline([TenSource("batches")]))
    [array([0, 1, 2], dtype=uint8)]
    """

    data_dir: str
    name: str = "{epoch:03d}-{index:08d}.ten"
    overwrite: bool = False

    def __post_init__(self) -> None:
        try:
            self.name.format(epoch=0, index=0)
        except (KeyError, IndexError, ValueError) as error:
            raise ConfigError(f"TenSink: name={self.name!r}: {error}; expected, for example, '{{epoch:03d}}-{{index:08d}}.ten'") from error
        if not self.name.endswith(".ten"):
            raise ConfigError(f"TenSink: name={self.name!r}; expected a name that ends in .ten")

    def consume(self, items: Items) -> None:
        if not is_url(self.data_dir):
            os.makedirs(self.data_dir, exist_ok=True)
        counters = items.context.counters(self)
        counters["bytes"] = 0
        for item in items:
            passport = items.passport
            path = join(self.data_dir, self.name.format(epoch=passport.epoch, index=passport.index))
            if not self.overwrite and exists(path):
                raise FileExistsError(f"'{shown(path)}' already exists; pass overwrite=True, or choose another data_dir or name")
            try:
                counters["bytes"] += save(path, item, passport)
            except ItemError as error:
                items.context.report_error(error)
