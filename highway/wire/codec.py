"""Codecs convert an item and its envelope (metadata) to the frames of a message, and back. The URL option ``codec`` selects a codec."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol, cast

import numpy as np
from msgpack import packb

from highway.engine.batch import fields, names
from highway.errors import ConfigError, FrameError, ItemError
from highway.parameters.location import did_you_mean
from highway.wire import chunks, msgpack, tenbin
from highway.wire.envelope import NUMBERS, Envelope, Form, ItemKind, pack, unpack

Frame = tenbin.Buffer


class Message(NamedTuple):
    """A decoded message. ``envelope`` is ``None`` if the sender does not send envelopes. ``infos`` are the names of the arrays."""

    item: Any
    envelope: Envelope | None
    infos: tuple[str, ...] = ()


_OTHER = (
    "the message has {frames} frames; expected {expected}. If the sender uses another codec, set codec={other} here, or this codec at "
    "the sender. If the URL of the sender has a topic, add the same #topic to this URL"
)


_BRIEF = 512  # maximum bytes of a first frame whose content is cached
_NUMBER_KEY, _PASSPORT_KEY = packb("number"), packb("passport")
_WIDTHS = {0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9}  # length of a msgpack number in bytes, by its first byte


class Codec(Protocol):
    """Converts items to frames and back.

    The *envelope* of a message has the name of the sender, the number of the message, and the passport (metadata) of the item.

    Attributes:
        single: Whether each message is one frame.
        has_envelopes: Whether each message has an envelope. If false, only the end message has an envelope.
    """

    single: bool
    has_envelopes: bool

    def encode(self, item: Any, envelope: Envelope, allow64: bool = False, infos: Sequence[str] | None = None) -> list[Frame]:
        """Return the frames of a message. The codec sets the fields of the envelope that describe the item, such as ``kind`` and ``names``.

        Raises:
            TypeError: a field cannot be sent. The message names the field and a solution.
        """

    def decode(self, frames: Sequence[Frame]) -> Message:
        """Return the message. Its arrays are views of the frames.

        Raises:
            FrameError: the frames are not a message.
        """


class Tensorcom:
    """The tenbin format, with a header frame and a data frame for each array. The envelope is an extension of the first header."""

    single = False
    has_envelopes = True

    def encode(self, item: Any, envelope: Envelope, allow64: bool = False, infos: Sequence[str] | None = None) -> list[Frame]:
        """See :meth:`Codec.encode`. If a key of a dict has up to 8 ASCII characters, the key is also the info (name) of the array."""
        kind, keys, values = _parts(item)
        if not values and not (envelope.end or envelope.mark):
            raise ItemError("an item without fields cannot be sent; drop it (return DROP)")
        types = tuple([(value.dtype, value.shape) if isinstance(value, tenbin.ARRAYS) else _type_of(value) for value in values])
        form = _form(kind, keys, types, allow64, None if infos is None else tuple(infos))
        frames: list[Frame] = []
        bytes_of = _bytes_of if form.described[3] else tenbin.bytes_of
        for header, value in zip(form.headers, values, strict=True):
            frames += header, bytes_of(value)
        frames[0] += pack(envelope, form.described)
        return frames

    def decode(self, frames: Sequence[Frame]) -> Message:
        if len(frames) % 2:
            raise FrameError(_OTHER.format(frames=len(frames), expected="a header and data for each array", other="msgpack or tenbin"))
        if not frames:
            raise FrameError("the message has no frames")
        first, number = _read_before(frames[0])
        if first is None:
            arrays, infos = tenbin.decode_frames(frames)
            envelope = unpack(tenbin.behind_header(frames[0]))
        else:
            arrays, infos = tenbin.decode_frames(frames, first.layout)
            envelope = Envelope._make((*first.before, number, *first.behind))
        return Message(tuple(arrays) if envelope is None else _item(arrays, envelope), envelope, tuple(infos))


class _Form(NamedTuple):
    """The parts of a message that depend only on the fields, dtypes and shapes of the item."""

    described: Form  # the envelope's description of the item
    headers: tuple[bytes, ...]


@lru_cache(1024)  # a cache, because a stream repeats the same few forms
def _form(kind: ItemKind, keys: tuple[Any, ...], types: tuple[Any, ...], allow64: bool, infos: tuple[str, ...] | None) -> _Form:
    """Return the form of items with fields of these types.

    The type of a field is ``(dtype, shape)`` for an array, ``(dtype, shape, True)`` for bytes, and the class for any other value.

    Raises:
        TypeError: items of this form cannot be sent. The message names the field and a solution.
    """
    names = keys if kind == "dict" else range(len(types))
    for name, type_ in zip(names, types, strict=True):
        if isinstance(type_, type):
            raise tenbin.no_array(name, type_)
        tenbin.check_type(type_[0], len(type_[1]), name, allow64)
    if kind == "dict" and not all(isinstance(name, str) for name in names):
        raise ItemError(f"the names of the fields are {names}; expected only strings")
    if infos is None:
        infos = tuple(name if isinstance(name, str) and len(name) <= 8 and name.isascii() else "" for name in names)
    if len(infos) != len(types):
        raise ValueError(f"{len(infos)} infos for {len(types)} arrays; expected one for each")
    headers = tuple(tenbin.header(type_[0], type_[1], info) for type_, info in zip(types, infos, strict=True))
    bools = tuple(position for position, type_ in enumerate(types) if type_[0].kind == "b")
    byte_strings = tuple(position for position, type_ in enumerate(types) if type_[2:])
    return _Form((kind, tuple(map(str, names)) if kind == "dict" else (), bools, byte_strings), headers)


def _type_of(value: Any) -> Any:
    """Return the type of a value that is not an array, as an argument of :func:`_form`."""
    return (_BYTE, (len(value),), True) if type(value) is bytes else type(value)


def _bytes_of(value: Any) -> Frame:
    return value if type(value) is bytes else tenbin.bytes_of(value)


_BYTE = np.dtype(np.uint8)


class _First(NamedTuple):
    """The decoded content of a message's first frame, except the number of the message.

    If the items of a sender have the same form and no passports, this content is the same in all its messages.
    """

    layout: tenbin.ArrayLayout
    before: tuple[Any, ...]  # the envelope's fields up to the number
    behind: tuple[Any, ...]  # the envelope's fields after the number


def _read_before(frame: Frame) -> tuple[_First | None, int]:
    """Return the cached content of a message's first frame, and the number of the message. The content is ``None`` for uncached frames."""
    whole = b"" if (view := memoryview(frame)).nbytes > _BRIEF else bytes(view)
    begin = whole.find(_NUMBER_KEY) + len(_NUMBER_KEY)
    if not len(_NUMBER_KEY) <= begin < len(whole) or _PASSPORT_KEY in whole:
        return None, 0
    code = whole[begin]
    end = begin + (1 if code < 0x80 else _WIDTHS.get(code, len(whole)))
    number = code if code < 0x80 else int.from_bytes(whole[begin + 1 : end])
    if end > len(whole) or number not in NUMBERS:
        return None, 0
    return _without_number(whole[:begin], code * (code >= 0x80), whole[end:]), number


