"""Senders that do not make the same pixels of the same files are noticed by who receives from them."""

import logging
import struct
import sys
import types

import msgpack
import numpy as np
import pytest

from highway import FrameError, Pipeline
from highway.images.software import software
from highway.modules import ZMQSource
from highway.wire.envelope import MAGIC, VERSION, Envelope, pack, unpack
from highway.wire.sender import LinkSender
from highway.wire.url import parse

ITEM = (np.zeros(3, np.uint8),)


def test_the_software_is_named():
    assert software().startswith("highway 0.1.0, JPEGs by ")
    assert ", pixels by " in software()


def test_the_software_is_named_the_same_while_another_thread_imports_it(monkeypatch):
    pytest.importorskip("cv2")
    software.cache_clear()
    monkeypatch.setitem(sys.modules, "cv2", types.ModuleType("cv2"))  # which has no __spec__ yet
    assert "by OpenCV" in software()
    monkeypatch.setitem(sys.modules, "cv2", None)  # what an import finds where it is not installed
    software.cache_clear()
    assert "pixels by Pillow" in software()
    software.cache_clear()


def received(ipc, caplog, *senders):
    """Receive an item from senders with such software, and return the warnings."""
    place = ipc()
    source = ZMQSource(f"ipc://{place}?senders={len(senders)}", bind=True, timeout=30)
    with Pipeline([source]) as pipeline, caplog.at_level(logging.WARNING, "highway"):
        with pytest.raises(TimeoutError):
            pipeline.dequeue(block=False)
        for made in senders:
            with LinkSender(parse(f"zpush+ipc://{place}", "send"), made=made) as sender:
                sender.send(ITEM)
                sender.finish()
        assert len(list(pipeline)) == len(senders)
    return [record.getMessage() for record in caplog.records]


def test_senders_with_the_same_software_are_no_news(ipc, caplog):
    assert received(ipc, caplog, (software(), "a"), (software(), "b"), ()) == []


def test_senders_with_other_decoders_are_told_once(ipc, caplog):
    other = software().replace("JPEGs by ", "JPEGs by an older ")
    (said,) = received(ipc, caplog, (software(), "gpu1"), (other, "gpu2"), (other, "gpu3"))
    assert said.partition(": its senders")[2] == (
        f" have different software, so the same seed gives different batches: gpu1 has {software()}; gpu2 has {other}. "
        "Install the same versions on both; `highway doctor` lists them"
    )


def test_a_sender_with_another_version_is_told(ipc, caplog):
    (said,) = received(ipc, caplog, ("highway 9.9, JPEGs by magic, pixels by magic", "gpu1"))
    assert said.endswith("gpu1 sends with highway 9.9, but this process runs highway 0.1.0; use the same software on both")


@pytest.mark.parametrize("made", [("a",), ("a", 1), ("x" * 600, "h"), ("a", "b", "c"), ({}, "b")])
def test_software_that_is_no_two_short_texts_is_refused(made):
    with pytest.raises(FrameError, match="extension: made"):
        unpack(pack(Envelope(made=made)) if all(isinstance(part, str) for part in made) else _packed(made))


def _packed(made):
    payload = msgpack.packb({"kind": "tuple", "made": made})
    return struct.pack("<8sqq", MAGIC, VERSION, len(payload)) + payload


def test_software_arrives_as_it_was_sent():
    assert unpack(pack(Envelope(made=("highway 1", "gpu1")))).made == ("highway 1", "gpu1")
