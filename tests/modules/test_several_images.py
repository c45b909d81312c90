"""What holds for all stages that put several images together."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from highway import Pipeline, Stage
from highway.modules import CopyPaste, CutMix, MixUp, Mosaic, ZMQSink, ZMQSource

RNG = np.random.default_rng(0)
BATCHES = []
for _ in range(12):
    low = RNG.integers(0, 12, (6, 3, 2))
    boxes = np.concatenate([low, low + RNG.integers(1, 8, (6, 3, 2))], axis=2).astype(np.float32)
    boxes[::2, 2] = 0  # padding
    down, right = np.mgrid[:20, :20]
    x1, y1, x2, y2 = (boxes[..., side, None, None] for side in range(4))
    masks = ((x1 <= right) & (right < x2) & (y1 <= down) & (down < y2)).astype(np.uint8)
    images = RNG.integers(0, 256, (6, 20, 20, 3), dtype=np.uint8)
    BATCHES.append(
        {
            "image": images,
            "ids": RNG.integers(0, 9, (6, 3), np.int32),
            "boxes": boxes,
            "masks": masks,
            "label": RNG.integers(0, 5, 6, np.int32),
        }
    )
CLASSES = [{name: batch[name] for name in ("image", "label")} for batch in BATCHES]
STAGES = {
    "MixUp": (MixUp(5), CLASSES),
    "CutMix per image": (CutMix(5, per_image=True, p=0.7), CLASSES),
    "Mosaic": (Mosaic((24, 32), "boxes", mask="masks", with_boxes=["ids", "masks"]), BATCHES),
    "CopyPaste": (CopyPaste("boxes", "masks", ["ids"]), BATCHES),
}


def values(item):
    """Return what tells items apart to the bit."""
    return {
        name: [(value.dtype.str, value.shape, value.tobytes()) for value in (field if isinstance(field, list) else [field])]
        for name, field in item.items()
    }


@pytest.mark.parametrize("name", STAGES)
def test_the_same_bits_come_of_any_number_of_workers_and_behind_a_link(name, ipc):
    stage, batches = STAGES[name]
    before = [values(batch) for batch in batches]

    def pipeline(source, workers):
        return Pipeline([source, Stage(stage, name="several", num_workers=workers)], seed=7)

    def run(source, workers):
        with pipeline(source, workers) as running:
            return [values(item) for item in running]

    place = ipc()
    alone = run(batches, 1)
    sender = Pipeline([batches, ZMQSink(f"ipc://{place}")])
    with pipeline(ZMQSource(f"ipc://{place}"), 2) as receiver, ThreadPoolExecutor(1) as pool:
        sent = pool.submit(sender.run)
        sent.add_done_callback(lambda done: done.exception() and receiver.stop())  # so that it waits for nobody
        behind = [values(item) for item in receiver]
        sent.result()
    assert alone != before and len(alone) == 12
    assert run(batches, 4) == alone == behind
    assert [values(batch) for batch in batches] == before  # nothing is written into what comes in
    assert run(batches[:1], 1) == alone[:1] and run([batches[0]] * 2, 1)[0] != run([batches[0]] * 2, 1)[1]
