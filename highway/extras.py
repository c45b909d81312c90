"""The packages of extras: their import, and the command that installs them."""

from __future__ import annotations

import importlib
import json
import os
import shlex
from typing import Any

from highway.distribution import NAME
from highway.errors import ConfigError


def pip_install(extra: str) -> str:
    """Return the command that installs the packages of an extra, from the source of this installation."""
    checkout = os.path.dirname(os.path.dirname(__file__))
    if os.path.isfile(os.path.join(checkout, "pyproject.toml")):  # imported from there, as after `pip install -e`
        return f"pip install -e {shlex.quote(f'{checkout}[{extra}]')}"
    return f"pip install {shlex.quote(_requirement(extra))}"


def _requirement(extra: str) -> str:
    """Return the requirement for this distribution with an extra: its name if it came from an index, else its source (PEP 610)."""
    import importlib.metadata  # here, because it is needed only for errors
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
    """Return a module of an extra.

    Raises:
        ConfigError: it is not installed; the message names ``what`` needs it, and the command.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"{what} needs the package {module.partition('.')[0]}: {pip_install(extra)}") from error
