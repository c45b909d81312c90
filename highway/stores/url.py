"""URLs of objects in object stores: ``scheme://bucket/key[?option=value&...]``."""

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
    """The options in the query of a URL.

    Args:
        cache_dir: The folder of the cache, on a local disk. Empty: no cache. The default is the environment variable ``HIGHWAY_CACHE_DIR``.
        cache_gb: Maximum size of the cache in gigabytes. If the cache is full, the least recently used data are removed. The default is the
            environment variable ``HIGHWAY_CACHE_GB``, or 10 if the variable is not set.
        listing: The file that stores the listing of a folder: a file name in the same folder, or a path or URL. Empty: no file stores the
            listing.
        listing_hours: Hours after which a stored listing is updated. 0: the listing is updated at each access.
        requests: Maximum number of concurrent requests of this process to a bucket. URLs with different options have separate limits.
        attempts: Maximum number of attempts of a request. Before the first answer of the store, the maximum is 3, because the address might
            be wrong. If the last attempt fails, an error is raised.
        timeout: Maximum seconds of one attempt of a request.
        hedge: If a request has no answer after this multiple of the median time of recent requests, the request is sent a second time. The
            first answer is used. 0: requests are never sent twice.

    >>> options = parse("s3://bucket/photos?timeout=5").options
    >>> isinstance(options, StoreOptions), options.timeout
    (True, 5.0)
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
"""For each option: a function that converts its text, and a description of the expected text."""

_ENVIRONMENT = {"cache_dir": "HIGHWAY_CACHE_DIR", "cache_gb": "HIGHWAY_CACHE_GB"}


@dataclass(frozen=True, repr=False)
class StoreURL:
    """A parsed URL.

    Args:
        scheme: The scheme, such as ``s3``.
        host: The bucket, container or host. A host includes the user, the password and the port, if any.
        key: The key of the object, or a prefix of keys, without leading and trailing slashes.
        query: The query for the server, without highway's options. Only HTTP URLs have a query.
        options: The options of highway, from the query.

    >>> url = parse("s3://bucket/photos/a.jpg")
    >>> isinstance(url, StoreURL), url.scheme, url.host, url.key
    (True, 's3', 'bucket', 'photos/a.jpg')
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
        """A string that identifies the bucket. Each bucket has its own client."""
        return f"{self.scheme}://{self.host}{self.query and '/?'}{self.query}"

    @property
    def bucket(self) -> str:
        """The URL of the bucket, for messages."""
        return without_secrets(f"{self.scheme}://{self.host}")

    def __str__(self) -> str:
        """Return the URL without user, password and query, for messages."""
        return without_secrets(f"{self.scheme}://{self.host}/{self._quoted}")

    def __repr__(self) -> str:
        return f"StoreURL({str(self)!r})"

    def __truediv__(self, name: str) -> StoreURL:
        """Return the URL of an object in this folder. ``name`` is relative to the folder."""
        return self.at(f"{self.key}/{name}" if self.key else name)

    def at(self, key: str) -> StoreURL:
        """Return the URL of another key in the same bucket.

        Args:
            key: The key of an object, or a prefix of keys.
        """
        return dataclasses.replace(self, key=key)

    @property
    def full(self) -> str:
        """The complete URL, with secrets, for other libraries. Messages must never contain this URL."""
        return f"{self.scheme}://{self.host}/{self._quoted}{self.query and '?'}{self.query}"

    @property
    def with_options(self) -> str:
        """The complete URL, with secrets, and with the options that are not the defaults."""
        given = dataclasses.asdict(self.options)
        others = dataclasses.asdict(_options("", {}))
        own = [f"{name}={quote(str(value))}" for name, value in given.items() if value != others[name]]
        query = "&".join(filter(None, [self.query, *own]))
        return f"{self.scheme}://{self.host}/{self._quoted}{query and '?'}{query}"

    @property
    def _quoted(self) -> str:
        return quote(self.key) if self.store.is_http else self.key


