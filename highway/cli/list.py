"""``highway list``: list the components and datasets, or describe a component or dataset."""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import highway
from highway import adapters
from highway.columns import terminal_width, wrapped
from highway.errors import ConfigError
from highway.parameters.docstrings import plain
from highway.topology.components import PACKAGES, Components, built_in, described


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to a parser."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="the component, dataset or public name of highway to describe")
    parser.add_argument("--plugin", action="append", default=[], metavar="MODULE", help="allow classes of this module")


def run(options: argparse.Namespace) -> int:
    """Print the list or the description, and return the exit code."""
    width = terminal_width()
    if options.name:
        names = {name.lower(): name for package in PACKAGES for name in built_in(package)}
        public = [] if options.name.lower() in names else [*_public(options.name, width)]
        print("\n\n".join(public) or Components(options.plugin).describe(names.get(options.name.lower(), options.name), width))
        return 0
    gap = max(len(name) for package in PACKAGES for name in built_in(package)) + 4
    for package in PACKAGES:
        print(f"{package}:")
        for name, cls in built_in(package).items():
            print(wrapped(f"{f'  {name}':<{gap}}{plain(inspect.getdoc(cls) or '').partition(chr(10))[0]}", width, " " * gap))
    print("`highway list NAME` shows the parameters of a component.")
    return 0


def _public(name: str, width: int) -> Iterator[str]:
    """Yield a description of each class or function of highway and its adapters with this name. The case of letters is ignored.

    Raises:
        ConfigError: only adapters have this name, and none of their frameworks is installed.
    """
    missing = None
    found = False
    for module, written in _modules_with(name):
        try:
            value = getattr(importlib.import_module(module), written)
        except ConfigError as error:
            missing = missing or error
            continue
        found = True
        text = described(written, value, width) if callable(value) else written
        yield "\n".join([f"from {module} import {written}", "", text, *_methods(value, width)])
    if missing and not found:
        raise missing


def _modules_with(name: str) -> Iterator[tuple[str, str]]:
    """Yield each module with this public name, and the exact name in the module. Adapters are searched as text, without an import."""
    for public in highway.__all__:
        if public.lower() == name.lower():
            yield "highway", public
    for file in sorted(Path(next(iter(adapters.__path__))).glob("**/*.py")):
        module = ".".join(("highway.adapters", *file.relative_to(next(iter(adapters.__path__))).with_suffix("").parts))
        is_public = file.parent.name == "adapters" or file.name == "__init__.py"
        pattern = rf"^(?:(?:def|class) |__all__ = \[.*\")({re.escape(name)})\b"
        if is_public and (found := re.search(pattern, file.read_text(), re.M | re.I)):
            yield module.removesuffix(".__init__"), found[1]


def _methods(found: Any, width: int) -> list[str]:
    """Return the public methods and properties of a class, as a heading and one line for each method or property."""
    own = vars(found) if inspect.isclass(found) else {}
    kinds = (property, classmethod, staticmethod)
    public = {name: value for name, value in own.items() if name[0] != "_" and (inspect.isfunction(value) or isinstance(value, kinds))}
    lines = [
        wrapped(f"    {name:<18} {plain(inspect.getdoc(value) or '').partition(chr(10))[0]}", width, " " * 23)
        for name, value in public.items()
    ]
    return ["", "Methods:", *lines] if lines else []
