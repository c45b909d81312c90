"""Import pyarrow when it is first used. If pyarrow is not installed, raise an error that explains how to install it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from highway.errors import ConfigError
from highway.extras import pip_install


class _Library:
    """A module that is imported when an attribute is first read."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        try:
            found = getattr(importlib.import_module(self._module), name)
        except ImportError as error:
            raise ConfigError(f"Parquet and Arrow files need pyarrow: {pip_install('arrow')}") from error
        setattr(self, name, found)  # the next access does not call __getattr__
        return found


if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import ipc
    from pyarrow import parquet as pq
else:
    pa, ipc, pq = map(_Library, ("pyarrow", "pyarrow.ipc", "pyarrow.parquet"))

__all__ = ["ipc", "pa", "pq", "unreadable"]


def unreadable() -> tuple[type[BaseException], ...]:
    """Return the errors that pyarrow raises for an invalid file."""
    return pa.ArrowException, OSError, EOFError, UnicodeDecodeError