def is_url(path: str) -> bool:
    """Return whether a path is the URL of an object in a store. ``file://`` URLs are local files, not objects.

    Args:
        path: A path or URL.

    >>> is_url("s3://bucket/a.tar"), is_url("data/a.tar")
    (True, False)
    """
    return "://" in path and (match := _SCHEME.match(path)) is not None and match[1].lower() != "file"


def without_options(path: str) -> str:
    """Remove the query from a URL, so that the URL ends with the extension of the file. A path is returned unchanged.

    Args:
        path: A path or URL.

    >>> without_options("s3://bucket/a.tar?timeout=5")
    's3://bucket/a.tar'
    """
    return path.partition("?")[0] if is_url(path) else path


def join(folder: str, name: str) -> str:
    """Return the path or URL of a file in a folder. A URL keeps its query.

    Args:
        folder: The path or URL of a folder.
        name: A path relative to the folder.

    >>> join("s3://bucket/photos?timeout=5", "a.jpg")
    's3://bucket/photos/a.jpg?timeout=5'
    """
    if not is_url(folder):
        return os.path.join(folder, name)
    path, mark, query = folder.partition("?")
    return f"{path.rstrip('/')}/{quote(name) if store_of(path.partition('://')[0].lower()).is_http else name}{mark}{query}"


def parent(path: str) -> str:
    """Return the path or URL of the parent folder. A URL keeps its query.

    Args:
        path: A path or URL.

    >>> parent("s3://bucket/photos/a.jpg")
    's3://bucket/photos'
    """
    if not is_url(path):
        return os.path.dirname(os.path.abspath(path))
    name, mark, query = path.partition("?")
    return f"{name.rstrip('/').rpartition('/')[0]}{mark}{query}"


def basename(path: str) -> str:
    """Return the last part of a path, or of a URL without its query.

    Args:
        path: A path or URL.

    >>> basename("s3://bucket/photos/a.jpg?timeout=5")
    'a.jpg'
    """
    return os.path.basename(without_options(path).rstrip("/"))


def beside(path: str, suffix: str) -> str:
    """Append a suffix to the file name in a path or URL. A URL keeps its query.

    Args:
        path: The path or URL of a file.
        suffix: The suffix, such as ``.index``.

    >>> beside("s3://bucket/a.tar?timeout=5", ".index")
    's3://bucket/a.tar.index?timeout=5'
    """
    if not is_url(path):
        return path + suffix
    name, mark, query = path.partition("?")
    return f"{name}{suffix}{mark}{query}"


def shown(path: str) -> str:
    """Return a path or URL for messages: without passwords, tokens and options.

    Args:
        path: A path or URL.

    >>> shown("https://me:secret@host/a.tar?token=abc")
    'https://host/a.tar'
    """
    return without_secrets(path) if is_url(path) or "@" in path else path


def parse(url: str) -> StoreURL:
    """Parse a URL.

    Args:
        url: The URL, such as ``s3://bucket/key?timeout=5``.

    Raises:
        ConfigError: the URL has no bucket, an invalid port, an unknown option, or an option with an invalid value.
        ConfigError: the URL is a chain of URLs with ``::``.

    >>> url = parse("s3://bucket/photos/a.jpg")
    >>> url.host, url.key
    ('bucket', 'photos/a.jpg')
    """
    head, _, query = url.partition("?")
    scheme, _, rest = head.partition("://")
    scheme = scheme.lower()
    host, _, key = rest.partition("/")
    if "::" in head:
        raise ConfigError(
            f"'{without_secrets(url)}': chains of URLs with '::', as in fsspec, are not supported; pass the URL of the file itself"
        )
    store = store_of(scheme)
    if store.first and not host:
        raise ConfigError(f"'{without_secrets(url)}': no {store.first} after '://'")
    if store.first and (strange := _PORT.search(host)) and not strange[1].isdecimal():
        raise ConfigError(
            f"'{scheme}://...': the port after ':' is not a number. If the URL contains a password, write / as %2F, ? as %3F, # as %23, "
            ": as %3A and @ as %40 in the password"
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
