"""What rides on the wire beside an item, behind the dimensions in the first array's header, where a reader of tenbin alone ignores it.

Layout: ``~Highwy~``, int64 version (1), int64 length of the payload, the payload, zeros up to a multiple of 8. The payload is a msgpack
map; ``docs/reference/wire.md`` lists its keys. What comes in is checked field by field, bounded in size, and never executed.
"""

from __future__ import annotations

import struct
from typing import Any, Literal, NamedTuple, get_args

import msgpack

from highway.errors import FrameError
from highway.stage import Origin, Passport

ItemKind = Literal["tuple", "list", "dict", "value"]
KINDS = get_args(ItemKind)

MAGIC = b"~Highwy~"
VERSION = 1
MAX_PAYLOAD = 1 << 20  # bytes
MAX_ROW = 1024  # elements; msgpack allocates rows before it reads them, and they nest
_START = struct.Struct("<8sqq")


class Envelope(NamedTuple):
    """What is known about a message beside its arrays.

    Args:
        kind: Whether the item is a tuple, a list, a dict or one bare array.
        names: The fields of a dict.
        bools: Positions of the arrays that are boolean, and travel as ``u1``.
        passport: The item's passport, if it has one.
        sender: Random bytes that name the run of a sender, or none if it does not number its messages.
        number: The message's number among those of the sender, from 0; for an end, how many there were.
        shared: Whether the sender deals its messages out to several receivers, so that each sees gaps in the numbers.
        end: Whether this message says that the sender has ended; its arrays are empty then.
    """

    kind: ItemKind = "tuple"
    names: tuple[str, ...] = ()
    bools: tuple[int, ...] = ()
    passport: Passport | None = None
    sender: bytes = b""
    number: int = 0
    shared: bool = False
    end: bool = False


def pack(envelope: Envelope) -> bytes:
    """Return the extension of a header: a multiple of 8 bytes."""
    payload: dict[str, Any] = {"kind": envelope.kind}
    if envelope.names:
        payload["names"] = envelope.names
    if envelope.bools:
        payload["bools"] = envelope.bools
    if envelope.passport is not None:
        payload["passport"] = _plain(envelope.passport)
    if envelope.sender:
        payload["sender"] = envelope.sender
        payload["number"] = envelope.number
    if envelope.shared:
        payload["shared"] = True
    if envelope.end:
        payload["end"] = True
    packed: bytes = msgpack.packb(payload)
    if len(packed) > MAX_PAYLOAD:
        raise ValueError(
            f"field names and passport take {len(packed)} bytes on the wire; expected at most {MAX_PAYLOAD}: use shorter sample keys"
        )
    return _START.pack(MAGIC, VERSION, len(packed)) + packed + bytes(-len(packed) % 8)


def unpack(extension: bytes | memoryview) -> Envelope | None:
    """Return what stands behind the dimensions of a header, or ``None`` if that is not ours.

    Raises:
        FrameError: it begins as ours does, but is not whole, or not what it should be.
    """
    if extension[:8] != MAGIC:
        return None
    if len(extension) < _START.size:
        raise FrameError(f"extension: {len(extension)} bytes; expected at least {_START.size}")
    _, version, length = _START.unpack_from(extension)
    if version != VERSION:
        raise FrameError(f"extension: version {version}; this highway reads {VERSION}, the sender needs the same or an older one")
    if not 0 <= length <= min(len(extension) - _START.size, MAX_PAYLOAD):
        raise FrameError(f"extension: a payload of {length} bytes is announced, but {len(extension) - _START.size} are there")
    try:
        payload = msgpack.unpackb(extension[_START.size : _START.size + length], use_list=False, max_array_len=MAX_ROW, max_map_len=MAX_ROW)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise FrameError(f"extension: the payload is no msgpack: {error}") from None
    if not isinstance(payload, dict):
        raise FrameError(f"extension: the payload is a {type(payload).__name__}; expected a map")
    return _envelope(payload)


def _envelope(payload: dict[Any, Any]) -> Envelope:
    take = _Taker(payload)
    kind = take("kind", str, "tuple")
    if kind not in KINDS:
        raise FrameError(f"extension: kind is {kind!r}; expected one of {', '.join(KINDS)}")
    names = take.row("names", str)
    if len(set(names)) != len(names):
        raise FrameError(f"extension: names repeat: {names}")
    passport = take("passport", tuple, None)
    return Envelope(
        kind=kind,
        names=names,
        bools=take.row("bools", int),
        passport=None if passport is None else _passport(passport),
        sender=take("sender", bytes, b""),
        number=take("number", int, 0),
        shared=take("shared", bool, False),
        end=take("end", bool, False),
    )


def _plain(passport: Passport) -> tuple[Any, ...]:
    """Return a passport with its keys as one string, so that a batch of any size has a row of fixed length."""
    if any("\0" in key for key in passport.keys):
        raise ValueError(f"a sample key holds a zero character: {next(key for key in passport.keys if chr(0) in key)!r}")
    return passport._replace(keys="\0".join(passport.keys) if passport.keys else None)  # type: ignore[arg-type]


def _split(keys: str | None) -> tuple[str, ...]:
    return () if keys is None else tuple(keys.split("\0"))


def _passport(values: tuple[Any, ...]) -> Passport:
    if len(values) < 5:
        raise FrameError(f"extension: a passport of {len(values)} values; expected epoch, index, origin, keys and times")
    take = _Taker(dict(zip(Passport._fields, values, strict=False)), "passport.")
    origin = take("origin", tuple, ())
    if len(origin) < 3:
        raise FrameError(f"extension: passport.origin is {origin!r}; expected host, role and replica")
    part = _Taker(dict(zip(Origin._fields, origin, strict=False)), "passport.origin.")
    return Passport(
        epoch=take("epoch", int, 0),
        index=take("index", int, 0),
        origin=Origin(part("host", str, ""), part("role", str, ""), part("replica", int, 0)),
        keys=_split(take("keys", str, None)),
        times=take.row("times", float),
    )


class _Taker:
    """Takes values out of a map, checking their types."""

    def __init__(self, values: dict[str, Any], where: str = "") -> None:
        self._values, self._where = values, where

    def __call__(self, name: str, kind: type, default: Any) -> Any:
        value = self._values.get(name, default)
        if type(value) is not kind and value is not default:
            raise FrameError(f"extension: {self._where}{name} is {value!r:.80}; expected {kind.__name__}")
        return value

    def row(self, name: str, kind: type) -> tuple[Any, ...]:
        values: tuple[Any, ...] = self(name, tuple, ())
        for value in values:
            if type(value) is not kind:
                raise FrameError(f"extension: {self._where}{name} holds {value!r:.80}; expected {kind.__name__}")
        return values
