"""Rooms whose names are imported when they are first asked for, so that a process imports only the components that it runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from highway.renamed import raise_missing


def import_when_asked(package: str, modules: Mapping[str, str]) -> None:
    """Have the names of a package imported when they are first asked for; others :func:`highway.renamed.raise_missing`.

    Said in the package itself, ``__getattr__`` would hide misspelt names from type checkers.

    Args:
        package: Its ``__name__``. It has the same imports ``if TYPE_CHECKING``, and the names in ``__all__``.
        modules: The names, one behind the other, in each of its modules.
    """
    here = vars(sys.modules[package])
    homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in homes:
            raise_missing(package, name)
        here[name] = found = getattr(import_module(homes[name]), name)
        return found

    here["__getattr__"] = find
    here["__dir__"] = lambda: sorted({*here, *homes})
