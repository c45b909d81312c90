"""The record of a conversion: a file in the destination's folder with the source and the state of the conversion."""

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
    """One conversion: its file, its source and settings, the number of samples when it is done, and whether it was begun before."""

    path: str
    about: Mapping[str, Any]
    samples: int | None = None
    was_begun: bool = False

    @classmethod
    def open(cls, path: str, target: str, about: Mapping[str, Any], is_empty: bool) -> Record:
        """Begin a conversion to a target, or continue it. ``is_empty`` tells whether the target has no files.

        Raises:
            ConfigError: the target has other files: without a record, or of a conversion from another source.
        """
        record, target, place = cls(path, about), shown(target), shown(path)
        if not is_empty and exists(path):
            try:
                with open_text(path) as file:
                    found = json.load(file)
                of, record.samples, record.was_begun = dict(found["about"]), found["samples"], True
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise ConfigError(
                    f"{place}: the record of the conversion is missing or damaged: {error!r}; remove it and {target}"
                ) from error
            if of != about:
                changed = ", ".join(sorted(name for name in {**about, **of} if of.get(name) != about.get(name)))
                raise ConfigError(
                    f"{target}: an earlier conversion had other inputs ({changed} differ); remove it and {place}, or choose another DST"
                )
            return record
        if not is_empty:
            raise ConfigError(f"{target}: it exists already, and no conversion has written it; choose another DST")
        record._save()
        return record

    def finish(self, samples: int) -> None:
        """Record that the conversion is complete."""
        self.samples = samples
        self._save()

    def remove(self) -> None:
        """Remove the record of a conversion that has written nothing."""
        remove(self.path)

    def _save(self) -> None:
        write_whole(self.path, json.dumps({"about": self.about, "samples": self.samples}).encode())
