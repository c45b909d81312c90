"""Raise errors for old names. The errors contain the new names, which :mod:`highway.old_names` lists.

:class:`Finder` raises the error for modules, and :func:`raise_missing` for classes. :func:`new_name` returns the new name of a parameter. A
few old parameters are still accepted. :func:`current` converts them.
"""

from __future__ import annotations

import difflib
import dis
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial, wraps
from types import FrameType
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

from highway.old_names import ACCEPTED, CLASSES, KEYWORDS, METHODS, MODULES

P = ParamSpec("P")
R = TypeVar("R")

_STAGES = {"albumentations": "Albumentations", "torchvision": "TorchvisionV2"}  # for each package, the stage that applies its transforms


def new_class(name: str) -> str:
    """Return ``; use `` and the replacement for an old class, or an empty text if the name is unknown."""
    return f"; use {CLASSES[name]}" if name in CLASSES else ""


def new_method(name: str) -> str:
    """Return ``; use `` and the replacement for a method of an old dataset, or an empty text if the name is unknown."""
    return f"; use {METHODS[name]}" if name in METHODS else ""


def stage_of(transform: object) -> str:
    """Return the stage that applies a transform of another package, or an empty text if there is none."""
    return _STAGES.get(type(transform).__module__.partition(".")[0], "")


def applied_by(transform: object) -> str:
    """Return ``; `` and how to apply a function or a transform of another package, or an empty text for any other object."""
    if inspect.isroutine(transform):
        return "; wrap a function: Lambda(function)"
    stage = stage_of(transform)
    return f"; use the stage {stage}([...])" if stage else ""


def new_name(component: str, keyword: str) -> str:
    """Return ``; `` and the replacement for an old parameter of a component, or an empty text if the name is unknown."""
    advice = KEYWORDS.get(f"{component}.{keyword}") or KEYWORDS.get(keyword)
    return f"; {advice.format(component=component)}" if advice else ""


def current(component: str, keyword: str, value: Any) -> tuple[str, Any]:
    """Return the current name of a parameter, and its value in the current form."""
    name, values = ACCEPTED.get(f"{component}.{keyword}", (keyword, {}))
    return name, values.get(value, value) if isinstance(value, str) else value


def accepted(component: str) -> dict[str, str]:
    """Return a dict from old parameters that a component still accepts to their current names."""
    return {key.partition(".")[2]: name for key, (name, _) in ACCEPTED.items() if key.startswith(f"{component}.")}


def with_old_names(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function. It then accepts its old parameters, or raises an error with the new names."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if (now := dict(current(function.__name__, key, value) for key, value in kwargs.items())).keys() != kwargs.keys():
                return function(*args, **now)
            for keyword in kwargs:
                if advice := new_name(function.__name__, keyword):
                    raise TypeError(f"unknown parameter {keyword!r} of {function.__name__}{advice}") from error
            raise

    return call


_STATE = "Traits(state=...) and items.waiting, as docs/howto/resume.md shows"
_HERE: Final[Mapping[str, str]] = {
    "highway.transforms.Identity": "an empty list, [], instead of a transform",
    **{f"highway.engine.resume.{name}": _STATE for name in ("keep", "saved", "Saved", "Keeper")},
}
"""Advice for names that exist only in other modules."""

_PUBLIC = ("highway", "highway.modules", "highway.transforms", "highway.datasets", "highway.functional")


def raise_missing(module: str, name: str) -> NoReturn:
    """Raise the error for a name that a module does not have.

    The error contains the new name of an old class, or another module that has the name. For an old class, the error is an ImportError,
    because ``from module import name`` discards the text of an AttributeError.
    """
    if here := _HERE.get(f"{module}.{name}"):
        raise ImportError(f"there is no {name} in {module}; use {here}")
    if name in CLASSES:
        raise ImportError(f"there is no {name} in {module}{new_class(name)}")
    if _is_import_statement():
        homes = {one: vars(importlib.import_module(one)).get("__all__", ()) for one in {*_PUBLIC, module}}
        if home := next((one for one in _PUBLIC if name in homes[one]), ""):
            raise ImportError(f"there is no {name} in {module}; write: from {home} import {name}")
        names = {one.lower(): one for one in homes[module]}
        if near := difflib.get_close_matches(name.lower(), names, 1, 0.8):
            raise ImportError(f"there is no {name} in {module}; did you mean {names[near[0]]}?")
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def _is_import_statement() -> bool:
    """Return whether an import statement (``from module import name``) requested the name, and not ``getattr`` or ``hasattr``."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name in ("raise_missing", "__getattr__", "find"):
        frame = frame.f_back
    return frame is not None and dis.opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_FROM"


def explain_missing(module: str) -> None:
    """Make a module call :func:`raise_missing`. A ``__getattr__`` in its source would hide misspelt names from type checkers."""
    vars(sys.modules[module])["__getattr__"] = partial(raise_missing, module)


class Finder:
    """The last entry of ``sys.meta_path``. It finds no module. For an old module, it raises an error with the replacements."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name in MODULES:
            raise ImportError(f"there is no module {name} any more; use {MODULES[name]}")
