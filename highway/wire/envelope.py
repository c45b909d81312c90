"""The envelope of a message: metadata in the header of the first array. Other readers of tenbin ignore this metadata.

The envelope comes after the dimensions of the array. These bytes are the *extension* of the header:

- ``~Highwy~``,
- the version 1 as int64,
- the length of the payload as int64,
- the payload,
- zeros up to a multiple of 8 bytes.

The payload is a msgpack map. ``docs/reference/wire.md`` lists the keys of the map. :func:`unpack` checks the type and the size of each
field.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args

import msgpack
import numpy as np

from highway.engine.stage import Origin, Passport, Positions
from highway.errors import FrameError, ItemError

ItemKind = Literal["tuple", "list", "dict", "value"]
KINDS = get_args(ItemKind)

MAGIC = b"~Highwy~"
VERSION = 1
MAX_PAYLOAD = 1 << 20  # bytes
MAX_ROW = 1024  # maximum elements of a list, because msgpack allocates a list before it reads the elements, and lists can be nested
NAME_BYTES = range(8, 33)  # possible lengths of a sender's name in bytes, limited because receivers store the names
MOST_MADE = 512  # maximum characters of ``made``
NUMBERS = range(1 << 63)  # valid numbers of messages
_START = struct.Struct("<8sqq")
_packed = msgpack.Packer().pack  # packs a number; msgpack.packb would create a packer for each call


class Envelope(NamedTuple):
    """The metadata of a message.

    Args:
        kind: The type of the item: a tuple, a list, a dict or a single array.
        names: The keys of a dict.
        bools: Positions of boolean arrays, which are sent as ``u1``.
        passport: The item's passport (its metadata: epoch, index, keys and more), if it has one.
        sender: Random bytes that identify the run of a sender; empty if the sender does not number its messages.
        number: The index of the message among the sender's messages, from 0. In an end message: the total number of messages.
        shared: Whether the sender distributes its messages among several receivers. Each receiver then sees gaps between the numbers.
        end: Whether this is an end message, which announces the end of the sender. The arrays of an end message are empty.
        made: Two texts: the versions of the sender's image software, and the sender's host. Empty if unknown.
        mark: Whether this is a mark, which tells a leaving receiver that it has read all messages of the sender. The arrays of a mark are
            empty.
        leave: TCP port of the sender's server (:mod:`highway.wire.goodbye`), at which leaving receivers announce themselves. 0: only
            receivers on the sender's machine can reach the server. ``None``: the sender has no server.
        extra: Whether the sender is temporary. Receivers do not count a temporary sender among the senders that must end.
        byte_strings: Positions of ``bytes``, such as image files, which are sent as ``u1``.
    """

    kind: ItemKind = "tuple"
    names: tuple[str, ...] = ()
    bools: tuple[int, ...] = ()
    passport: Passport | None = None
    sender: bytes = b""
    number: int = 0
    shared: bool = False
    end: bool = False
    made: tuple[str, ...] = ()
    mark: bool = False
    leave: int | None = None
    extra: bool = False
    byte_strings: tuple[int, ...] = ()


Form = tuple[ItemKind, tuple[str, ...], tuple[int, ...], tuple[int, ...]]  # kind, names, bools and byte strings
_Fixed = tuple[ItemKind, tuple[str, ...], tuple[int, ...], tuple[int, ...], bytes, bool, bool, tuple[str, ...], bool, int | None, bool]
"""All fields of an envelope except the passport and the number."""

_DEFAULTS = Envelope._field_defaults


def pack(envelope: Envelope, form: Form | None = None) -> bytes:
    """Return an envelope as the extension of a header. ``form`` replaces the fields of the envelope that describe the item."""
    passport, sender, number = envelope[3:6]
    fixed: _Fixed = (*(form or (*envelope[:3], envelope.byte_strings)), sender, *envelope[6:12])
    packed_number = _packed(number) if sender else b""
    if passport is None:
        before, behind = _around_number(fixed, len(packed_number))
        return before + packed_number + behind
    first, second, third = _constants(fixed, True)
    return _whole(first + msgpack.packb(_plain(passport)) + second + packed_number + third, fixed[1], passport)


@lru_cache(1024)  # without passports, the messages of a sender differ only in their number
def _around_number(fixed: _Fixed, width: int) -> tuple[bytes, bytes]:
    """Return the two parts of an extension without a passport: before and after the number. The number has ``width`` bytes."""
    first, second, third = _constants(fixed, False)
    whole = _whole(first + second + bytes(width) + third, fixed[1], None)
    begin = _START.size + len(first + second)
    return whole[:begin], whole[begin + width :]


def _whole(payload: bytes, names: tuple[str, ...], passport: Passport | None) -> bytes:
    if len(payload) > MAX_PAYLOAD:
        raise _too_long(names, passport)
    return _START.pack(MAGIC, VERSION, len(payload)) + payload + bytes(-len(payload) % 8)


def _too_long(names: tuple[str, ...], passport: Passport | None) -> ItemError:
    texts = {"sample keys": passport.keys if passport else (), "field names": names}
    what, rows = max(texts.items(), key=lambda each: sum(map(len, each[1])))
    longest = max(rows, key=len, default="")
    return ItemError(
        f"the {len(rows)} {what} have {sum(map(len, rows)):,} characters in total, but the names and keys of a message can have at most "
        f"{MAX_PAYLOAD:,} bytes; the longest has {len(longest):,} characters and begins with {longest[:40]!r}: shorten them, use "
        'smaller batches, or skip such items with on_error="skip"'
    )


def check_sender(sender: bytes, number: int) -> None:
    """Check the name of a sender and the number of a message.

    Raises:
        FrameError: the name or the number is not valid.
    """
    if sender and len(sender) not in NAME_BYTES:
        raise FrameError(f"extension: the sender's name has {len(sender)} bytes; expected {NAME_BYTES[0]} to {NAME_BYTES[-1]}")
    if number not in NUMBERS:
        raise FrameError(f"extension: number is {number}; expected 0 to 2**63 - 1")


def length(extension: bytes | memoryview) -> int:
    """Return the number of bytes of an envelope at the beginning of ``extension``; 0 if there is no envelope."""
    return _START.size + -(-_START.unpack_from(extension)[2] // 8) * 8 if extension[:8] == MAGIC else 0


@lru_cache(1024)
def _constants(fixed: _Fixed, has_passport: bool) -> tuple[bytes, bytes, bytes]:
    """Return the bytes that are equal in all payloads of a sender: before the passport, between passport and number, after the number."""
    kind, names, bools, byte_strings, sender, shared, end, made, mark, leave, extra = fixed
    if len(names) > MAX_ROW:
        raise ItemError(f"the item has {len(names)} fields; receivers accept at most {MAX_ROW}")
    first: dict[str, Any] = {"kind": kind}
    if names:
        first["names"] = names
    if bools:
        first["bools"] = bools
    if byte_strings:
        first["byte_strings"] = byte_strings
    flags = {"shared": shared, "end": end, "mark": mark, "extra": extra}
    third: dict[str, Any] = {name: True for name, value in flags.items() if value}
    if leave is not None:
        third["leave"] = leave
    if made:
        third["made"] = made
    count = len(first) + has_passport + (2 if sender else 0) + len(third)
    pair = msgpack.packb("sender") + msgpack.packb(sender) + msgpack.packb("number") if sender else b""
    start = msgpack.Packer().pack_map_header(count) + _pairs(first)
    return start + msgpack.packb("passport") * has_passport, pair, _pairs(third)


def _pairs(values: dict[str, Any]) -> bytes:
    """Return the keys and values of a small map in msgpack, without the map's header, which is a single byte."""
    packed: bytes = msgpack.packb(values)
    return packed[1:]


