"""The passport of each item, and the forms in which components return items with passports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Origin(NamedTuple):
    """The host and process that created an item.

    Args:
        host: Name of the machine.
        role: Name of the role in the topology file.
        replica: Number of the process within its role, from 0.

    >>> Passport(epoch=1, index=7, origin=Origin("node-3", "reader")).origin.role
    'reader'
    """

    host: str = ""
    role: str = ""
    replica: int = 0


class Lineage(NamedTuple):
    """How an item was made, so that it can be made again when a run resumes.

    Args:
        inputs: For a stream: the passports of the inputs that became this item.
        part: For a stream, which part of its inputs the item is. For a source, the place where the source read the item. Any value that
            JSON can hold.
        stage: Number of the stage that made the item. The engine sets it.

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
        """Whether this says how the item was made. It does not for an item that a stream yielded without a passport."""
        return bool(self.inputs) or self.part is not None or not self.stage


class Positions(NamedTuple):
    """The positions of the samples of an item in the epoch of all ranks. The random numbers of a sample depend on its position.

    Args:
        index: The index in the passport of the item. If a later stage changes this index, the positions are ignored, because the item may
            be a copy. ``None`` in the return value of a ``remake``: the engine sets the index.
        rows: The position of each row of a batch, or the passport of the sample that became this row. One entry for a sample.
    """

    index: int | None  # type: ignore[assignment]  # hides tuple.index, as in a passport
    rows: Sequence[int] | Sequence[Passport]


class Passport(NamedTuple):
    """Metadata that travels with an item and identifies it.

    ``(epoch, index)`` identifies the item within its source. ``positions`` holds the positions of the rows of a batch in the epoch. Random
    numbers in maps depend on the epoch and the positions. ``keys`` names the samples in the item (file names, shard keys), one key per
    sample. ``times`` are Unix seconds: when the source created the item, then each time it was sent. ``made_of`` is the lineage. It is set
    for items that a stream made of other items, and for items that their source cannot find by epoch and index alone. A resumed run makes
    these items again from the lineage. Links do not send the lineage to other processes.

    Args:
        epoch: Number of the epoch, from 0.
        index: Number of the item within its epoch, from 0.
        origin: The host and process that created the item.
        keys: The names of the samples in the item, such as file names: one key per sample.
        times: Unix seconds: when the source created the item, then each time it was sent.
        made_of: The lineage: how a stream or source made the item.
        positions: The positions of the rows of a batch in the epoch. ``None``: the item has one position, its index.

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
        """The position of each row; empty if the positions are not known."""
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
        """Return the passport of the item in an epoch that consists of several parts, such as sources."""
        rows = tuple([(part << _BITS | position) & _MOST for position in self.rows or (self.index,)])
        return self._replace(epoch=epoch, index=index or 0, positions=Positions(index, rows))

    def again(self, epoch: int, index: int) -> Passport:
        """Return the passport of an item that was made again, with the epoch and index that it had before."""
        positions = self.positions
        if positions is not None and positions.index is None:
            positions = positions._replace(index=index)
        return self._replace(epoch=epoch, index=index, positions=positions)

    def sent(self) -> Passport:
        """Return the passport for another process, which cannot make the item again."""
        rows = self.rows
        return self._replace(made_of=None, positions=Positions(self.index, rows) if rows else None)


_BITS, _MOST = 40, 2**63 - 1  # in an epoch of several parts: bits of a position in its part, and the largest position


class Stamped(NamedTuple):
    """An item with its passport. A source or stream yields such a pair to set the passport. For a bare item, the engine makes the passport.

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
    """The return value of a map that makes several items from one input, such as all samples of a file.

    Each of these items has the epoch, origin and times of the input. If a run resumes, the map's ``remake`` makes the items again.

    Args:
        items: The items.
        indexes: The index of each item, for its passport.
        keys: The keys of each item.
        parts: The ``part`` of each item's lineage.
        positions: The positions of each item, for its passport. Empty: the index of an item is its position.
    """

    items: Sequence[Any]
    indexes: Sequence[int]
    keys: Sequence[tuple[str, ...]]
    parts: Sequence[Any]
    positions: Sequence[Positions] = ()
