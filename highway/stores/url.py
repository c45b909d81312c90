"""URLs of objects: ``scheme://bucket/key[?option=value&...]``."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

from highway.errors import ConfigError
from highway.parameters.location import did_you_mean
from highway.redacted import without_secrets
from highway.stores.schemes import Store, store_of

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_PORT = re.compile(r"(?:^|@)[^@\[\]]*?:([^@\]]*)$")


@dataclass(frozen=True)
class StoreOptions:
    """What the query of a URL can set.

    Args:
        cache_dir: A folder on a local disk in which what was read is kept; empty: nothing is. The default is ``HIGHWAY_CACHE_DIR`` in the
            environment, since where there is room is a matter of the machine.
        cache_gb: Gigabytes that the cache may have; what was used longest ago goes first. The default is ``HIGHWAY_CACHE_GB``, else 10.
        listing: Where the listing of a folder is kept: a name in the folder itself, or a path or URL; empty: nowhere.
        listing_hours: Hours after which a kept listing is made anew; 0 makes it anew now.
        requests: Requests to a bucket that may be in flight.
        attempts: How often a request is made before its failure is an error.
        timeout: Seconds that a request may take.
        hedge: A request that has no answer after so many times the usual time is made a second time, and the first answer counts; 0: never.
    """

    cache_dir: str = ""
    cache_gb: float = 10.0
    listing: str = ""
    listing_hours: float = 24.0
    requests: int = 64
    attempts: int = 8
    timeout: float = 60.0
    hedge: float = 5.0


def _number(text: str, least: float) -> float:
    value = float(text)
    if not least <= value < 1e9:
        raise ValueError(text)
    return value


_READ: Mapping[str, tuple[Callable[[str], object], str]] = {
    "cache_dir": (os.path.expanduser, "a folder"),
    "cache_gb": (lambda text: _number(text, 0.001), "a number of gigabytes, at least 0.001"),
    "listing": (str, "a name, path or URL"),
    "listing_hours": (lambda text: _number(text, 0), "a number of hours, at least 0"),
    "requests": (lambda text: int(_number(text, 1)), "a whole number, at least 1"),
    "attempts": (lambda text: int(_number(text, 1)), "a whole number, at least 1"),
    "timeout": (lambda text: _number(text, 0.001), "a number of seconds, above 0"),
    "hedge": (lambda text: _number(text, 0), "a number, at least 0"),
}
"""What makes the value of an option of a text, and what is expected."""

_ENVIRONMENT = {"cache_dir": "HIGHWAY_CACHE_DIR", "cache_gb": "HIGHWAY_CACHE_GB"}


@dataclass(frozen=True, repr=False)
class StoreURL:
    """What a URL says.

    Args:
        scheme: ``s3``, say.
        host: The bucket, container or host, with user, password and port if there are some.
        key: The object's key, or the beginning of keys, without slashes at its ends.
        query: Of http: what goes to the server.
        options: All else of the query.
    """

    scheme: str
    host: str
    key: str
    query: str
    options: StoreOptions

    @property
    def store(self) -> Store:
        """The kind of store."""
        return store_of(self.scheme)

    @property
    def root(self) -> str:
        """What has a client of its own: the bucket."""
        return f"{self.scheme}://{self.host}{self.query and '/?'}{self.query}"

    @property
    def bucket(self) -> str:
        """The bucket's URL, to be shown."""
        return without_secrets(f"{self.scheme}://{self.host}")

    def __str__(self) -> str:
        """What messages call it: without user, password and query."""
        return without_secrets(f"{self.scheme}://{self.host}/{self._quoted}")

    def __repr__(self) -> str:
        return f"StoreURL({str(self)!r})"

    def __truediv__(self, name: str) -> StoreURL:
        """Return the URL of what lies below, by its key without this one's."""
        return self.at(f"{self.key}/{name}" if self.key else name)

    def at(self, key: str) -> StoreURL:
        """Return the URL of another key of the bucket."""
        return dataclasses.replace(self, key=key)

    @property
    def full(self) -> str:
        """The whole URL, as it is given to other libraries; never to be shown."""
        return f"{self.scheme}://{self.host}/{self._quoted}{self.query and '?'}{self.query}"

    @property
    def with_options(self) -> str:
        """The whole URL with the options that are not as they would be without."""
        given = dataclasses.asdict(self.options)
        others = dataclasses.asdict(_options("", {}))
        own = [f"{name}={quote(str(value))}" for name, value in given.items() if value != others[name]]
        query = "&".join(filter(None, [self.query, *own]))
        return f"{self.scheme}://{self.host}/{self._quoted}{query and '?'}{query}"

    @property
    def _quoted(self) -> str:
        return quote(self.key) if self.store.is_http else self.key


