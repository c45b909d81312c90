"""What a conversion was begun from, and whether it is done: a file in the destination's folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from highway.datasets.writing import write_whole
from highway.errors import ConfigError
from highway.stores.file import exists, open_text, remove
from highway.stores.url import shown


@dataclass
class Record:
    """One conversion: its file, what it is made from and how, how many samples there are once it is done, whether it was begun before."""

    path: str
    about: Mapping[str, Any]
    samples: int | None = None
    was_begun: bool = False

    @classmethod
    def open(cls, path: str, target: str, about: Mapping[str, Any], is_empty: bool) -> Record:
        """Begin a conversion to a target, of which nothing is there if it ``is_empty``, or go on with it.

        Raises:
            ConfigError: something else is there: files without a record, or those of a conversion from other files.
        """
        record, target, place = cls(path, about), shown(target), shown(path)
        if not is_empty and exists(path):
            try:
                with open_text(path) as file:
                    found = json.load(file)
                of, record.samples, record.was_begun = dict(found["about"]), found["samples"], True
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise ConfigError(f"{place}: no record of a conversion, or damaged: {error!r}; remove it and {target}") from error
            if of != about:
                changed = ", ".join(sorted(name for name in {**about, **of} if of.get(name) != about.get(name)))
                raise ConfigError(f"{target}: begun from something else ({changed} differ); remove it and {place}, or choose another DST")
            return record
        if not is_empty:
            raise ConfigError(f"{target}: there is something already, which no conversion has written; choose another DST")
        record._save()
        return record

    def finish(self, samples: int) -> None:
        """Say that all is there."""
        self.samples = samples
        self._save()

    def remove(self) -> None:
        """Leave nothing of a conversion that has written nothing."""
        remove(self.path)

    def _save(self) -> None:
        write_whole(self.path, json.dumps({"about": self.about, "samples": self.samples}).encode())
