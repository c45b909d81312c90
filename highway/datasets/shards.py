"""Write samples into WebDataset shards. A shard is a tar archive in which the files of a sample are adjacent."""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from highway.datasets.field_codecs import encode_field, field_name
from highway.datasets.tar_samples import key_and_extension
from highway.datasets.writing import writing
from highway.errors import ItemError, ShardError
from highway.stores.url import shown


class EncodedSample(NamedTuple):
    """An encoded sample: the key, and the extension and content of each file."""

    key: str
    files: list[tuple[str, bytes]]

    @property
    def size(self) -> int:
        """Number of bytes that the sample takes in a shard, without the padding after each file."""
        return sum(tarfile.BLOCKSIZE + len(data) for _, data in self.files)


def encoded(key: str, sample: Mapping[str, Any]) -> EncodedSample:
    """Encode a sample as files.

    In the last part of the key, dots become ``_``, because the first dot of a file name begins the extension.

    Raises:
        ItemError: no file can hold the value of a field.
        ItemError: the sample has no fields, or two of its fields would be read as the same field, such as ``x`` and ``x.ten``.
        ItemError: the key or a field name is not valid: a reader would derive another key or field name from the file name.
    """
    name, files = key_in_shard(key), [encode_field(field, value) for field, value in sample.items()]
    for extension, _ in files:
        if key_and_extension(f"{name}.{extension}") != (name, extension):
            file = f"{name}.{extension}"
            raise ItemError(
                f"the sample {key!r} and its field {extension!r} would be stored as the file {file!r}, but readers would find another key "
                f"or field in this file name. A key must have a name after its last slash, and must not begin with '__'. A field must be "
                f"in lower case, without slashes"
            )
    if len({field_name(extension) for extension, _ in files}) < len(files):
        names = ", ".join(map(repr, sample))
        raise ItemError(
            f"two fields of the sample {key!r} would have the same name, because readers remove the suffix .ten: {names}; rename one field"
        )
    if not files:
        raise ItemError(f"the sample {key!r} has no fields, so the shard would contain no file for it; drop the sample (return DROP)")
    return EncodedSample(name, files)


def key_in_shard(key: str, sample: object = None) -> str:
    """Return the key that a sample has in a shard."""
    folder, slash, name = key.rpartition("/")
    return f"{folder}{slash}{name.replace('.', '_')}"


class ShardWriter:
    """Writes samples into a shard; see :func:`shard_writer`."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._keys: dict[str, int] = {}
        self.samples = 0

    @property
    def size(self) -> int:
        """Number of bytes written so far."""
        return self._archive.offset

    def add(self, key: str, sample: Mapping[str, Any]) -> None:
        """Append a sample. Raises the errors of :func:`encoded`."""
        self.append(encoded(key, sample))

    def append(self, sample: EncodedSample) -> None:
        """Append an encoded sample.

        If the shard already has the key, a number is added to the key. Otherwise, the two samples would be read as one sample.
        """
        times = self._keys[sample.key] = self._keys.get(sample.key, 0) + 1
        key = sample.key if times == 1 else f"{sample.key}-{times}"
        for extension, data in sample.files:
            info = tarfile.TarInfo(f"{key}.{extension}")
            info.size = len(data)
            self._archive.addfile(info, io.BytesIO(data))
            self._archive.members.clear()  # type: ignore[attr-defined]  # 500 bytes per file, for readers
        self.samples += 1


@contextlib.contextmanager
def shard_writer(path: str, durable: bool = False) -> Iterator[ShardWriter]:
    """Write a shard. The file gets its final name only when it is complete; see :func:`highway.datasets.writing.writing`.

    Args:
        path: The path or URL of the file.
        durable: Whether to wait until the file is on the disk. The file then survives a crash of the machine.

    Raises:
        ShardError: no samples were added. Readers reject an empty shard, because the shard could be damaged.
    """
    with writing(path, durable) as name, tarfile.open(name, "w") as archive:
        writer = ShardWriter(archive)
        yield writer
        if not writer.samples:
            raise ShardError(f"{shown(path)}: no samples were added, and readers reject an empty shard; do not write this shard")
