"""The name under which this package is installed, and a check for another project with the same import name ``highway``.

This package is installed as the distribution ``highway-data``. The distribution ``highway`` belongs to another project, but has the same
import name. If both are installed, the second installation overwrites files of the first installation.
"""

from __future__ import annotations

import os
import sys
import warnings

NAME = "highway-data"
OTHER = "highway"
_FOLDER = os.path.dirname(__file__)
_WAY_OUT = f"Remove both, with `pip uninstall -y {OTHER} {NAME}`, and install only the distribution that you need."


def version_of(distribution: str) -> str:
    """Return the version of an installed distribution, or an empty text if it is not installed."""
    import importlib.metadata  # here, because this import takes a tenth of the time to import highway

    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def check() -> None:
    """Warn if the other project is installed in the same folder as this package.

    Raises:
        ImportError: the other project has replaced ``highway/__init__.py`` of this package, or uninstalling the other project has removed
            it.
    """
    package = sys.modules[__name__.partition(".")[0]]
    if getattr(package, "__file__", None) is None:
        raise ImportError(
            f"{_FOLDER}/__init__.py is missing: the other project called highway was uninstalled, which removed files of {NAME}. Install "
            f"{NAME} again, with `pip install --force-reinstall` instead of `pip install`."
        )
    if getattr(package, "__distribution__", None) != NAME:
        raise ImportError(f"{package.__file__} belongs to another project called highway, which was installed over {NAME}. {_WAY_OUT}")
    beside = os.path.dirname(_FOLDER)
    for entry in os.listdir(beside) if os.path.isdir(beside) else ():  # importlib.metadata would take a tenth of the time to import highway
        if entry.startswith(f"{OTHER}-") and entry.endswith(".dist-info"):
            version = entry.removeprefix(f"{OTHER}-").removesuffix(".dist-info")
            message = (
                f"the distribution {OTHER} {version} is installed in the same folder {_FOLDER} as {NAME}: they have overwritten each "
                "other's files. "
            )
            warnings.warn_explicit(message + _WAY_OUT, UserWarning, "highway", 0)  # the warning is not about a line of code
