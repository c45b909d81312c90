"""Feed damaged messages to everything that decodes what a stranger sent: ``tox -e fuzz -- -max_total_time=600``.

Each codec must return a message or raise ``FrameError``; anything else is a finding. The first byte of the input chooses the codec, and two
bytes before each frame are its length. It starts from one message of each codec; inputs that were interesting are kept in the first folder
given as an argument.
"""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["highway", "msgpack"]):
    from highway import FrameError
    from highway.engine.batch import fields
    from highway.wire import chunks
    from highway.wire.codec import CODECS
    from highway.wire.envelope import MAGIC, Envelope, pack, unpack


def frames_of(data: bytes) -> list[bytes]:
    """Cut the input into frames."""
    frames, at = [], 0
    while at + 2 <= len(data):
        size = int.from_bytes(data[at : at + 2], "little")
        frames.append(data[at + 2 : at + 2 + size])
        at += 2 + size
    return frames


def decode(data: bytes) -> None:
    """Decode one input in the way that its first byte chooses."""
    if not data:
        return
    way, rest = data[0] % (len(CODECS) + 2), data[1:]
    try:
        if way < len(CODECS):
            codec = list(CODECS.values())[way]
            message = codec.decode([rest] if codec.single else frames_of(rest))
            for array in fields(message.item):
                repr(array)
        elif way == len(CODECS):
            envelope = unpack(MAGIC + rest)
            assert envelope is None or repr(unpack(pack(envelope))) == repr(envelope)  # by repr, since times may be NaN
        else:
            chunks.decode_buffer(rest)
    except FrameError:
        return


def seeds() -> list[bytes]:
    """Return inputs to start from: one message of each codec."""
    import numpy as np

    inputs = []
    for number, codec in enumerate(CODECS.values()):
        frames = [bytes(frame) for frame in codec.encode((np.zeros((2, 3), np.uint8),), Envelope(sender=b"12345678", number=3))]
        body = frames[0] if codec.single else b"".join(len(frame).to_bytes(2, "little") + frame for frame in frames)
        inputs.append(bytes([number]) + body)
    return inputs


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(seeds()):
            (Path(folder) / str(number)).write_bytes(seed)
        atheris.Setup([*sys.argv, folder], decode)
        atheris.Fuzz()
