"""Every transform there is gives the same bits wherever it runs."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from transform_instances import EVERY, ONLY_BYTES

from highway import Pipeline, Stage, Traits
from highway.modules import Augmentations, ZMQSink, ZMQSource
from highway.transforms import Chain, ColorSpace


class All:
    """Augment a sample by each transform there is, and return a hash of what each makes of it."""

    def __highway__(self):
        return Traits(parallel=True)

    def __init__(self):
        fields = {"boxes": "boxes", "points": "points", "mask": "mask", "with_boxes": ["labels"]}
        self.augmentations = [Augmentations([transform], **fields) for transform in EVERY]

    def __call__(self, item, rng):
        hashes = []
        for augment in self.augmentations:
            done = augment({**item, "image": item["image"] if takes_floats(augment) else item["bytes"]}, rng)
            parts = [done[name] for name in ("image", "boxes", "points", "mask", "labels")]
            shapes = repr([(part.shape, part.dtype.str) for part in parts]).encode()
            hashes.append(hashlib.sha256(b"".join([shapes, *(part.tobytes() for part in parts)])).digest())
        return {"hashes": np.frombuffer(b"".join(hashes), np.uint8).reshape(len(EVERY), 32)}


def takes_floats(augment):
    return type(augment.transforms[0]) not in ONLY_BYTES


def samples():
    for number in range(6):
        rng = np.random.default_rng(number)
        image = rng.integers(0, 256, (40, 48, 3), np.uint8)
        corners = np.sort(rng.random((3, 2, 2), np.float32), axis=1) * np.float32([48, 40])
        yield {
            "image": image / np.float32(255) if number % 2 else image,
            "bytes": image,
            "boxes": corners.reshape(3, 4),
            "labels": np.arange(3, dtype=np.int32),
            "points": rng.random((5, 2), np.float32) * 40,
            "mask": (image[..., 0] > 128).astype(np.uint8),
        }


@pytest.mark.slow
def test_every_transform_gives_the_same_bits_for_any_number_of_workers_and_on_both_sides_of_a_link(ipc):
    def pipeline(source, workers):
        return Pipeline([source, Stage(All(), name="all", num_workers=workers)], seed=5)

    def run(source, workers):
        with pipeline(source, workers) as running:
            return np.stack([item["hashes"] for item in running])

    given = list(samples())
    alone = run(given, 1)
    for workers in (2, 4):
        assert_array_equal(run(given, workers), alone)
    for location in (f"zpush+ipc://{ipc()}", "zpush+inproc://every-transform"):
        sender = Pipeline([given, ZMQSink(location)])
        with pipeline(ZMQSource(location.replace("zpush", "zpull")), 2) as receiver, ThreadPoolExecutor(1) as pool:
            sent = pool.submit(sender.run)
            sent.add_done_callback(lambda done: done.exception() and receiver.stop())  # so that it waits for nobody
            behind = np.stack([item["hashes"] for item in receiver])
            sent.result()
        wrong = [str(EVERY[number]) for number in np.flatnonzero((behind != alone).any(axis=(0, 2)))]
        assert wrong == []
    other = Pipeline([given, Stage(All(), name="all")], seed=6)
    with other:
        differ = (np.stack([item["hashes"] for item in other]) != alone).any(axis=(0, 2))
    assert differ.mean() > 0.7  # all in which there is chance


@pytest.mark.parametrize("transform", EVERY, ids=str)
def test_a_batch_is_what_its_images_are_one_by_one(transform):
    for shape, dtype in product([(9, 16, 18, 3), (9, 16, 18, 1), (3, 130, 140, 3)], [np.uint8, np.float32]):
        if (dtype == np.float32 and type(transform) in ONLY_BYTES) or (shape[3] == 1 and isinstance(transform, ColorSpace)):
            continue
        images = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
        images = images if dtype == np.uint8 else images / dtype(255)
        rng, chain, one_by_one = np.random.default_rng(1), Chain(transform), []
        for image in images:
            one_by_one.append(chain.image(image, chain.draw_for(image.shape[:2], rng, None)))
        augment = Augmentations([transform], boxes="boxes" if chain.sees_boxes else None)
        item = {"image": images, **({"boxes": np.zeros((len(images), 0, 4))} if chain.sees_boxes else {})}
        if len({image.shape for image in one_by_one}) > 1:
            with pytest.raises(ValueError, match="all images of a batch need the same shape and dtype"):
                augment(item, np.random.default_rng(1))
        else:
            assert_array_equal(augment(item, np.random.default_rng(1))["image"], np.stack(one_by_one), strict=True)
