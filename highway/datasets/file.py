"""Samples that are files; and files that are read by position, which :mod:`highway.stores` opens by path or URL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from highway.stores.file import FileState as FileState
from highway.stores.file import UnchangingFile as UnchangingFile
from highway.stores.file import fingerprint_of as fingerprint_of
from highway.stores.file import open_file as open_file


class StoredFiles(list[str | bytes]):
    """Samples that are files: their paths, if they have not been read, or their contents, if they are not on this machine.

    Args:
        files: Where each is, or what is in it.
        labels: An integer for each; ``None`` if they have none.
    """

    def __init__(self, files: Iterable[str | bytes], labels: Sequence[int] | None = None) -> None:
        super().__init__(files)
        self.labels = labels