@lru_cache(256)
def _without_number(before: bytes, code: int, behind: bytes) -> _First | None:
    """Return the content of a first frame, or ``None`` if the bytes are not a first frame.

    Args:
        before: The frame's bytes before the number.
        code: The first byte of the number if the number has several bytes; 0 if the number has one byte.
        behind: The frame's bytes after the number.
    """
    start = bytes([code]) + bytes(_WIDTHS[code] - 2) if code else b""
    frames = [before + start + bytes([number]) + behind for number in range(2)]
    try:
        layout, other = map(tenbin.layout, frames)
        zero, one = (unpack(tenbin.behind_header(frame)) for frame in frames)
    except FrameError:
        return None
    if layout != other or zero is None or one is None or zero.number != 0 or one != zero._replace(number=1):
        return None
    at = Envelope._fields.index("number")
    return _First(layout, zero[:at], zero[at + 1 :])


class Tenbin(Tensorcom):
    """The content of :class:`Tensorcom` in a single frame, which costs one copy. ``Connection(multipart=False)`` sends this form."""

    single = True

    def encode(self, item: Any, envelope: Envelope, allow64: bool = False, infos: Sequence[str] | None = None) -> list[Frame]:
        return [chunks.encode_chunks(super().encode(item, envelope, allow64, infos))]

    def decode(self, frames: Sequence[Frame]) -> Message:
        if len(frames) != 1:
            raise FrameError(_OTHER.format(frames=len(frames), expected="one", other="tensorcom"))
        return super().decode(chunks.decode_chunks(frames[0]))


