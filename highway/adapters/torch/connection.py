"""A dataset for the ``DataLoader`` of torch that receives batches from a connection."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from torch.utils.data import IterableDataset

from highway.wire.connection import Connection


class TensorcomDataset(IterableDataset[Any]):
    """A dataset that receives batches from a connection. An epoch has a fixed number of batches.

    ::

        dataset = TensorcomDataset("zsub://127.0.0.1:7880", 1000)
        for images, labels in DataLoader(dataset, batch_size=None):  # tensors: uint8 (B, H, W, C) and int32 (B,)
            ...

    The items are batches, so pass ``batch_size=None`` to the ``DataLoader``. An item is a list of arrays, and images have their channels
    last, as in tensorcom. ``DataLoader`` converts the arrays to tensors. With ``converters="torch"``, this dataset yields images as tensors
    with channels first, and labels as int64 tensors.

    Each process that iterates over the dataset opens its own connection, and keeps it for all epochs. With ``zrpull://``, each batch goes
    to one worker of the ``DataLoader``. With ``zsub://``, each worker gets all batches.

    Args:
        urls: The URLs to receive from; see :class:`highway.Connection`.
        length: Number of batches in an epoch. With 0, an epoch ends when all senders have ended.
        **options: Further arguments of :class:`highway.Connection`. In contrast to ``Connection``, ``writable`` is ``True`` by default,
            because torch has no read-only tensors.

    >>> sender = Pipeline([[[np.zeros((2, 3), np.uint8), np.uint8([5, 7])]], ZMQSink("ipc://batches")])
    >>> sender.start()
    >>> for images, labels in TensorcomDataset("zrpull+ipc://batches"):
    ...     print(images.shape, labels)
    (2, 3) [5 7]
    >>> sender.stop()
    """

    def __init__(self, urls: str | Sequence[str], length: int = 1000000, **options: Any) -> None:
        self.urls, self.length = urls, length
        self.options = {"writable": True, **options}
        self._connection: Connection | None = None
        self._pid = 0

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of the next epoch."""
        if self._connection is None or self._pid != os.getpid():
            self._connection, self._pid = Connection(self.urls, **self.options), os.getpid()
        for position, batch in enumerate(self._connection, start=1):
            yield batch
            if position == self.length:
                return

    def close(self) -> None:
        """Close the connection of this process."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}
