"""Check the arguments of a component, in Python and in YAML, against the type hints of its constructor.

The decorator :func:`checked` makes the constructor of a class check its arguments. An argument that is a component is an object in Python,
and a name in YAML.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from highway.errors import ConfigError, ParameterError
from highway.parameters.convert import argument
from highway.parameters.hints import NAMED, Parameters, describe, describe_parameter, in_words, one_of, parameters_of, why_not
from highway.parameters.location import Location, did_you_mean
from highway.parameters.ranges import UNIONS
from highway.redacted import without_secrets
from highway.renamed import current, new_name

_T = TypeVar("_T")
_P = ParamSpec("_P")


def checked(cls: type[_T]) -> type[_T]:
    """Decorate a class. Its constructor then first checks the names, types and ranges of its arguments.

    The ``repr()`` of its objects hides passwords and queries in URLs.

    Arguments are converted to the types of their hints: NumPy scalars to Python numbers, paths to texts, lists to tuples, and integers to
    floats.

    Raises (by the constructor):
        ParameterError: an argument is wrong. The message names the class, the parameter, the value and the expected value.
    """
    construct = cls.__init__

    @functools.wraps(construct)
    def __init__(self: _T, *args: Any, **kwargs: Any) -> None:
        parameters = parameters_of(cls)  # type: ignore[arg-type]  # mypy considers a class not hashable
        construct(self, **_arguments(type(self).__name__, parameters, args, kwargs))

    setattr(cls, "__init__", __init__)  # noqa: B010  # mypy forbids the assignment
    if "__repr__" in vars(cls):
        shown = cls.__repr__
        setattr(cls, "__repr__", functools.wraps(shown)(lambda self: without_secrets(shown(self))))  # noqa: B010
    return cls


def known_only(construct: Callable[_P, None]) -> Callable[_P, None]:
    """Decorate a constructor. It then raises an error for unknown parameters, and suggests the right names. Values are not checked."""
    parameters = inspect.signature(construct).parameters
    owner = construct.__qualname__.partition(".")[0]

    @functools.wraps(construct)
    def __init__(*args: _P.args, **kwargs: _P.kwargs) -> None:
        if strange := kwargs.keys() - parameters:
            known = [name for name in parameters if name != "self"]
            raise ParameterError("\n".join(unknown(owner, key, known) for key in sorted(strange)))
        construct(*args, **kwargs)

    return __init__


def _arguments(name: str, parameters: Parameters, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    if len(args) > len(parameters):
        raise ParameterError(f"{name} accepts at most {len(parameters)} parameters, but got {len(args)}: {', '.join(map(_short, args))}")
    given = dict(zip(parameters, args, strict=False))
    if strange := [key for key in kwargs if current(name, key, None)[0] not in parameters]:
        raise ParameterError("\n".join(unknown(name, key, parameters) for key in strange))
    for old, value in kwargs.items():
        key, value = current(name, old, value)
        if key in given:
            raise ParameterError(f"{name}: {key} was passed twice, as {_short(given[key])} by position and as {_short(value)} by name")
        given[key] = value
    if missing := needed(given, parameters):
        raise ParameterError(f"{name} needs {missing}")
    return {key: argument(value, parameters[key], Location((name, key)), _IN_PYTHON) for key, value in given.items()}


def unknown(component: str, key: str, known: Iterable[str]) -> str:
    """Return the error message for an unknown parameter of a component. It contains the new name of the parameter, or the known names."""
    return f"unknown parameter {key!r} of {component}{new_name(component, key) or did_you_mean(key, known)}"


def needed(given: Container[str], parameters: Parameters) -> str:
    """Return a text with the required parameters that are missing, such as ``batch_size: int``, or an empty text."""
    missing = [one for name, one in parameters.items() if name not in given and one.default is one.empty and one.kind in NAMED]
    return " and ".join(map(describe_parameter, missing))


class _InPython:
    names_unions = True

    def component(self, value: Any, hint: Any, location: Location) -> Any:
        if Callable in (typing.get_origin(hint), hint):
            fits = callable(value)
        else:
            fits = isinstance(value, hint) and (not inspect.isclass(value) or isinstance(object(), hint))
            fits = fits and not hasattr(value, f"why_no_{getattr(hint, '__name__', '')}")
        if not fits:
            raise self.misfit(value, "`object`", location, hint)
        return value

    def misfit(self, value: Any, expected: str, location: Location, hint: Any = None, choices: Sequence[Any] = ()) -> ConfigError:
        name, parameter, *rest = location.path
        where = f"{parameter}{''.join(f'[{key!r}]' for key in rest)}={_short(value)}"
        if choices:
            expected = describe(hint) if typing.get_origin(hint) in UNIONS else one_of(choices)
        elif hint is not None and any(word in expected for word in ("array", "object")):
            expected = describe(hint)
        advice = f"; {value.__name__} is a class; pass an instance: {value.__name__}(...)" if inspect.isclass(value) else ""
        return ParameterError(f"{name}: {where}; expected {in_words(expected, _WORDS)}{advice or why_not(value, hint)}")


_IN_PYTHON = _InPython()
_WORDS = {"array": "list", "object": "dict", "null": "None"}


def require(ok: bool, owner: object, parameter: str, expected: str) -> None:
    """If ``ok`` is false, raise a ParameterError with a parameter and its value. Used for conditions on several parameters."""
    if not ok:
        raise ParameterError(f"{type(owner).__name__}: {parameter}={_short(getattr(owner, parameter))}; expected {expected}")


def _short(value: object) -> str:
    shown = without_secrets(repr(value))
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
