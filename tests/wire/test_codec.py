"""Items as frames."""

import numpy as np
import pytest

from highway import ConfigError, FrameError, Origin, Passport, tenbin
from highway.wire.codec import named
from highway.wire.envelope import Envelope, pack

IMAGES, LABELS = np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3), np.array([3, 4], np.int32)
ITEMS = {
    "tuple": (IMAGES, LABELS),
    "list": [IMAGES, LABELS],
    "dict": {"image": IMAGES, "a name of more than eight letters": LABELS, "größe": LABELS},
    "value": IMAGES,
    "numpy scalar": (np.float32(2.5), np.array(7, np.int16)),
    "booleans": {"mask": np.array([[True, False]]), "flag": np.array(True)},
    "no samples": (np.zeros((0, 4, 4, 3), np.uint8), np.zeros(0, np.int32)),
}


def assert_same(left, right):
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert list(left) == list(right)
        left, right = tuple(left.values()), tuple(right.values())
    for before, after in zip(left, right, strict=True) if isinstance(left, (tuple, list)) else [(left, right)]:
        assert (before.dtype, before.shape) == (after.dtype, after.shape)
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("codec", ["tensorcom", "tenbin"])
@pytest.mark.parametrize("item", ITEMS.values(), ids=ITEMS)
def test_items_come_back_as_they_were(codec, item):
    passport = Passport(2, 17, Origin("host", "reader", 1), ("a.jpg", "b.jpg"), (1.5, 2.5))
    frames = named(codec).encode(item, Envelope(passport=passport, sender=b"12345678", number=5))
    message = named(codec).decode([bytes(frame) for frame in frames])
    assert_same(item, message.item)
    assert (message.envelope.passport, message.envelope.sender, message.envelope.number) == (passport, b"12345678", 5)


@pytest.mark.parametrize("codec", ["tensorcom", "tenbin", "msgpack"])
@pytest.mark.parametrize("data", [b"", b"\xff\xd8 a photograph \0"])
def test_bytes_come_back_as_bytes(codec, data):
    message = named(codec).decode([bytes(frame) for frame in named(codec).encode({"image": data, "label": LABELS}, Envelope())])
    assert type(message.item["image"]) is bytes and message.item["image"] == data
    np.testing.assert_array_equal(message.item["label"], LABELS)


def test_bytes_are_an_array_to_who_knows_no_extension():
    frames = named("tensorcom").encode((b"abc",), Envelope())
    (array,) = tenbin.decode_list(frames)
    assert (array.dtype, array.tolist()) == (np.uint8, [97, 98, 99])


def test_the_codecs_differ_in_their_frames():
    assert len(named("tensorcom").encode(ITEMS["tuple"], Envelope())) == 4
    assert len(named("tenbin").encode(ITEMS["tuple"], Envelope())) == 1
    assert len(named("msgpack").encode(ITEMS["tuple"], Envelope())) == 1


def test_names_of_up_to_8_ascii_characters_are_infos_too():
    frames = named("tensorcom").encode(ITEMS["dict"], Envelope())
    assert tenbin.decode_list(frames, infos=True)[1] == ["image", "", ""]
    assert named("tensorcom").decode(frames).infos == ("image", "", "")


def test_arrays_of_a_peer_without_extensions_are_a_tuple():
    message = named("tensorcom").decode(tenbin.encode_list([IMAGES, LABELS], ["x", "y"]))
    assert_same(message.item, (IMAGES, LABELS))
    assert (message.envelope, message.infos) == (None, ("x", "y"))