class Msgpack:
    """Highway 2017's codec: msgpack and msgpack-numpy in one frame, without an envelope."""

    single = True
    has_envelopes = False

    def encode(self, item: Any, envelope: Envelope, allow64: bool = False, infos: Sequence[str] | None = None) -> list[Frame]:
        """See :meth:`Codec.encode`. Items can also have numbers, strings, and nested lists and dicts. 64-bit arrays are always allowed."""
        for name, value in zip(names(item), fields(item), strict=True):
            if (found := _named_tuple(value)) is not None:  # the receiver would get a plain tuple
                raise tenbin.no_array(name, found)
        return [msgpack.encode_end(envelope.sender, envelope.number) if envelope.end else msgpack.encode(item)]

    def decode(self, frames: Sequence[Frame]) -> Message:
        if len(frames) != 1:
            raise FrameError(_OTHER.format(frames=len(frames), expected="one", other="tensorcom"))
        item = msgpack.decode(frames[0])
        if isinstance(item, msgpack.StreamEnd):
            return Message((), Envelope(sender=item.sender, number=item.number, shared=True, end=True))
        return Message(item, None)


def _named_tuple(value: Any) -> type | None:
    """Return the type of the first named tuple in a value, or ``None`` if there is no named tuple."""
    if hasattr(value, "_fields"):
        return type(value)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return next(filter(None, map(_named_tuple, parts)), None)


CodecName = Literal["tensorcom", "tenbin", "msgpack"]
CODECS: dict[CodecName, Codec] = {"tensorcom": Tensorcom(), "tenbin": Tenbin(), "msgpack": Msgpack()}


def named(name: str) -> Codec:
    """Return a codec by its name.

    Raises:
        ConfigError: no codec has this name.
    """
    found = CODECS.get(cast(CodecName, name))
    if found is None:
        raise ConfigError(f"unknown codec '{name}'{did_you_mean(name, CODECS)}")
    return found


def _parts(item: Any) -> tuple[ItemKind, tuple[Any, ...], Sequence[Any]]:
    """Return the kind of an item, the keys of a dict, and the values. Faster than :func:`batch.names` and :func:`batch.fields`."""
    if isinstance(item, tuple):
        return "tuple", (), item
    if isinstance(item, dict):
        return "dict", tuple(item), tuple(item.values())
    return ("list", (), item) if isinstance(item, list) else ("value", (), (item,))


def _item(arrays: list[Any], envelope: Envelope) -> Any:
    for position in envelope.bools:
        if not 0 <= position < len(arrays) or arrays[position].dtype != "u1" or arrays[position].max(initial=0) > 1:
            raise FrameError(f"extension: array {position} is announced as boolean, but is not an array of 0 and 1 with dtype u1")
        arrays[position] = arrays[position].view(bool)
    for position in envelope.byte_strings:
        array = arrays[position] if 0 <= position < len(arrays) else None
        if not isinstance(array, np.ndarray) or array.dtype != _BYTE or array.ndim != 1:
            raise FrameError(f"extension: array {position} is announced as bytes, but is not an array with dtype u1 and one axis")
        arrays[position] = array.tobytes()
    if envelope.end or envelope.mark:
        return tuple(arrays)
    if envelope.kind == "dict":
        if len(envelope.names) != len(arrays):
            raise FrameError(f"extension: {len(envelope.names)} names for {len(arrays)} arrays")
        return dict(zip(envelope.names, arrays, strict=True))
    if envelope.kind == "value":
        if len(arrays) != 1:
            raise FrameError(f"extension: the sender announces one value, but there are {len(arrays)} arrays")
        return arrays[0]
    return arrays if envelope.kind == "list" else tuple(arrays)
