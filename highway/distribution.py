"""What this package is called on the package index, and whether the other project called ``highway`` lies in the same folder.

The distribution is ``highway-data``. A distribution ``highway`` exists too; it installs another package under the name that this one is
imported by, so that whichever is installed later overwrites files of the first.
"""

from __future__ import annotations

import os
import sys
import warnings

NAME = "highway-data"
OTHER = "highway"
_FOLDER = os.path.dirname(__file__)
_WAY_OUT = f"Remove both, with `pip uninstall -y {OTHER} {NAME}`, and install the one that you want."


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
