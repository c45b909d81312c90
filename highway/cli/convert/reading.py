"""Read the samples to convert: by index, or in sequence if there is no random access."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from highway.datasets.dataset import Dataset, keys_of, locate, read_several, several_of
from highway.datasets.folder import Files, ImageFolder
from highway.datasets.opened import opened
from highway.datasets.ten import TenFiles
from highway.engine import batch
from highway.engine.cancel import check_cancelled
from highway.engine.component import fingerprint_of
from highway.engine.stage import Stamped
from highway.errors import ConfigError, ImageError
from highway.images.header import read_header

_LABELLED = ("image", "label")
_AT_ONCE = 16  # number of samples in each call of ``__getitems__``, which can read them concurrently


class KeyedSample(NamedTuple):
    """A sample to convert, with its index and its key."""

    number: int
    key: str
    fields: dict[str, Any]


@dataclass
class Input:
    """The samples of a source.

    Args:
        data: A dataset, or an iterable that yields samples with passports (metadata).
        shape: Function that converts a sample to the form that the target format needs.
        names: Names for the fields of samples that are not dicts, one name per field. Empty: if a sample has one or two fields and the
            first field is an encoded image, the names are ``image`` and ``label``. Otherwise, the name of a field is its index.
        fields: Names of the fields to keep. Empty: all fields.
        number_keys: Whether the key of a sample is the index of the sample, with 9 digits.
    """

    data: Any
    shape: Callable[[dict[str, Any]], dict[str, Any]]
    names: Sequence[str] = ()
    fields: Sequence[str] = ()
    number_keys: bool = False

    @opened
    def total(self) -> int | None:
        """Number of samples; ``None`` if ``data`` is not a dataset."""
        return len(self.data) if isinstance(self.data, Dataset) else None

    @opened
    def keys(self) -> Sequence[str] | None:
        """The keys of all samples. ``None`` if the keys are unknown before reading, or if ``number_keys`` is true."""
        return None if self.number_keys or self.total is None else keys_of(self.data)

    def fingerprint(self, paths: Sequence[str]) -> str:
        """Return a text that changes when the source changes.

        The text is the fingerprint of the dataset. Without such a fingerprint, it is a hash of the absolute paths, sizes and modification
        times of ``paths``. For a URL, only the URL is hashed.
        """
        if self.total is not None and (own := fingerprint_of(self.data)) is not None:
            return own()
        digest = hashlib.blake2b(digest_size=16)
        for path in paths:
            state = os.stat(path) if os.path.exists(path) else None  # os.stat() does not accept URLs
            digest.update(repr((os.path.abspath(path), state and (state.st_size, state.st_mtime_ns))).encode())
        return digest.hexdigest()

    def read(self, numbers: range) -> Iterator[KeyedSample]:
        """Yield the samples with these indices, in order. Errors get a note that names the sample."""
        method = several_of(self.data, "__getitems__")
        for begin in range(numbers.start, numbers.stop, _AT_ONCE):
            some = range(begin, min(begin + _AT_ONCE, numbers.stop))
            found = iter(read_several(self.data, method, some)) if method else map(self.data.__getitem__, some)
            for number in some:
                check_cancelled()
                try:
                    sample = self.sample(number, next(found))
                except Exception as error:
                    error.add_note(f"highway: the error was raised for {locate(self.data, number)}")
                    raise
                yield sample

    def stream(self) -> Iterator[Stamped]:
        """Yield the unconverted samples of a source without random access. The passport of each sample holds the sample's index."""
        for number, stamped in enumerate(self.data):
            yield Stamped(stamped.item, stamped.passport._replace(index=number))

    def sample(self, number: int, item: Any) -> KeyedSample:
        """Convert an item of the dataset to a sample to write.

        Args:
            number: The index of the item.
            item: The item.

        Raises:
            ValueError: the item is a batch of several samples.
            ConfigError: the sample lacks one of ``fields``, or the number of ``names`` differs from the number of its fields.
        """
        known = self.keys
        keys = (known[number],) if known is not None else ()
        if type(item) is Stamped:
            item, keys = item.item, keys or item.passport.keys
        if len(keys) > 1:
            raise ValueError(f"the item is a batch of {len(keys)} samples; put Unbatch before the sink, which writes single samples")
        fields = _dict(item, self.names)
        for name in self.fields:
            if name not in fields:
                raise ConfigError(f"--fields: there is no field {name!r}; the sample has {', '.join(fields)}")
        if self.fields:
            fields = {name: fields[name] for name in self.fields}
        return KeyedSample(number, keys[0] if keys and not self.number_keys else f"{number:09d}", self.shape(fields))


def _dict(item: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return a sample as a dict. Arrays without axes become scalars."""
    known, values = batch.names(item), batch.fields(item)
    if not isinstance(item, dict):
        if names and len(names) != len(known):
            raise ConfigError(
                f"--names has {len(names)} names ({', '.join(names)}), but the sample has {len(known)} fields; give one name for each field"
            )
        known = tuple(names) or (_LABELLED[: len(known)] if len(known) <= 2 and _is_image(values[0]) else known)
    pairs = zip(known, values, strict=True)
    return {str(name): value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value for name, value in pairs}


def _is_image(value: Any) -> bool:
    try:
        return isinstance(value, bytes) and bool(read_header(value))
    except ImageError:
        return False


@dataclass
class NamedImages:
    """A dataset of image files, in which each sample has the form of a sample in a shard.

    A sample is a dict with two fields: the content of the file, under its extension (such as ``png``), and the label, under ``cls``. Files
    without labels have only the first field. The key of a sample is the path of its file without the extension. If an earlier file has the
    same key, the extension is appended: after ``a.jpg``, the file ``a.png`` gets the key ``a-png``.
    """

    files: ImageFolder | Files

    def __len__(self) -> int:
        return len(self.files)

    @opened
    def keys(self) -> list[str]:
        keys: list[str] = []
        seen: set[str] = set()
        for path in self.files.keys:
            stem, suffix = os.path.splitext(path)
            keys.append(f"{stem}-{suffix[1:].lower()}" if stem in seen else stem)  # otherwise, a.jpg and a.png would become one sample
            seen.add(stem)
        return keys

    def __getitem__(self, number: int) -> dict[str, Any]:
        data, *label = self.files[number]
        extension = os.path.splitext(self.files.keys[number])[1][1:].lower()
        return {extension: data, **dict(zip(("cls",), label, strict=False))}

    def locate(self, number: int) -> str:
        return self.files.locate(number)

    def fingerprint(self) -> str:
        return self.files.fingerprint()


@dataclass
class SavedItems:
    """A dataset that has the items of ``.ten`` files, with the passports that were saved."""

    files: TenFiles

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> Stamped:
        return self.files.with_passport(number)

    def locate(self, number: int) -> str:
        return self.files.locate(number)

    def fingerprint(self) -> str:
        return self.files.fingerprint()
