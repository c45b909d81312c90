"""Send requests to one bucket. The number of concurrent requests is limited. Failed requests are sent again.

If a request is unusually slow, a second, equal request is sent, and the first answer is used. This second request is called a hedge.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from statistics import median
from typing import Any, TypeVar

from highway.errors import ConfigError, StoreError
from highway.extras import pip_install
from highway.parameters.location import did_you_mean
from highway.stores.clients import PART, Client, Entry, Page, StoreFailure, Unsupported
from highway.stores.loop import count, keep_from_parent
from highway.stores.schemes import OBSTORE
from highway.stores.unchanging import FileState
from highway.stores.url import StoreOptions, StoreURL


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
        expected = hint if hint.startswith("; did") else f"; expected {', '.join(OBSTORE)}, or a scheme of fsspec, such as hf or ftp"
        raise ConfigError(f"'{url}': unknown scheme '{url.scheme}'{expected}")
    from highway.stores.fsspec_client import FsspecClient

    return FsspecClient(url)


_clients: dict[tuple[str, ...], Client] = {}


def client_of(url: StoreURL) -> Client:
    """Return the client for the bucket of a URL.

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


T = TypeVar("T")

FIRST_ATTEMPTS = 3  # maximum attempts of a request before the first answer of the store, because the address might be wrong
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0  # backoff in seconds before a retry; doubled each time, with random jitter of up to half
LEAST_HEDGE = 0.1  # minimum seconds before a hedge
_MOST_PARTS = 10_000  # maximum parts of an uploaded object
_SAMPLES, _ENOUGH = 32, 8  # number of recent durations whose median is the usual duration; minimum number of durations for a hedge


