"""What this package is called on the package index, and whether the other project called ``highway`` lies in the same folder.

The distribution is ``highway-data``. A distribution ``highway`` exists too; it installs another package under the name that this one is
imported by, so that whichever is installed later overwrites files of the first.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

NAME = "highway-data"
OTHER = "highway"
_FOLDER = os.path.dirname(__file__)
_WAY_OUT = f"Remove both, with `pip uninstall -y {OTHER} {NAME}`, and install the one that you want."


def pip_install(extra: str) -> str:
    """Return the command that installs the packages of an extra, from where this highway was installed."""
    import shlex

    checkout = os.path.dirname(_FOLDER)
    if os.path.isfile(os.path.join(checkout, "pyproject.toml")):  # imported from there, as after `pip install -e`
        return f"pip install -e {shlex.quote(f'{checkout}[{extra}]')}"
    return f"pip install {shlex.quote(_requirement(extra))}"


def _requirement(extra: str) -> str:
    """Return what to call this distribution with an extra: by its name where an index had it, else by where it came from (PEP 610)."""
    import importlib.metadata
    import json
    import urllib.parse
    import urllib.request

    try:
        found = importlib.metadata.distribution(NAME).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        found = None
    origin: dict[str, Any] = json.loads(found) if found else {}
    url, vcs = origin.get("url", ""), origin.get("vcs_info", {})
    if url.startswith("file://") and "dir_info" in origin:
        return f"{urllib.request.url2pathname(urllib.parse.urlsplit(url).path)}[{extra}]"
    if vcs:
        return f"{NAME}[{extra}] @ {vcs['vcs']}+{url}@{vcs['commit_id']}"
    return f"{NAME}[{extra}] @ {url}" if url else f"{NAME}[{extra}]"


def import_extra(module: str, extra: str, what: str) -> Any:
    """Return a module that comes with an extra.

    Raises:
        ConfigError: it is not installed; says ``what`` needs it, and the command.
    """
    import importlib  # here and below, since every process imports this module first

    from highway.errors import ConfigError

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"{what} needs the package {module.partition('.')[0]}: {pip_install(extra)}") from error


def version_of(distribution: str) -> str:
    """Return the version of an installed distribution; empty if there is none of this name."""
    import importlib.metadata  # here, since it takes a tenth of the whole import of the package

    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def check() -> None:
    """Warn if the other project is installed beside this one.

    Raises:
        ImportError: it has taken the place of this one's ``highway/__init__.py``.
    """
    package = sys.modules[__name__.partition(".")[0]]
    if getattr(package, "__distribution__", None) != NAME:
        raise ImportError(f"{package.__file__} belongs to another project called highway, which was installed over {NAME}. {_WAY_OUT}")
    beside = os.path.dirname(_FOLDER)
    for entry in os.listdir(beside) if os.path.isdir(beside) else ():  # importlib.metadata would take a tenth of the whole import
        if entry.startswith(f"{OTHER}-") and entry.endswith(".dist-info"):
            version = entry.removeprefix(f"{OTHER}-").removesuffix(".dist-info")
            message = f"the distribution {OTHER} {version} is installed in the same folder {_FOLDER} as {NAME}: they overwrite each other. "
            warnings.warn_explicit(message + _WAY_OUT, UserWarning, "highway", 0)  # no line of code: it is about none
