"""The conformance file that goes with docs/reference/wire.md: bytes that every peer must read, and bytes that it must refuse."""

import json
from pathlib import Path

import numpy as np
import pytest

from highway import FrameError, Origin, Passport
from highway.engine.batch import fields
from highway.wire import chunks, tenbin
from highway.wire.codec import named
from highway.wire.envelope import Envelope

GOLDEN = json.loads((Path(__file__).parent / "golden" / "messages.json").read_text())


def frames(case):
    return [bytes.fromhex(frame) for frame in case["frames"]]


def envelope(values):
    if values is None:
        return None
    passport = values["passport"]
    if passport is not None:
        origin = Origin(*passport["origin"])
        passport = Passport(passport["epoch"], passport["index"], origin, tuple(passport["keys"]), tuple(passport["times"]))
    return Envelope(
        values["kind"],
        tuple(values["names"]),
        tuple(values["bools"]),
        passport,
        bytes.fromhex(values["sender"]),
        values["number"],
        values["shared"],
        values["end"],
        mark=values.get("mark", False),
        leave=values.get("leave"),
        byte_strings=tuple(values.get("byte_strings", ())),
    )


def arrays(case):
    """Return the arrays of a message, and bytes in the place of its byte strings."""
    found = [np.array(array["values"], array["dtype"]).reshape(array["shape"]) for array in case["arrays"]]
    byte_strings = (case["envelope"] or {}).get("byte_strings", ())
    return [array.tobytes() if place in byte_strings else array for place, array in enumerate(found)]


def named_by(case):
    return case["name"]


@pytest.mark.parametrize("case", GOLDEN["messages"], ids=named_by)
def test_golden_bytes_are_read(case):
    message = named(case["codec"]).decode(frames(case))
    assert message.envelope == envelope(case["envelope"])
    assert list(message.infos) == case["infos"]
    for found, expected in zip(fields(message.item), arrays(case), strict=True):
        assert type(found) is type(expected)
        if isinstance(found, np.ndarray):
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found, expected)
    if message.envelope and message.envelope.kind == "dict":
        assert tuple(message.item) == message.envelope.names


@pytest.mark.parametrize("case", GOLDEN["messages"], ids=named_by)
def test_golden_bytes_are_written(case):
    expected = frames(case)
    sent = envelope(case["envelope"])
    if sent is None and case["codec"] != "msgpack":
        plain = tenbin.encode_list(arrays(case), case["infos"])
        encoded = plain if case["codec"] == "tensorcom" else [chunks.encode_chunks(plain)]
    else:
        item = arrays(case)
        if sent and sent.kind == "dict":
            item = dict(zip(sent.names, item, strict=True))
        elif sent and sent.kind == "value":
            item = item[0]
        elif sent and sent.kind == "tuple":
            item = tuple(item)
        encoded = named(case["codec"]).encode(item, sent or Envelope(), allow64=True)
    assert [bytes(frame) for frame in encoded] == expected


@pytest.mark.parametrize("case", GOLDEN["refused"], ids=named_by)
def test_golden_damage_is_refused(case):
    with pytest.raises(FrameError):
        named(case["codec"]).decode(frames(case))