class Requests:
    """Sends requests to a bucket.

    Args:
        url: The URL of any object in the bucket. The options of this URL apply to all requests.
    """

    def __init__(self, url: StoreURL) -> None:
        self.client: Client = client_of(url)
        self._options: StoreOptions = url.options
        self._slots = asyncio.Semaphore(url.options.requests)
        self._seconds: dict[int, deque[float]] = {}  # durations of recent requests, grouped by the size of the answer
        self._has_answered = False

    async def head(self, url: StoreURL) -> FileState:
        """Return the state of an object."""
        return await self._ask(url, 0, lambda: self.client.head(url.key))

    async def get(self, url: StoreURL, begin: int, end: int | None, size: int) -> tuple[bytes, FileState | None]:
        """Return the bytes of an object from ``begin`` to ``end``, and the state of the object, if known. ``size`` bytes are expected."""

        async def whole() -> tuple[bytes, FileState | None]:
            data, state = await self.client.get(url.key, begin, end)
            if len(data) != size and (state is None or end is not None or state.size == size):
                raise StoreFailure("again", f"only {len(data)} of {size} bytes have arrived")
            return data, state

        data, state = await self._ask(url, size, whole)
        count("bytes", len(data))
        return data, state

    async def folder(self, url: StoreURL) -> Page:
        """Return the content of a folder, without subfolders."""

        async def page() -> Page:
            found = await self.client.folder(url.key)
            _check_listed(url.key, [*(key for key, _ in found.objects), *found.folders])
            return found

        return await self._ask(url, 0, page)

    async def below(self, url: StoreURL, announced: bool = False) -> list[Entry]:
        """Return the objects in a folder and its subfolders.

        ``announced`` means that the listing of the parent folder contains this folder. An empty result is then an error.
        """

        async def entries() -> list[Entry]:
            found = await self.client.below(url.key)
            _check_listed(url.key, [key for key, _ in found])
            if announced and not self.client.has_empty_folders and all(key == url.key for key, _ in found):
                empty = "the parent folder lists this folder, but the listing of this folder is empty"
                raise StoreFailure("again", f"{empty}: remove the folder if it is empty")
            return found

        return await self._ask(url, 0, entries, hedge=False)

    async def put(self, url: StoreURL, data: bytes) -> None:
        """Write an object atomically."""
        await self._ask(url, len(data), lambda: self.client.put(url.key, data), hedge=False)
        count("bytes_written", len(data))

    async def put_file(self, url: StoreURL, path: str, size: int) -> None:
        """Upload a local file as an object, atomically. Failed parts are sent again."""
        part = max(PART, -(-size // _MOST_PARTS))
        try:
            async with self._slots:
                await self.client.put_file(url.key, path, part, self._options)
        except StoreFailure as failure:
            raise error_of(url, failure, self._options.attempts) from None
        count("requests", -(-size // part) + 2)
        count("bytes_written", size)

    async def delete(self, url: StoreURL) -> None:
        """Remove an object if it exists."""
        with contextlib.suppress(FileNotFoundError):
            await self._ask(url, 0, lambda: self.client.delete(url.key), hedge=False)

    async def _ask(self, url: StoreURL, size: int, request: Callable[[], Awaitable[T]], hedge: bool = True) -> T:
        wait, attempt = _FIRST_WAIT, 0
        while True:
            attempt += 1
            try:
                async with self._slots:
                    answer = await self._hedged(size, request, hedge)
                self._has_answered = True
                return answer
            except StoreFailure as failure:
                limit = self._options.attempts if self._has_answered else min(FIRST_ATTEMPTS, self._options.attempts)
                if failure.why != "again":
                    self._has_answered = True
                if failure.why != "again" or attempt >= limit:
                    raise error_of(url, failure, attempt) from None
            count("asked_again")
            await asyncio.sleep(wait * random.uniform(0.5, 1))
            wait = min(2 * wait, _LONGEST_WAIT)

    async def _hedged(self, size: int, request: Callable[[], Awaitable[T]], hedge: bool) -> T:
        """Return the answer to a request. If the request is unusually slow, send a hedge, and return the first answer."""
        loop = asyncio.get_running_loop()
        begin, of_size = loop.time(), self._seconds.setdefault(size.bit_length() // 3, deque(maxlen=_SAMPLES))
        deadline = begin + self._options.timeout
        patience = self._options.timeout
        if hedge and self._options.hedge and len(of_size) >= _ENOUGH:
            patience = min(patience, max(LEAST_HEDGE, self._options.hedge * median(of_size)))
        first = self._started(request)
        running: set[asyncio.Task[T]] = {first}
        try:
            until = begin + patience
            while True:
                done, running = await asyncio.wait(running, timeout=until - loop.time(), return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in done if task.exception() is None]:
                    of_size.append(loop.time() - begin)
                    if task is not first:
                        count("hedges_won")
                    return task.result()
                if done and not running:
                    await next(iter(done))  # raise the error of the request
                if not done and until < deadline:
                    count("hedged")
                    running.add(self._started(request))
                    until = deadline
                elif not done:
                    raise StoreFailure("again", f"no answer within {self._options.timeout:g} s")
        finally:
            for task in running:
                task.cancel()

    def _started(self, request: Callable[[], Awaitable[T]]) -> asyncio.Task[T]:
        async def ask() -> T:
            return await request()

        count("requests")
        return asyncio.ensure_future(ask())


def _check_listed(folder: str, keys: Sequence[str]) -> None:
    """Raise StoreFailure if a listing contains a key twice, or a key of another folder."""
    if len(set(keys)) < len(keys):
        twice = next(key for key, times in Counter(keys).items() if times > 1)
        raise StoreFailure("again", f"the listing contains {twice!r} twice")
    within = f"{folder}/" if folder else ""
    if strange := [key for key in keys if not key.startswith(within) and key != folder]:
        raise StoreFailure("again", f"the listing contains {strange[0]!r}, which is not in this folder")


def error_of(url: StoreURL, failure: StoreFailure, attempts: int) -> Exception:
    """Return the error to raise for a request whose last attempt failed."""
    text = f" ({failure})" if str(failure) else ""
    if failure.why == "missing":
        if str(failure) in ("NoSuchBucket", "ContainerNotFound"):
            return FileNotFoundError(f"{url}: there is no bucket {url.bucket}; correct the URL, or the endpoint")
        return FileNotFoundError(f"{url}: no such object in {url.bucket}{text}; correct the URL")
    if failure.why == "refused":
        return PermissionError(f"{url}: the store refuses access{text}; {url.store.credentials}")
    if failure.why == "unsupported":
        return Unsupported(f"{url}: the store does not support this request{text}")
    if failure.why == "again":
        again = f"{attempts} attempts failed; the last error" if attempts > 1 else "the request failed"
        place = f", and {url.store.endpoint}" if url.store.endpoint else ""
        return StoreError(f"{url}: {again}: {failure}; check the network{place}")
    return StoreError(f"{url}: {failure}")


_requests: dict[tuple[Any, ...], Requests] = {}


def requests_of(url: StoreURL) -> Requests:
    """Return the :class:`Requests` object for the bucket of a URL. URLs with the same bucket, address and options share one object."""
    options = url.options
    key = url.root, url.store.address, options.requests, options.attempts, options.timeout, options.hedge
    return _requests.get(key) or _requests.setdefault(key, Requests(url))


os.register_at_fork(after_in_child=_requests.clear)
