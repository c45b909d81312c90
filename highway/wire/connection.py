"""``Connection``: one end of a link, for a training loop or a script. The class replaces tensorcom's ``Connection``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NoReturn, Self

from highway.engine import batch
from highway.errors import EndOfStream, FrameError, LinkError
from highway.wire import abandoned, conversion, tenbin
from highway.wire.conversion import Converter, listify, transform_with
from highway.wire.options import LinkOptions
from highway.wire.rates import Statistics
from highway.wire.receiver import LinkReceiver
from highway.wire.sender import LinkSender
from highway.wire.transports.memory import writable as writable_copy
from highway.wire.url import KINDS, kind_of, parse


class Connection:
    """Send or receive lists of arrays over a socket.

    ::

        for xs, ys in highway.Connection("zsub://127.0.0.1:7880", epoch=1000000):
            train(xs, ys)

    Use a connection only on the thread that created it. If you send, or leave a loop early, use a ``with`` block or call :meth:`close`.
    Otherwise, Python warns with a ResourceWarning. The socket then stays open until this thread creates another connection, or the process
    exits.

    A loop over a connection ends after ``total`` samples, or after all senders have announced their end. The loop then closes the
    connection. :class:`~highway.modules.ZMQSink` announces its end. A ``Connection`` announces its end only in :meth:`serve`, and only if
    its URL has ``?end=1``. Senders that use tensorcom itself never announce their end.

    Args:
        url: One URL or several. The scheme determines the type of the socket, and which end binds (see :mod:`highway.wire.url`). With
            ``None``, call :meth:`connect` later.
        epoch: The ``len()`` of the connection, for frameworks that need the length of an epoch.
        total: Number of samples after which a loop over the connection ends. 0 or less: no limit.
        multipart: Whether each header and each array is a separate frame. If false, the whole message is a single frame. Both ends need the
            same value.
        infos: For a sender, one name of up to 8 ASCII characters for each array. For a receiver, ``True`` makes :meth:`recv` return
            ``(arrays, infos)``, and a list must equal the received names.
        device: A PyTorch device, such as ``"cuda"``, for the tensors of ``converters``. If given, the default of ``converters`` is
            ``"torch"``. Functions in ``converters`` do not get the device.
        allow64: Whether arrays with 64-bit elements may be sent.
        raw: Whether :meth:`recv` and loops return the undecoded frames of each message.
        batch_transforms: Functions for the arrays of a received message: the first function is applied to the first array, and so on. If
            there are fewer functions than arrays, the list of functions repeats. ``None`` instead of a function keeps an array unchanged.
        batch_count: Whether a message counts as ``len(first_array)`` samples. If ``False``, a message counts as one sample.
        converters: Functions to apply after ``batch_transforms``, in the same form as ``batch_transforms``; or ``"torch"``,
            ``"torch_cuda"`` or ``"numpy"``.
        report: In a loop, number of samples between two printed lines about the rate. 0 or less: print nothing.
        stats_horizon: Number of messages from which the recent rates in :attr:`stats` are computed.
        noexpand: Whether to keep braces in the URL instead of expanding them.
        on_error: What a loop does if a message cannot be decoded, or if its names differ from ``infos``. ``"raise"`` raises FrameError, and
            ``"skip"`` skips the message. :meth:`recv` always raises FrameError. Messages that cannot be decoded are counted as
            ``malformed`` in :attr:`counters`.
        writable: Whether received arrays are writable copies, aligned to 64 bytes. By default, received arrays are read-only views of the
            message: writing raises numpy's ``assignment destination is read-only``, and ``torch.from_numpy`` warns. Tensors of
            ``converters="torch"`` are always writable. Frames of ``raw`` are never writable.

    Attributes:
        stats: A :class:`Statistics` with counts and rates of messages and bytes.
        counters: A receiver's counts: a dict with ``messages``, ``bytes``, ``gaps``, ``duplicates``, ``late``, ``malformed`` and others.
            Empty for a sender.
        batch_size: Length of the first array of the last received message; 1 before the first message, and always with ``raw``.
        sampler, batch_sampler: Always ``None``, for frameworks that read these attributes of a loader.

    Raises:
        ConfigError: the URL or a converter is invalid.
        LinkError: the address cannot be bound.

    >>> with Connection("zpull+ipc://arrays") as receiver, Connection("zpush+ipc://arrays") as sender:
    ...     sender.send([np.uint8([1, 2]), np.float32([0.5])])
    ...     arrays = receiver.recv(timeout=30)
    >>> arrays
    [array([1, 2], dtype=uint8), array([0.5], dtype=float32)]
    """

    sampler: None = None
    batch_sampler: None = None
    batch_size: int = 1
    _end: LinkSender | LinkReceiver | None = None
    _owner: abandoned.OwnerThread
    _name = ""
    _ended = False

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        epoch: int = 100000,
        total: int = -1,
        multipart: bool = True,
        infos: bool | Sequence[str] | None = None,
        device: str | None = None,
        allow64: bool = False,
        raw: bool = False,
        batch_transforms: Callable[[Any], Any] | Sequence[Callable[[Any], Any] | None] | None = None,
        batch_count: bool = True,
        converters: str | Converter | Sequence[Converter | None] | None = None,
        report: int = -1,
        stats_horizon: int = 1000,
        noexpand: bool = False,
        on_error: Literal["raise", "skip"] = "raise",
        writable: bool = False,
    ) -> None:
        self.epoch, self.total, self.multipart, self.infos = epoch, total, multipart, infos
        self.allow64, self.raw, self.batch_count, self.report = allow64, raw, batch_count, report
        self.noexpand, self.on_error, self.writable = noexpand, on_error, writable
        self.batch_transforms = listify(batch_transforms)
        self.converters = conversion.converters(converters, device)
        self.count = 0
        self.stats = Statistics(stats_horizon)
        self.counters: dict[str, float] = {}
        abandoned.close_abandoned()
        if url is not None:
            try:
                self.connect(url)
            except BaseException:
                self.close()
                raise

    @property
    def socket(self) -> NoReturn:
        """Not available, unlike in tensorcom. Raises AttributeError, which names the replacements."""
        raise AttributeError(
            "a Connection has no public `socket`: highway could not number and count messages that bypass it. Use recv(timeout=) and "
            "send(timeout=) for RCVTIMEO and SNDTIMEO, ?budget_mb= and ?linger_ms= in the URL for RCVHWM, SNDHWM and LINGER, and close()"
        )

    @property
    def context(self) -> NoReturn:
        """Not available, unlike in tensorcom. Raises AttributeError, which names the replacements."""
        raise AttributeError("a Connection has no `context`: all links of a process share one, which ends with the process; use close()")

    @property
    def bound(self) -> list[str]:
        """Addresses that peers can connect to, with the actual ports; empty if this end connects."""
        return self._end.bound if self._end else []

    def connect(self, url: str | Sequence[str], topic: str = "") -> None:
        """Open the socket for one URL, or for several URLs that share the socket.

        If a URL of a sender has ``?receivers=N``, wait until N receivers are connected. A second call adds URLs to the socket, for instance
        the URL of a second publisher.

        Args:
            url: One URL, or several.
            topic: Topic of a subscriber, if the URL has no ``#topic``.

        Raises:
            ConfigError: a URL is invalid, or cannot share the socket because its scheme, options or topic differ.
            LinkError: the address cannot be bound.
        """
        kind = KINDS[kind_of(url)]
        urls = [url] if isinstance(url, str) else list(url)
        if topic and kind.fans_out and kind.direction == "receive":
            urls = [each if "#" in each else f"{each}#{topic}" for each in urls]
        defaults = LinkOptions(codec="tensorcom" if self.multipart else "tenbin", end=False)
        link = parse(urls, kind.direction, braces=not self.noexpand, defaults=defaults)
        if self._end:
            self._end.attach(link)
            self._name = f"{self._name}, {link}"
        else:
            self._owner, self._name, self._ended = abandoned.opened(self), str(link), False
            self._end = LinkSender(link, self.allow64) if link.sends else LinkReceiver(link, self.counters)
        if isinstance(self._end, LinkSender):
            self._end.wait_for_receivers()

    def send(self, data: Any, allow64: bool = False, timeout: float | None = None) -> None:
        """Send arrays. If the receivers are slow, wait until there is room.

        Args:
            data: The arrays, in a list, tuple or dict. Do not change the arrays after this call.
            allow64: Whether arrays with 64-bit elements may be sent, even if the connection's ``allow64`` is false.
            timeout: Seconds to wait for room; ``None``: no limit.

        Raises:
            TypeError: a value is not an array, or has 64-bit elements although ``allow64`` is false.
            TimeoutError: there was no room within ``timeout`` seconds.
            LinkError: the connection is closed, or can only receive.
        """
        if not isinstance(self._end, LinkSender):
            raise self._unusable("receive")
        infos = None if isinstance(self.infos, bool) else self.infos
        self._end.send(data, infos=infos, timeout=timeout, allow64=allow64 or self.allow64)
        self.stats.add(batch.nbytes(data))

    write = send

    def recv(self, timeout: float | None = None) -> Any:
        """Wait for a message, apply ``batch_transforms`` and ``converters`` to its arrays, and return the arrays.

        The result is a list, or a dict if the sender sent a dict. With ``infos=True``, the result is ``(arrays, infos)``. With ``raw``, the
        result is the list of undecoded frames. Arrays are read-only, unless the connection is ``writable``.

        Args:
            timeout: Seconds to wait for a message; ``None``: no limit.

        Raises:
            EndOfStream: all senders have ended.
            TimeoutError: no message came within ``timeout`` seconds.
            FrameError: the message is malformed, or its names differ from ``infos``. The next call returns the next message.
            LinkError: the connection is closed, or can only send.
        """
        if self._ended:
            raise EndOfStream(f"{self._name}: the stream has ended")
        if not isinstance(self._end, LinkReceiver):
            raise self._unusable("send")
        before = self.counters["bytes"]
        if self.raw:
            frames = self._end.recv_raw(timeout)
            self.stats.add(self.counters["bytes"] - before)
            return frames
        message = self._end.recv(timeout)
        self.stats.add(self.counters["bytes"] - before)
        item = writable_copy(message.item) if self.writable else message.item
        fields = batch.fields(item)
        self.batch_size = len(fields[0]) if fields and getattr(fields[0], "shape", ()) else 1
        values: Sequence[Any] = fields
        for functions in filter(None, (self.batch_transforms, self.converters)):
            values = transform_with(values, functions)
        data = dict(zip(item, values, strict=True)) if isinstance(item, dict) else list(values)
        return data if self.infos is None else tenbin.check_infos(data, list(message.infos), self.infos)

    def serve(self, source: Iterable[Any], report: int | None = None) -> None:
        """Send all items of ``source``, and wait until all messages have left this process.

        If the URL has ``?end=1``, then send the end message to the receivers. Also raises the errors of :meth:`send`.

        Args:
            source: Yields items that :meth:`send` accepts.
            report: Number of samples between two printed lines about the rate. Default: the connection's ``report``.

        Raises:
            LinkError: the last messages could not be delivered.
        """
        for sample in self._reported(source, report):
            self.send(sample)
        if isinstance(self._end, LinkSender):
            self._end.finish()

    def items(self, report: int | None = None) -> Iterator[Any]:
        """Yield received messages until ``total`` samples have come, or until all senders have ended. Then close the connection.

        Args:
            report: Number of samples between two printed lines about the rate. Default: the connection's ``report``.
        """
        yield from self._reported(self._received(), report)

    def __iter__(self) -> Iterator[Any]:
        return self.items()

    def __len__(self) -> int:
        return self.epoch

    def batchsize(self, xs: Any) -> int:
        """Return the number of samples in a message: the length of its first array.

        Return 1 if ``batch_count`` is false, or if there are no arrays.

        Args:
            xs: The arrays of the message.
        """
        values = batch.fields(xs)
        return len(values[0]) if self.batch_count and values else 1

    def to_dataset(self, signature: Any = None) -> Any:
        """Return the received messages as a ``tf.data.Dataset``; see :func:`highway.adapters.tensorflow.to_dataset`.

        Args:
            signature: As for :func:`~highway.adapters.tensorflow.to_dataset`.
        """
        from highway.adapters.tensorflow import to_dataset  # here, because it needs TensorFlow

        return to_dataset(self, signature)

    def close(self) -> None:
        """Close the socket.

        Unsent messages are still sent in the background, for up to ``linger_ms``. If there are unsent messages and no connected receiver,
        first wait up to ``linger_ms`` for a receiver. Closing again does nothing.
        """
        if self._end:
            self._end.close()
        self._end = None

    def __del__(self) -> None:
        if self._end is None:
            return
        abandoned.hand_over(self._owner, self._end)
        if self._owner.pid == os.getpid():
            warning = f"{self._name}: this Connection was not closed; use it in a `with` block, or call close()"
            warnings.warn(warning, ResourceWarning, stacklevel=2, source=self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _received(self) -> Iterator[Any]:
        while self.total <= 0 or self.count < self.total:
            try:
                data = self.recv()
            except EndOfStream:
                self._ended = True
                break
            except FrameError:
                if self.on_error == "raise":
                    raise
                continue
            self.count += self._size(data)
            yield data
        self.close()

    def _reported(self, source: Iterable[Any], report: int | None) -> Iterator[Any]:
        every, count, due = self.report if report is None else report, 0, 0
        if every <= 0:
            yield from source
            return
        for data in source:
            yield data
            count += self._size(data)
            if count >= due:
                print("count", count, self.stats.summary(), flush=True)
                due = count + every

    def _size(self, data: Any) -> int:
        if self.raw:
            return 1
        return self.batchsize(data[0] if self.infos is True and isinstance(self._end, LinkReceiver) else data)

    def _unusable(self, can: str) -> LinkError:
        return LinkError(
            f"the scheme of the URL allows this connection only to {can}" if self._end else "the connection is closed; call connect(url)"
        )
