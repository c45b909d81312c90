"""What a function does, as far as that can be seen: its code, and what the code refers to.

Seen is the bytecode with its constants and names, that of functions inside it, defaults, what it closes over, and what it takes from its
module: values, modules by their versions, and functions and classes of the user's own, which are looked into in turn. What a package has
that is installed is known by the package's name and version, and so is code in C. Not seen is what is reached through attributes of other
objects, data files, and the environment. Another version of Python has other bytecode.
"""

from __future__ import annotations

import builtins
import sys
import sysconfig
import types
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from highway.distribution import version_of

_INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def is_users(value: Any) -> bool:
    """Say whether a function or class is of the user's own: neither highway's, nor of an installed package, nor in C."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    if module is None or module.__name__.partition(".")[0] in ("highway", "builtins"):
        return False
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ == "__main__"
    return not str(Path(file).resolve()).startswith(_INSTALLED)


def name_and_version(value: Any) -> str:
    """Return what a function, class or module that is not looked into is known by."""
    module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None) or ""
    package = module.partition(".")[0]
    name = getattr(value, "__qualname__", "")
    return f"{module}.{name} {_version(package)}"


@cache
def _version(package: str) -> str:
    found = getattr(sys.modules.get(package), "__version__", None)
    if isinstance(found, str):
        return found
    return version_of(package) if package else ""


def code_texts(code: types.CodeType) -> Iterator[str]:
    """Yield texts that change when code does."""
    yield f"{code.co_argcount} {code.co_kwonlyargcount} {code.co_flags} {code.co_names} {code.co_varnames} {code.co_code.hex()}"
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_texts(constant)
        elif isinstance(constant, frozenset):
            yield repr(sorted(map(repr, constant)))
        else:
            yield repr(constant)


def referred(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield what a function refers to, by name: defaults, what it closes over, and what it takes from its module."""
    yield "defaults", function.__defaults__
    yield "keyword defaults", function.__kwdefaults__
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            yield name, None
    for name in sorted(_names(function.__code__)):
        if name in function.__globals__ and not hasattr(builtins, name):
            yield name, function.__globals__[name]


def methods(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield what a class of the user's own and its bases define, by name."""
    for base in cls.__mro__:
        if is_users(base):
            for name, value in vars(base).items():
                if isinstance(value, property):
                    yield from ((f"{name}.{part}", getattr(value, part)) for part in ("fget", "fset") if getattr(value, part))
                elif isinstance(value, (staticmethod, classmethod)):
                    yield name, value.__func__
                elif isinstance(value, types.FunctionType):
                    yield name, value


def _names(code: types.CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))
