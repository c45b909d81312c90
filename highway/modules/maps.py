"""General maps. A map is a stage that returns one output for each input, or drops the input."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.random import Generator

from highway.engine.batch import Field, Item, get, names, replace
from highway.engine.component import Traits, expect_one_argument
from highway.engine.stage import DROP
from highway.errors import ConfigError
from highway.parameters.checks import checked
from highway.parameters.hints import takes_rng


@checked
@dataclass
class Map:
    """Apply a function to each item, or to one field of each item.

    To apply a function to whole items, you can also put the function into a pipeline directly.

    Args:
        fn: The function. It receives the item or the value of the field. A function with a parameter ``rng`` also receives a random
            generator. It returns the new value, or ``DROP`` to drop the item. In YAML, write ``package.module:name``.
        field: Name or index of the field; ``None`` means the whole item.

    Returns:
        The result of ``fn``. With ``field``, the item with the result in this field. If the result is ``DROP``, this map also returns
        ``DROP``.

    Raises:
        TypeError: ``fn`` returned ``None``.
        KeyError: the field does not exist.
        PipelineError: ``fn`` requires more arguments than the item and ``rng`` (on construction).

    >>> Map(lambda label: label + 1, field=1)(("an image", 7))
    ('an image', 8)
    """

    fn: Callable[..., Any]
    field: str | int | None = None
    _takes_rng: bool = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._takes_rng = takes_rng(self.fn)
        expect_one_argument(self.fn, besides=["rng"])

    def __call__(self, item: Item, rng: Generator | None = None) -> Any:
        value = item if self.field is None else get(item, self.field)
        result = self.fn(value, rng=rng) if self._takes_rng else self.fn(value)
        if result is None:
            raise TypeError(f"Map: {self.fn!r} returned None; return a value, or return DROP to drop the item")
        return result if self.field is None or result is DROP else replace(item, {self.field: result})


@checked
@dataclass
class Select:
    """Keep some fields of each item, in the given order.

    Args:
        fields: A list of names of a dict's fields, or of indexes in a tuple or list. For one field, pass the name or index without a list.

    Returns:
        A dict for a dict, a list for a list, a tuple for any other item.

    Raises:
        KeyError: a field does not exist.

    >>> Select([1, 0])(("a", "b", "c"))
    ('b', 'a')
    >>> Select("label")({"image": 1, "label": 2})
    {'label': 2}
    """

    fields: str | int | list[str | int]

    def __call__(self, item: Item) -> Item:
        wanted: list[Field] = self.fields if isinstance(self.fields, list) else [self.fields]
        values = [get(item, name) for name in wanted]
        if isinstance(item, dict):
            return dict(zip(wanted, values, strict=True))
        return values if isinstance(item, list) else tuple(values)


@checked
@dataclass
class Rename:
    """Rename fields. The result is a dict. In a tuple or list, the old name of a field is its index.

    Args:
        names: A dict from old names to new names. If the item is a dict, a field that is not listed keeps its name. If the item is a tuple
            or list, all fields must be listed.

    Raises:
        ConfigError: two fields get the same new name (on construction).
        KeyError: an old name does not exist.
        ValueError: ``names`` does not list all fields of a tuple or list; or a new name is also the name of a field that is not renamed.

    >>> Rename({0: "image", 1: "label"})(("pixels", 3))
    {'image': 'pixels', 'label': 3}
    """

    names: dict[str | int, str]

    def __post_init__(self) -> None:
        if len(set(self.names.values())) < len(self.names):
            raise ConfigError(f"Rename: {self.names} gives the same name to several fields")

    def __call__(self, item: Item) -> dict[str, Any]:
        for old in self.names:
            get(item, old)
        renamed = {self._new(item, old): get(item, old) for old in names(item)}
        if len(renamed) < len(names(item)):
            raise ValueError(
                f"Rename: {self.names} renames a field to the name of another field of {list(names(item))}; select fields with Select first"
            )
        return renamed

    def _new(self, item: Item, old: Field) -> str:
        if isinstance(item, Mapping):
            return self.names.get(old, str(old))
        if old not in self.names:
            raise ValueError(
                f"Rename: field {old} of a tuple of {len(names(item))} has no new name; rename all fields, or select fields with Select "
                "first"
            )
        return self.names[old]


@checked
@dataclass
class Identity:
    """Pass items on unchanged.

    >>> Identity()("an item")
    'an item'
    """

    why_no_TransformLike: ClassVar[str] = "in a list of transforms, use an empty list, [], to leave the image unchanged"

    def __highway__(self) -> Traits:
        return Traits(parallel=True)

    def __call__(self, item: Item) -> Item:
        return item
