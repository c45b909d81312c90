"""Import the packages of the extras (optional dependencies) of highway. If they are missing, show the command that installs them."""

from __future__ import annotations

import importlib
import json
import os
import shlex
from typing import Any

from highway.distribution import NAME
from highway.errors import ConfigError


def pip_install(extra: str) -> str:
    """Return the command that installs the packages of an extra. It uses the same source from which highway was installed."""
    checkout = os.path.dirname(os.path.dirname(__file__))
    if os.path.isfile(os.path.join(checkout, "pyproject.toml")):  # highway is imported from a checkout, as after `pip install -e`
        return f"pip install -e {shlex.quote(f'{checkout}[{extra}]')}"
    return f"pip install {shlex.join(_requirements(extra))}"


def _requirements(extra: str) -> list[str]:
    """Return the arguments for ``pip install``: the name of the distribution, or its source (PEP 610) if it is not from an index.

    If the source does not exist any more, return the packages of the extra.
    """
    import importlib.metadata  # here, because it is only needed for errors
    import urllib.parse
    import urllib.request

    try:
        distribution = importlib.metadata.distribution(NAME)
    except importlib.metadata.PackageNotFoundError:
        return [f"{NAME}[{extra}]"]
    origin: dict[str, Any] = json.loads(distribution.read_text("direct_url.json") or "{}")
    url, vcs = origin.get("url", ""), origin.get("vcs_info", {})
    path = urllib.request.url2pathname(urllib.parse.urlsplit(url).path) if url.startswith("file://") else ""
    if path and not os.path.exists(path):
        needed = (one.split("extra ==") for one in distribution.requires or () if "extra ==" in one)
        return [condition[0].partition(";")[0].strip() for condition in needed if condition[1].strip(" '\")") in extra.split(",")]
    if path and "dir_info" in origin:
        return [f"{path}[{extra}]"]
    if vcs:
        return [f"{NAME}[{extra}] @ {vcs['vcs']}+{url}@{vcs['commit_id']}"]
    return [f"{NAME}[{extra}] @ {url}" if url else f"{NAME}[{extra}]"]


def import_extra(module: str, extra: str, what: str) -> Any:
    """Import and return a module of an extra.

    Raises:
        ConfigError: the module is not installed. The message contains the installation command and ``what``, the component that needs the
            module.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"{what} needs the package {module.partition('.')[0]}: {pip_install(extra)}") from error
