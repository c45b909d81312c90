"""What rides beside an item."""

import struct
import tracemalloc

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from highway import FrameError, Lineage, Origin, Passport, tenbin
from highway.engine.stage import Positions
from highway.wire.envelope import MAGIC, MAX_PAYLOAD, Envelope, pack, unpack

INT = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=12).filter(lambda text: "\0" not in text)
PASSPORTS = st.builds(
    Passport,
    epoch=INT,
    index=INT,
    origin=st.builds(Origin, TEXT, TEXT, INT),
    keys=st.lists(TEXT, max_size=4).map(tuple),
    times=st.lists(st.floats(allow_nan=False), max_size=3).map(tuple),
    made_of=st.none(),
    positions=st.none(),
)
POSITIONS = st.lists(INT, min_size=1, max_size=4).map(tuple) | st.builds(range, st.integers(0, 9), st.integers(10, 99), st.integers(1, 9))
PASSPORTS |= st.builds(lambda one, rows: one._replace(positions=Positions(one.index, rows)), PASSPORTS, POSITIONS)
ENVELOPES = st.builds(
    Envelope,
    kind=st.sampled_from(["tuple", "list", "dict", "value"]),
    names=st.lists(TEXT, unique=True, max_size=4).map(tuple),
    bools=st.lists(st.integers(0, 5), max_size=2).map(tuple),
    byte_strings=st.lists(st.integers(0, 5), max_size=2).map(tuple),
    passport=st.none() | PASSPORTS,
    sender=st.just(b"abcdefgh"),
    number=st.integers(0, 2**63 - 1),
    shared=st.booleans(),
    end=st.booleans(),
    made=st.just(()) | st.tuples(TEXT, TEXT).filter(lambda made: sum(map(len, made)) <= 512),
    mark=st.booleans(),
    leave=st.none() | st.integers(0, 65535),
    extra=st.booleans(),
)


def wrapped(payload, version=1, length=None):
    return struct.pack("<8sqq", MAGIC, version, len(payload) if length is None else length) + payload


@given(ENVELOPES)
def test_what_is_packed_is_unpacked(envelope):
    packed = pack(envelope)
    assert len(packed) % 8 == 0
    assert unpack(packed) == envelope


def test_what_an_item_was_made_of_does_not_travel():
    passport = Passport(1, 2, keys=("a", "b"))
    batch = passport._replace(made_of=Lineage((passport, passport)))
    assert pack(Envelope(passport=batch)) == pack(Envelope(passport=passport))


@given(ENVELOPES)
def test_a_reader_of_tenbin_alone_does_not_notice(envelope):
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    header = tenbin.encode_header(array, "name") + pack(envelope)
    assert tenbin.decode_header(header) == ((2, 3), np.dtype("int32"), "name")
    np.testing.assert_array_equal(tenbin.decode_list([header, array])[0], array)


def test_int64s_of_somebody_else_are_none_of_ours():
    assert unpack(b"") is None
    assert unpack(bytes(64)) is None


@pytest.mark.parametrize(
    ("extension", "says"),
    [
        (MAGIC, "8 bytes; expected at least 24"),
        (wrapped(msgpack.packb({}), version=2), "version 2, but this highway reads version 1"),
        (wrapped(b"", length=2**40), "the header announces a payload of 1099511627776 bytes, but the payload has 0 bytes"),
        (wrapped(b"", length=-1), "a payload of -1 bytes"),
        (wrapped(bytes([0xC0]) * (MAX_PAYLOAD + 8)), f"a payload of {MAX_PAYLOAD + 8} bytes"),
        (wrapped(b"\xc1"), "the payload is not msgpack"),
        (wrapped(b"\x81\xa1"), "the payload is not msgpack"),
        (wrapped(msgpack.packb({}) + b"\0"), "the payload is not msgpack"),
        (wrapped(b"\x91" * 2000), "the payload is not msgpack"),
        (wrapped(msgpack.packb({"kind": "dict"}).replace(b"dict", b"\xff\xff\xff\xff")), "the payload is not msgpack"),
        (wrapped(msgpack.packb([1])), "the payload is a tuple; expected a map"),
        (wrapped(msgpack.packb({"kind": "set"})), "kind is 'set'; expected one of tuple, list, dict, value"),
        (wrapped(msgpack.packb({"names": "ab"})), "names is 'ab'; expected tuple"),
        (wrapped(msgpack.packb({"names": ["a", 1]})), "names contains 1; expected str"),
        (wrapped(msgpack.packb({"names": ["a", "a"]})), "some names occur twice"),
        (wrapped(msgpack.packb({"number": True})), "number is True; expected int"),
        (wrapped(msgpack.packb({"number": "1"})), "number is '1'; expected int"),
        (wrapped(msgpack.packb({"sender": "text"})), "sender is 'text'; expected bytes"),
        (wrapped(msgpack.packb({"sender": bytes(2**19)})), "the sender's name has 524288 bytes; expected 8 to 32"),
        (wrapped(msgpack.packb({"sender": b"seven b"})), "the sender's name has 7 bytes"),
        (wrapped(msgpack.packb({"number": -1})), "number is -1; expected 0 to"),
        (wrapped(msgpack.packb({"number": 2**63})), "number is 9223372036854775808; expected 0 to"),
        (wrapped(msgpack.packb({"passport": [0, 0, ["", "", 0], None, [], [0, 0, 4]]})), "passport.positions is (0, 0, 4); expected"),
        (wrapped(msgpack.packb({"passport": [0, 0, ["", "", 0], None, [], [0, 1, 2**40]]})), "passport.positions is (0, 1, 1099511627776)"),
        (wrapped(msgpack.packb({"passport": [0, 0, ["", "", 0], None, [], b"seven b"]})), "passport.positions is b'seven b'"),
        (wrapped(msgpack.packb({"passport": [1, 2]})), "the passport has 2 values"),
        (wrapped(msgpack.packb({"passport": [0, 0, ["h"], None, []]})), "passport.origin is ('h',)"),
        (wrapped(msgpack.packb({"passport": [0, 0.5, ["", "", 0], None, []]})), "passport.index is 0.5; expected int"),
        (wrapped(msgpack.packb({"passport": [0, 0, ["", "", 0], ["k"], []]})), "passport.keys is ('k',); expected str"),
        (wrapped(msgpack.packb({"passport": [0, 0, ["", "", 0], None, ["now"]]})), "passport.times contains 'now'; expected float"),
    ],
)
def test_a_damaged_extension_says_what_is_wrong(extension, says):
    with pytest.raises(FrameError) as caught:
        unpack(extension)
    assert says in str(caught.value)


