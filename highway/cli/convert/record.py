"""What a conversion was begun from, and whether it is done: a file in the destination's folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from highway.datasets.writing import writing
from highway.errors import ConfigError


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
        record = cls(path, about)
        if os.path.exists(path) and not is_empty:
            with open(record.path, encoding="utf-8") as file:
                found = json.load(file)
            if found["about"] != about:
                changed = ", ".join(sorted(name for name in {**about, **found["about"]} if found["about"].get(name) != about.get(name)))
                raise ConfigError(f"{target}: begun from something else ({changed} differ); remove it and {path}, or choose another DST")
            record.samples, record.was_begun = found["samples"], True
            return record
        if not is_empty:
            raise ConfigError(f"{target}: there is something already, which no conversion has written; choose another DST")
        record._save()
        return record

    def finish_if(self, samples: int | None) -> None:
        """Say that all is there, if somebody has counted it."""
        if samples is not None:
            self.finish(samples)

    def finish(self, samples: int) -> None:
        """Say that all is there."""
        self.samples = samples
        self._save()

    def remove(self) -> None:
        """Leave nothing of a conversion that has written nothing."""
        os.unlink(self.path)

    def _save(self) -> None:
        with writing(self.path) as name, open(name, "w", encoding="utf-8") as file:
            json.dump({"about": self.about, "samples": self.samples}, file)