def unpack(extension: bytes | memoryview) -> Envelope | None:
    """Return the envelope in an extension, or ``None`` if the extension does not begin like an envelope.

    Raises:
        FrameError: the extension begins like an envelope, but is truncated or invalid.
    """
    if extension[:8] != MAGIC:
        return None
    if len(extension) < _START.size:
        raise FrameError(f"the extension has {len(extension)} bytes; expected at least {_START.size}")
    _, version, length = _START.unpack_from(extension)
    if version != VERSION:
        raise FrameError(
            f"the extension has version {version}, but this highway reads version {VERSION}; install the same or an older "
            f"version of highway at the sender"
        )
    if not 0 <= length <= min(len(extension) - _START.size, MAX_PAYLOAD):
        raise FrameError(
            f"extension: the header announces a payload of {length} bytes, but the payload has {len(extension) - _START.size} bytes"
        )
    try:
        payload = msgpack.unpackb(extension[_START.size : _START.size + length], use_list=False, max_array_len=MAX_ROW, max_map_len=MAX_ROW)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise FrameError(f"extension: the payload is not msgpack: {error}") from None
    if not isinstance(payload, dict):
        raise FrameError(f"extension: the payload is a {type(payload).__name__}; expected a map")
    return _envelope(payload)


def _envelope(payload: dict[Any, Any]) -> Envelope:
    fields = _DEFAULTS.copy()
    for name, value in payload.items():
        if name in fields:
            _check(name, value, _TYPES[name])
            fields[name] = value
    kind, names, bools, passport, sender, number, shared, end, made, mark, leave, extra, byte_strings = fields.values()
    check_sender(sender, number)
    if leave is not None and not 0 <= leave < 1 << 16:
        raise FrameError(f"extension: leave is {leave}; expected a port, 0 to 65535")
    if kind not in KINDS:
        raise FrameError(f"extension: kind is {kind!r}; expected one of {', '.join(KINDS)}")
    if names:
        _check_row("names", names, str)
        if len(set(names)) != len(names):
            raise FrameError(f"extension: some names occur twice: {names}")
    if bools:
        _check_row("bools", bools, int)
    if byte_strings:
        _check_row("byte_strings", byte_strings, int)
    if made:
        _check_made(made)
    passport = None if passport is None else _passport(passport)
    return Envelope(kind, names, bools, passport, sender, number, shared, end, made, mark, leave, extra, byte_strings)