def is_url(path: str) -> bool:
    """Say whether a path is the URL of something in a store; ``file://`` is none."""
    return "://" in path and (match := _SCHEME.match(path)) is not None and match[1].lower() != "file"


def without_options(path: str) -> str:
    """Return a path as it is, or a URL without its query: what ends in the object's extension."""
    return path.partition("?")[0] if is_url(path) else path


def join(folder: str, name: str) -> str:
    """Return the path or URL of what lies in a folder; a URL keeps its query."""
    if not is_url(folder):
        return os.path.join(folder, name)
    path, mark, query = folder.partition("?")
    return f"{path.rstrip('/')}/{quote(name) if store_of(path.partition('://')[0].lower()).is_http else name}{mark}{query}"


def parent(path: str) -> str:
    """Return the path or URL of the folder that something lies in; a URL keeps its query."""
    if not is_url(path):
        return os.path.dirname(os.path.abspath(path))
    name, mark, query = path.partition("?")
    return f"{name.rstrip('/').rpartition('/')[0]}{mark}{query}"


def basename(path: str) -> str:
    """Return the last part of a path, or of a URL without its query."""
    return os.path.basename(without_options(path).rstrip("/"))


def beside(path: str, suffix: str) -> str:
    """Return the path or URL of what lies beside a file, under its name with a suffix; a URL keeps its query."""
    if not is_url(path):
        return path + suffix
    name, mark, query = path.partition("?")
    return f"{name}{suffix}{mark}{query}"


def shown(path: str) -> str:
    """Return what messages call a path or URL: without passwords, tokens and options."""
    return without_secrets(path) if is_url(path) or "@" in path else path


def parse(url: str) -> StoreURL:
    """Return what a URL says.

    Raises:
        ConfigError: it names no bucket, or an option that there is not, or a value that this does not take.
    """
    head, _, query = url.partition("?")
    scheme, _, rest = head.partition("://")
    scheme = scheme.lower()
    host, _, key = rest.partition("/")
    if "::" in head:
        raise ConfigError(f"'{without_secrets(url)}': chains of URLs, as fsspec has them with '::', are not read; name the file itself")
    store = store_of(scheme)
    if store.first and not host:
        raise ConfigError(f"'{without_secrets(url)}': no {store.first} behind '://'")
    if store.first and (strange := _PORT.search(host)) and not strange[1].isdecimal():
        raise ConfigError(
            f"'{scheme}://...': expected a number behind ':' as the port of the host; in a password write / as %2F, ? as %3F, # as %23, "
            ": as %3A and @ as %40"
        )
    own: list[tuple[str, str]] = []
    others: list[str] = []
    for pair in filter(None, query.split("&")):
        name, _, value = pair.partition("=")
        if name in _READ:
            own.append((name, unquote(value)))
        elif store.is_http:
            others.append(pair)
        else:
            raise ConfigError(f"'{without_secrets(url)}': unknown option '{name}'{did_you_mean(name, _READ)}")
    key = (unquote(key) if store.is_http else key).strip("/")
    return StoreURL(scheme, host, key, "&".join(others), _options(f"'{without_secrets(url)}'", dict(own)))


def _options(where: str, given: Mapping[str, str]) -> StoreOptions:
    in_environment = {name: os.environ[variable] for name, variable in _ENVIRONMENT.items() if os.environ.get(variable)}
    values: dict[str, object] = {}
    for name, text in (in_environment | dict(given)).items():
        convert, expected = _READ[name]
        try:
            values[name] = convert(text)
        except ValueError:
            place = where if name in given else "in the environment"
            raise ConfigError(f"{place}: {name if name in given else _ENVIRONMENT[name]}={text!r}; expected {expected}") from None
    return StoreOptions(**values)  # type: ignore[arg-type]
