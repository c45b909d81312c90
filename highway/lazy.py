"""Import the names of a package on first use. A process then imports only the components that it uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lazy_loader

from highway.renamed import raise_missing


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for a package, with the names in its stub file.

    Args:
        package: The ``__name__`` of the package.
        file: The ``__file__`` of the package. The stub file, which type checkers also read, is ``__init__.pyi`` in the same folder.
    """
    found, listed, names = lazy_loader.attach_stub(package, file)

    def find(name: str) -> Any:
        return found(name) if name in names else raise_missing(package, name)

    return find, listed, names