def test_nothing_is_copied_on_either_side():
    frames = named("tensorcom").encode((IMAGES, LABELS), Envelope())
    assert np.shares_memory(np.frombuffer(frames[1], np.uint8), IMAGES)
    assert np.shares_memory(named("tensorcom").decode(frames).item[0], IMAGES)


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ((), "an item without fields cannot be sent; drop it"),
        ({}, "an item without fields"),
        ({"label": 3}, "field 'label' is a int, but only numpy arrays can be sent"),
        ((IMAGES, "name"), "field 1 is a str"),
        ({"x": np.zeros(2)}, "field 'x' has the 64-bit dtype float64; send astype(np.float32), or pass allow64=True"),
        ({1: LABELS}, "expected only strings"),
        (({"nested": LABELS},), "field 0 is a dict"),
    ],
)
def test_a_field_that_cannot_be_sent_is_named_with_the_way_out(item, says):
    with pytest.raises(TypeError) as caught:
        named("tensorcom").encode(item, Envelope())
    assert says in str(caught.value)


def test_64_bit_arrays_are_sent_when_allowed():
    frames = named("tensorcom").encode((np.arange(3),), Envelope(), allow64=True)
    assert_same(named("tensorcom").decode(frames).item, (np.arange(3),))


def extended(envelope, *arrays):
    frames = tenbin.encode_list(arrays)
    frames[0] += pack(envelope)
    return frames


@pytest.mark.parametrize(
    ("frames", "says"),
    [
        ([], "the message has no frames"),
        (extended(Envelope("dict", names=("a",)), LABELS, LABELS), "1 names for 2 arrays"),
        (extended(Envelope("value"), LABELS, LABELS), "the sender announces one value, but there are 2 arrays"),
        (extended(Envelope(bools=(0,)), LABELS), "array 0 is announced as boolean"),
        (extended(Envelope(bools=(0,)), np.array([0, 2], np.uint8)), "array 0 is announced as boolean"),
        (extended(Envelope(bools=(7,)), LABELS), "array 7 is announced as boolean"),
        (extended(Envelope(byte_strings=(0,)), LABELS), "array 0 is announced as bytes, but is not an array with dtype u1 and one axis"),
        (extended(Envelope(byte_strings=(0,)), IMAGES), "array 0 is announced as bytes"),
        (extended(Envelope(byte_strings=(-1,)), IMAGES[0, 0, 0]), "array -1 is announced as bytes"),
        (extended(Envelope(byte_strings=(0, 0)), IMAGES[0, 0, 0]), "array 0 is announced as bytes"),
        (extended(Envelope(bools=(0,), byte_strings=(0,)), np.zeros(3, np.uint8)), "array 0 is announced as bytes"),
    ],
)
def test_an_extension_that_does_not_fit_its_arrays_is_refused(frames, says):
    with pytest.raises(FrameError, match=says):
        named("tensorcom").decode(frames)


@pytest.mark.parametrize("codec", ["tenbin", "msgpack"])
def test_a_message_of_many_frames_is_not_one_of_a_codec_with_one(codec):
    with pytest.raises(FrameError, match=r"4 frames; expected one. If the sender uses another codec, set codec=tensorcom"):
        named(codec).decode(tenbin.encode_list([IMAGES, LABELS]))


@pytest.mark.parametrize("codec", ["tensorcom", "tenbin", "msgpack"])
def test_the_end_of_a_sender_travels_in_every_codec(codec):
    frames = named(codec).encode((IMAGES[:0],), Envelope(sender=b"12345678", number=9, end=True))
    envelope = named(codec).decode([bytes(frame) for frame in frames]).envelope
    assert (envelope.end, envelope.sender, envelope.number) == (True, b"12345678", 9)


def test_an_unknown_codec_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match="unknown codec 'tensorcon'; did you mean tensorcom"):
        named("tensorcon")


@pytest.mark.parametrize(
    ("sends", "reads", "say"), [("msgpack", "tensorcom", "codec=msgpack or tenbin"), ("tensorcom", "msgpack", "codec=tensorcom")]
)
def test_a_message_in_another_codec_or_with_a_topic_names_the_way_out(sends, reads, say):
    frames = named(sends).encode((np.zeros(3, np.uint8),), Envelope())
    for wrong in (frames, [b"topic", *named(reads).encode((np.zeros(3, np.uint8),), Envelope())]):
        with pytest.raises(
            FrameError, match=f"another codec, set {say} here, or this codec at the sender. If .* has a topic, add the same #topic"
        ):
            named(reads).decode(wrong)
