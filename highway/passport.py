"""The passport (the metadata of an item), and the types with which components return items and their passports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Origin(NamedTuple):
    """The host and process that created an item.

    Args:
        host: Name of the machine.
        role: Name of the role in the topology file, which describes the processes of a run. A role is a group of processes that run one
            pipeline.
        replica: Number of the process within its role, from 0.

    >>> Passport(epoch=1, index=7, origin=Origin("node-3", "reader")).origin.role
    'reader'
    """

    host: str = ""
    role: str = ""
    replica: int = 0


class Lineage(NamedTuple):
    """Describes how an item was created, so that a resumed run can create it again.

    Args:
        inputs: If a stream created the item, the passports of the inputs of this item.
        part: If a stream created the item, the part of the inputs that became the item, such as a row. If a source created the item, the
            place from which the source has read the item. Any value that JSON can hold.
        stage: Index of the stage that created the item. The engine sets this index.

    >>> class Doubles:
    ...     def __iter__(self):
    ...         for number in range(3):
    ...             yield Stamped(2 * number, Passport(0, number, made_of=Lineage(part=number)))
    >>> [stamped.passport.made_of.part for stamped in Pipeline([Doubles()]).stamped()]
    [0, 1, 2]
    """

    inputs: tuple[Passport, ...] = ()
    part: Any = None
    stage: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether the item can be created again. It cannot if a stream has yielded the item without a passport."""
        return bool(self.inputs) or self.part is not None or not self.stage


class Positions(NamedTuple):
    """The positions of the samples of an item in the epoch, counted over all ranks.

    The random numbers for a sample depend on its position.

    Args:
        index: The index in the passport of the item. If a later stage changes the index in the passport, the positions are ignored, because
            the item might be a copy. A function ``remake`` passes ``None``, and the engine sets the index.
        rows: For each row of a batch, its position, or the passport of its sample. A sample has one entry.
    """

    index: int | None  # type: ignore[assignment]  # hides tuple.index, as in a passport
    rows: Sequence[int] | Sequence[Passport]


class Passport(NamedTuple):
    """Metadata that identifies an item. Each item has a passport.

    ``(epoch, index)`` identifies the item within its source. Random numbers in maps depend on the epoch and the positions. ``made_of`` is
    set if a stream created the item from other items, or if the source cannot find the item by epoch and index alone. A resumed run uses
    ``made_of`` to create the item again. ``made_of`` is not sent to other processes.

    Args:
        epoch: Number of the epoch, from 0.
        index: Number of the item within its epoch, from 0.
        origin: The host and process that created the item.
        keys: The names of the samples in the item, such as file names. One key per sample.
        times: Times in Unix seconds: first the time at which the source created the item, then each time at which it was sent.
        made_of: The lineage: how a stream or source created the item.
        positions: The positions of the rows of a batch in the epoch. ``None``: the item has one position, which is its index.

    >>> stamped = next(iter(Pipeline([["a", "b"]]).stamped()))
    >>> isinstance(stamped.passport, Passport), stamped.passport.epoch, stamped.passport.index
    (True, 0, 0)
    """

    epoch: int = 0
    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which a passport does not need
    origin: Origin = Origin()
    keys: tuple[str, ...] = ()
    times: tuple[float, ...] = ()
    made_of: Lineage | None = None
    positions: Positions | None = None

    @property
    def rows(self) -> Sequence[int]:
        """The position of each row. Empty if the positions are unknown."""
        if self.positions is None or self.positions.index != self.index:
            return ()
        rows: Any = self.positions.rows
        return tuple([one.position for one in rows]) if rows and isinstance(rows[0], Passport) else rows

    @property
    def position(self) -> int:
        """The position of the first row, or the index."""
        rows = self.rows
        return rows[0] if rows else self.index

    def within(self, part: int, epoch: int, index: int | None) -> Passport:
        """Return the passport of the item in an epoch that consists of several parts, such as several sources.

        ``part`` is the number of a part.
        """
        rows = tuple([(part << _BITS | position) & _MOST for position in self.rows or (self.index,)])
        return self._replace(epoch=epoch, index=index or 0, positions=Positions(index, rows))

    def again(self, epoch: int, index: int) -> Passport:
        """Return the passport of an item that was created again, with its original epoch and index."""
        positions = self.positions
        if positions is not None and positions.index is None:
            positions = positions._replace(index=index)
        return self._replace(epoch=epoch, index=index, positions=positions)

    def sent(self) -> Passport:
        """Return the passport without lineage, for another process, which cannot create the item again."""
        rows = self.rows
        return self._replace(made_of=None, positions=Positions(self.index, rows) if rows else None)


_BITS, _MOST = 40, 2**63 - 1  # in an epoch with several parts: number of bits for a position in its part, and the largest position


class Stamped(NamedTuple):
    """An item with its passport. A source or stream can yield such a pair to set the passport. Otherwise, the engine creates the passport.

    Args:
        item: The item.
        passport: Its passport.

    >>> class Named:
    ...     def __iter__(self):
    ...         for number, name in enumerate(["cat.jpg", "cup.jpg"]):
    ...             yield Stamped(name.upper(), Passport(0, number, keys=(name,)))
    >>> [(stamped.item, stamped.passport.keys) for stamped in Pipeline([Named()]).stamped()]
    [('CAT.JPG', ('cat.jpg',)), ('CUP.JPG', ('cup.jpg',))]
    """

    item: Any
    passport: Passport


class Several(NamedTuple):
    """The return value of a map that creates several items from one input, such as the samples of a file.

    Each of these items has the epoch, origin and times of the input. If a run resumes, the method ``remake`` of the map creates the items
    again.

    Args:
        items: The items.
        indexes: The index of each item, for its passport.
        keys: The keys of each item.
        parts: The ``part`` in the lineage of each item.
        positions: The positions of each item, for its passport. If empty, the position of an item is its index.
    """

    items: Sequence[Any]
    indexes: Sequence[int]
    keys: Sequence[tuple[str, ...]]
    parts: Sequence[Any]
    positions: Sequence[Positions] = ()
