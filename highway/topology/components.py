"""Find components and datasets by name: highway's own, and those in modules that the caller allows."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import traceback
import types
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from typing import Any

from highway.columns import WIDTH, wrapped
from highway.data import SCHEME
from highway.datasets.dataset import Dataset
from highway.parameters import docstrings
from highway.parameters.hints import describe_parameter, readable_parameters
from highway.parameters.location import Location, did_you_mean
from highway.renamed import new_class

PACKAGES = ("highway.modules", "highway.transforms", "highway.datasets")  # topology files can name the public classes of these packages
PLUGIN_GROUP = "highway.plugins"  # group of entry points; topology files can name the classes in their modules
PATH = rf"^{SCHEME}|[/.*?{{]"  # regular expression that matches paths and URLs, but not the names of datasets
_IN_MODULE = re.compile(rf"(?!{SCHEME})[\w.]+:\w+")  # ``package.module:Name``, but not URLs


@dataclass(frozen=True)
class NotImported:
    """Placeholder for a component whose module was not imported. If a parameter is a placeholder, so is its component.

    Args:
        name: The name of the component.
        found: For each component that was not imported, ``package.module:Name`` and the location.
    """

    name: str
    found: tuple[tuple[str, Location], ...]


@cache
def built_in(package: str) -> dict[str, type]:
    """Return highway's own components in one of the :data:`PACKAGES`, by name."""
    names = sorted(importlib.import_module(package).__all__)
    return {name: cls for name in names if (cls := built_in_class(package, name))}


def built_in_class(package: str, name: str) -> type | None:
    """Return highway's own component with this name, or ``None``. Only the module of this component is imported."""
    module = importlib.import_module(package)
    found = getattr(module, name) if name in module.__all__ else None
    return found if _is_component(found) else None


@dataclass(frozen=True)
class Components:
    """Finds components by name.

    Args:
        plugins: Allowed modules: files can name their classes and functions as ``package.module:Class``. Submodules are included.
        look_only: ``False``: modules in the entry points ``highway.plugins`` of installed packages are also allowed, and a component in
            any other module is an error. ``True``: only ``plugins`` are imported, and a component in any other module becomes
            :class:`NotImported`."""

    plugins: Collection[str] = ()
    look_only: bool = False

    def import_plugins(self) -> None:
        """Import the allowed modules.

        Raises:
            ConfigError: a module cannot be imported.
        """
        for module in self.plugins:
            _import(module, Location())

    def names(self, hint: type = object) -> list[str]:
        """Return the names of highway's own components that are subclasses of ``hint``."""
        return [name for package in PACKAGES for name, cls in built_in(package).items() if _is_subclass(cls, hint)]

    def find(self, name: str, location: Location, hint: type = object) -> Callable[..., Any] | NotImported:
        """Return the class or function called ``name``. Error messages list the subclasses of ``hint``.

        Raises:
            ConfigError: the component does not exist, or its module is not allowed.
        """
        if _IN_MODULE.fullmatch(name):
            return self._find_in_plugin(name, location)
        for package in PACKAGES:
            if found := built_in_class(package, name):
                return found
        advice = new_class(name) or did_you_mean(name, self.names(hint)) or "; `highway list` shows all"
        if hint is Dataset and not (advice.endswith("?") or new_class(name)):
            advice += f"; if it is a path, write it with a slash: ./{name}"
        elif re.fullmatch(r"\w+(\.\w+)+", name):
            advice = "; to name your own class, write package.module:Class"
        raise location.error(f"unknown {'dataset' if hint is Dataset else 'component'} {name!r}{advice}")

    def describe(self, name: str, width: int = WIDTH) -> str:
        """Return the signature and the docstring of a component, with all parameters, in lines of at most ``width`` characters.

        Raises:
            ConfigError: no component has this name.
        """
        found = self.find(name, Location())
        assert not isinstance(found, NotImported), "to describe a component is to import its module"
        return described(name, found, width)

    def _find_in_plugin(self, name: str, location: Location) -> Callable[..., Any] | NotImported:
        module, _, attribute = name.partition(":")
        if not _is_in(module, self.plugins) and (self.look_only or not _is_in(module, _installed())):
            if self.look_only:
                return NotImported(attribute, ((name, location),))
            raise location.error(
                f"{name} is in a module that is not allowed here; allow the module with `--plugin {module}`, in code with "
                f"plugins=[{module!r}], or by an entry point {PLUGIN_GROUP!r} of its package"
            )
        found: Callable[..., Any] | None = getattr(_import(module, location), attribute, None)
        if not callable(found):
            public = [key for key, value in vars(sys.modules[module]).items() if callable(value) and not key.startswith("_")]
            raise location.error(f"{module} has no class or function {attribute!r}{did_you_mean(attribute, public)}")
        return found


def is_path(text: str) -> bool:
    """Return whether a text for a dataset is a path or URL. Any other text is the name of a component."""
    return re.search(PATH, text) is not None and not _IN_MODULE.fullmatch(text)


def described(name: str, found: Callable[..., Any], width: int = WIDTH) -> str:
    """Return the signature and the docstring of a class or function, in lines of at most ``width`` characters."""
    parts = [describe_parameter(parameter) for parameter in readable_parameters(found).values()]
    line = f"{name}({', '.join(parts)})"
    if len(line) > min(width, 100):  # longer lines are hard to read
        line = "\n".join([f"{name}(", *(wrapped(f"    {part},", width, " " * 8) for part in parts), ")"])
    return f"{line}\n\n{docstrings.filled(docstrings.describe(found), width)}".rstrip()


def _is_in(module: str, packages: Collection[str]) -> bool:
    """Return whether a module is in ``packages``, or is a submodule of a package in ``packages``."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _installed() -> list[str]:
    import importlib.metadata  # imported here, because the import takes 15 ms and is rarely needed

    return [entry.module for entry in importlib.metadata.entry_points(group=PLUGIN_GROUP)]


def _is_component(value: object) -> bool:
    if not inspect.isclass(value) or inspect.isabstract(value) or getattr(value, "_is_protocol", False):
        return False
    return not issubclass(value, BaseException)


def _is_subclass(cls: type, hint: type) -> bool:
    """Like ``issubclass``, but also supports protocols with attributes."""
    if hint is Dataset or not getattr(hint, "_is_protocol", False):
        return issubclass(cls, hint)
    members = {name for name in (*vars(hint), *inspect.get_annotations(hint)) if not name.startswith("_")}
    return members <= {name for base in cls.__mro__ for name in (*vars(base), *inspect.get_annotations(base))}


def _import(module: str, location: Location) -> types.ModuleType:
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = "" if last.filename.startswith("<") else f" ({last.filename}:{last.lineno})"  # "<": Python's own code raised the error
        raise location.error(f"the plug-in {module} cannot be imported: {type(error).__name__}: {error}{where}") from error
