"""The client of each bucket and address, kept for the life of the process, and created again in a forked child."""

from __future__ import annotations

import os

from highway.errors import ConfigError
from highway.extras import pip_install
from highway.parameters.location import did_you_mean
from highway.stores.clients import Client
from highway.stores.loop import keep_from_parent
from highway.stores.schemes import OBSTORE
from highway.stores.url import StoreURL


def _obstore(url: StoreURL) -> Client:
    try:
        import obstore  # noqa: F401
    except ModuleNotFoundError:
        raise ConfigError(f"'{url}': {url.scheme}:// needs the package obstore: {pip_install('stores')}") from None
    from highway.stores.obstore_client import ObstoreClient

    return ObstoreClient(url)


def _fsspec(url: StoreURL) -> Client:
    try:
        from fsspec.registry import known_implementations, registry
    except ModuleNotFoundError:
        raise ConfigError(f"'{url}': {url.scheme}:// needs the package fsspec: {pip_install('stores')}") from None
    known = {*known_implementations, *registry} - {"file", "local"}
    if url.scheme not in known:
        hint = did_you_mean(url.scheme, {*OBSTORE, *known})
        expected = hint if hint.startswith("; did") else f"; expected {', '.join(OBSTORE)}, or what fsspec knows, such as hf or ftp"
        raise ConfigError(f"'{url}': unknown scheme '{url.scheme}'{expected}")
    from highway.stores.fsspec_client import FsspecClient

    return FsspecClient(url)


_clients: dict[tuple[str, ...], Client] = {}


def client_of(url: StoreURL) -> Client:
    """Return the client of a URL's bucket.

    Raises:
        ConfigError: the scheme is unknown, a package is not installed, or the client cannot be configured.
    """
    key = url.root, *url.store.address
    return _clients.get(key) or _clients.setdefault(key, (_obstore if url.scheme in OBSTORE else _fsspec)(url))  # atomic


def _forked() -> None:
    if _clients:
        keep_from_parent(_clients.copy())
        _clients.clear()


os.register_at_fork(after_in_child=_forked)