def _check_made(made: tuple[Any, ...]) -> None:
    _check_row("made", made, str)
    if len(made) != 2 or sum(map(len, made)) > MOST_MADE:
        raise FrameError(f"extension: made is {made!r:.80}; expected two texts with at most {MOST_MADE} characters in total")


def _plain(passport: Passport) -> tuple[Any, ...]:
    """Return a passport as plain values. One string holds all keys, so the number of values does not depend on the batch size."""
    if wrong := [key for key in passport.keys if "\0" in key]:
        raise ItemError(
            f"the sample key {wrong[0]!r:.80} contains a zero character, which is not allowed because it separates keys in messages"
        )
    epoch, index, origin, keys, times, *_ = passport
    plain = epoch, index, origin, "\0".join(keys) if keys else None, times
    return (*plain, _packed_rows(rows)) if (rows := passport.rows) else plain


def _packed_rows(rows: Sequence[int]) -> Any:
    """Return packed positions: for a range, the start, step and length; for any other positions, the bytes of int64 values."""
    return (rows.start, rows.step, len(rows)) if isinstance(rows, range) else np.array(rows, "<i8").tobytes()


def _rows(packed: Any) -> Sequence[int]:
    if isinstance(packed, bytes) and len(packed) % 8 == 0:
        return tuple(np.frombuffer(packed, "<i8").tolist())
    if isinstance(packed, tuple) and len(packed) == 3 and {*map(type, packed)} == {int} and packed[1] > 0 <= packed[2] <= MAX_PAYLOAD:
        first, step, count = packed
        return range(first, first + step * count, step)
    raise FrameError(f"extension: passport.positions is {packed!r:.80}; expected the bytes of int64 numbers, or first, step and number")


def _passport(values: tuple[Any, ...]) -> Passport:
    if len(values) < 5:
        raise FrameError(f"extension: the passport has {len(values)} values; expected epoch, index, origin, keys and times")
    epoch, index, origin, keys, times = _checked("passport.", values, _PASSPORT)
    if len(origin) < 3:
        raise FrameError(f"extension: passport.origin is {origin!r}; expected host, role and replica")
    host, role, replica = _checked("passport.origin.", origin, _ORIGIN)
    _check_row("passport.times", times, float)
    positions = Positions(index, _rows(values[5])) if len(values) > 5 else None
    return Passport(epoch, index, Origin(host, role, replica), () if keys is None else tuple(keys.split("\0")), times, None, positions)


_Types = dict[str, tuple[type, ...]]  # field -> the expected type, and further accepted types
_TYPES: _Types = {
    "kind": (str,),
    "names": (tuple,),
    "bools": (tuple,),
    "passport": (tuple, NoneType),
    "sender": (bytes,),
    "number": (int,),
    "shared": (bool,),
    "end": (bool,),
    "made": (tuple,),
    "mark": (bool,),
    "leave": (int, NoneType),
    "extra": (bool,),
    "byte_strings": (tuple,),
}
_PASSPORT: _Types = {"epoch": (int,), "index": (int,), "origin": (tuple,), "keys": (str, NoneType), "times": (tuple,)}
_ORIGIN: _Types = {"host": (str,), "role": (str,), "replica": (int,)}


def _check(name: str, value: Any, types: tuple[type, ...]) -> None:
    if type(value) not in types:
        raise FrameError(f"extension: {name} is {value!r:.80}; expected {types[0].__name__}")


def _checked(where: str, values: Iterable[Any], types: _Types) -> list[Any]:
    """Check the types of values, and return the values. Ignore additional values, which later versions may send."""
    checked = []
    for (name, expected), value in zip(types.items(), values):
        _check(where + name, value, expected)
        checked.append(value)
    return checked


def _check_row(name: str, row: tuple[Any, ...], kind: type) -> None:
    for value in row:
        if type(value) is not kind:
            raise FrameError(f"extension: {name} contains {value!r:.80}; expected {kind.__name__}")