def test_unknown_keys_and_further_values_are_left_to_later_versions():
    payload = {"kind": "list", "colour": "blue", "passport": [1, 2, ["h", "r", 3, "rack"], None, [], [5, 2, 3], "more"]}
    passport = Passport(1, 2, Origin("h", "r", 3), positions=Positions(2, range(5, 11, 2)))
    assert unpack(wrapped(msgpack.packb(payload))) == Envelope("list", passport=passport)


def test_rows_that_announce_more_than_they_hold_allocate_little():
    tracemalloc.start()
    try:
        with pytest.raises(FrameError):
            unpack(wrapped(b"\xdd\x00\x0f\xff\xff" * 200_000))
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=200))
def test_any_payload_is_read_or_refused(payload):
    try:
        envelope = unpack(wrapped(payload))
    except FrameError:
        return
    assert isinstance(envelope, Envelope)


def test_a_batch_of_any_size_has_room_for_its_keys_up_to_a_megabyte():
    keys = tuple(f"train/n0144/{n:08d}.jpg" for n in range(20_000))
    assert unpack(pack(Envelope(passport=Passport(keys=keys)))).passport.keys == keys
    with pytest.raises(
        ValueError, match=r"the 200000 sample keys have 4,800,000 characters in total, .* shorten them, use smaller batches, or skip"
    ):
        pack(Envelope(passport=Passport(keys=keys * 10)))
    with pytest.raises(ValueError, match="contains a zero character"):
        pack(Envelope(passport=Passport(keys=("a\0b",))))


@pytest.mark.parametrize("number", [0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**63 - 1])
def test_envelopes_that_differ_in_their_number_alone_are_told_apart(number):
    for envelope in (
        Envelope("dict", ("number", "x"), (1,), None, b"\xa6number\0\xa6", number, leave=7),
        Envelope(sender=bytes(8), number=number),
    ):
        assert unpack(pack(envelope)) == unpack(pack(envelope)) == envelope
        assert unpack(pack(envelope._replace(shared=True))) == envelope._replace(shared=True)


@pytest.mark.parametrize(
    "payload",
    [
        {"kind": "tuple", "made": ("number", "\x05")},
        {"kind": "tuple", "names": ("number",), "shared": True},
        {"number": 3, "kind": "list", "unknown": {"number": 4}},
        {"unknown": {"number": 4}, "number": 3},
        {"unknown": {"number": 4}},
        {"unknown": "number", "sender": b"12345678"},
    ],
)
def test_the_number_of_an_envelope_is_looked_for_where_it_is(payload):
    expected = Envelope(**{name: value for name, value in payload.items() if name != "unknown"})
    assert [unpack(wrapped(msgpack.packb(payload))) for _ in range(2)] == [expected, expected]


def test_an_envelope_that_breaks_off_in_its_number_is_refused_behind_good_ones():
    packed = wrapped(msgpack.packb({"sender": b"12345678", "number": 2**40}))
    assert unpack(packed).number == 2**40
    for length in range(len(packed) - 8, len(packed)):
        with pytest.raises(FrameError, match="the header announces"):
            unpack(packed[:length])


@pytest.mark.parametrize(
    ("number", "says"), [(-1, "number is -1"), (2**63, "number is 9223372036854775808"), (1.5, "number is 1.5"), ("1", "number is '1'")]
)
def test_a_number_that_is_none_is_refused_behind_good_ones(number, says):
    payload = {"sender": b"12345678", "number": 1}
    assert unpack(wrapped(msgpack.packb(payload))).number == 1
    for _ in range(2):
        with pytest.raises(FrameError, match=says):
            unpack(wrapped(msgpack.packb(payload | {"number": number})))
