"""``DecodeImage`` on several images at once: what comes out is what it makes of each alone."""

import io
import threading
from dataclasses import dataclass, field

import numpy as np
import pytest
from PIL import Image
from waiting import wait_until

from highway import Pipeline, Stage, Traits
from highway.data import photos
from highway.engine.context import here
from highway.engine.randomness import generator, stage_key
from highway.engine.stage import Passport, Stamped
from highway.errors import ImageError
from highway.images.decode import extension_or_none
from highway.images.run import decode_run
from highway.modules import Augmentations, Batch, DecodeImage
from highway.transforms import FlipX, RandomCrop, RandomResizedCrop

PHOTO = Image.open(f"{photos()}/train/coffee/00.jpg").resize((90, 70))
needs_extension = pytest.mark.skipif(extension_or_none() is None, reason="highway.images._jpeg is not built")


def encoded(kind="JPEG", size=(90, 70)):
    buffer = io.BytesIO()
    PHOTO.resize(size).save(buffer, kind)
    return buffer.getvalue()


GOOD = [encoded(), encoded("PNG"), encoded(size=(64, 200)), encoded("GIF")] * 3
BAD = [{"image": encoded()[:-300]}, {"image": "a text"}, {"label": 1}, {"image": b""}, {"image": encoded(size=(20, 20))}]


def outcome(decode, item, rng):
    """Return what the map makes of one item, as :class:`WorkerAhead` says it."""
    try:
        return None, decode(item, rng)
    except Exception as error:
        return error, None


@needs_extension
@pytest.mark.parametrize("options", [{"crop": RandomCrop((24, 32)), "flip": 0.5}, {"shape": (24, 32), "antialias": True}])
def test_several_images_are_what_each_is_alone(options):
    decode = DecodeImage(**options)
    items = [{"image": data, "label": n} for n, data in enumerate(GOOD)]
    items[3:3] = BAD
    ahead = Traits.of(decode).ahead(here())
    assert ahead.depth == 1
    ahead.send([Stamped(item, Passport(epoch=1, index=7 + n)) for n, item in enumerate(items)])
    got, expected = list(ahead.receive()), [outcome(decode, item, generator(0, 1, 7 + n)) for n, item in enumerate(items)]
    assert 1 <= ahead.depth <= 16
    assert [(type(error), str(error)) for error, _ in got] == [(type(error), str(error)) for error, _ in expected]
    assert sum(error is None for error, _ in got) == len(GOOD) + ("shape" in options)  # the last of the bad ones is too small to crop
    for (error, item), (_, alone) in zip(got, expected, strict=True):
        if error is None:
            assert item.keys() == alone.keys()
            np.testing.assert_array_equal(item["image"], alone["image"])
            assert item["image"].flags.writeable


@needs_extension
def test_images_that_wait_are_decoded_together_and_errors_are_of_their_own_items(monkeypatch):
    counts = []

    def counted(files, *args):
        if not counts:
            wait_until(lambda: pipeline.stats().stages[0].queued > 4)  # else a slow source may give each item to a worker that waits
        counts.append(len(files))
        return decode_run(files, *args)

    monkeypatch.setattr("highway.modules.decode.decode_run", counted)
    data = [*GOOD, b"no image", *GOOD * 8]
    decode = DecodeImage(0, crop=RandomResizedCrop((24, 32)), flip=0.5)
    with Pipeline([data, Stage(decode, num_workers=2, on_error="skip")], seed=3) as pipeline:
        stamped = list(pipeline.stamped())
    assert sum(counts) == len(data) and max(counts) > 1
    assert [passport.index for _, passport in stamped] == [n for n in range(len(data)) if n != len(GOOD)]
    key = stage_key(3, "DecodeImage")
    for item, passport in stamped:
        np.testing.assert_array_equal(item, decode(data[passport.index], generator(key, 0, passport.index)))


@needs_extension
def test_the_first_error_ends_the_run_and_names_its_item():
    with (
        pytest.raises(ImageError) as caught,
        Pipeline([[*GOOD, b"no image", *GOOD], Stage(DecodeImage(0, shape=(8, 8)), num_workers=2)]) as pipeline,
    ):
        list(pipeline)
    assert f"epoch 0, item {len(GOOD)}" in "".join(caught.value.__notes__)


@dataclass
class OfOneThread:
    """A crop that is not thread-safe."""

    shape: tuple[int, int] = (8, 8)
    threads: set[int] = field(default_factory=set)

    def box(self, size, rng):
        self.threads.add(threading.get_ident())
        assert len(self.threads) == 1
        return 0, 0, 8, 8


def test_each_worker_has_a_copy_of_its_own_if_it_is_to():
    decode = DecodeImage(0, crop=OfOneThread())
    with Pipeline([GOOD * 4, Stage(decode, num_workers=3, per_worker=True)]) as pipeline:
        assert len(list(pipeline)) == len(GOOD) * 4
    assert not decode.crop.threads


class Darker(DecodeImage):
    def __call__(self, item, rng):
        return super().__call__(item, rng) // 2


def test_a_class_with_a_call_of_its_own_and_whole_images_are_decoded_one_by_one():
    assert Traits.of(Darker(0, shape=(8, 8))).ahead(here()) is None
    assert Traits.of(DecodeImage(0)).ahead(here()) is None
    with Pipeline([GOOD, Darker(0, shape=(8, 8))]) as pipeline:
        assert max(image.max() for image in pipeline) < 128


def test_without_the_extension_images_are_decoded_one_by_one(monkeypatch):
    monkeypatch.setattr("highway.modules.decode.extension_or_none", lambda: None)
    assert Traits.of(DecodeImage(0, shape=(8, 8))).ahead(here()) is None


def test_boxes_do_not_stay_where_their_image_is_cropped_or_scaled():
    item = {"image": encoded(), "boxes": np.float32([[2, 2, 12, 12]])}
    for stage in (DecodeImage(shape=(8, 8)), DecodeImage(crop=RandomResizedCrop((8, 8)), flip=0.5)):
        with pytest.raises(ValueError, match="this stage moves pixels, but not the boxes in the field 'boxes'; decode the whole"):
            list(Pipeline([[item], stage]))
    assert [whole["boxes"] is item["boxes"] for whole in Pipeline([[item], DecodeImage()])] == [True]


def test_a_batch_of_encoded_images_names_decode_image():
    for batch, stage in (
        (Batch(2), DecodeImage(0)),
        (Batch(2, as_list=True), DecodeImage(0)),
        (Batch(2), Augmentations([FlipX()])),
        (Batch(2, as_list=True), Augmentations([FlipX()])),
    ):
        with pytest.raises(ValueError, match=r"put DecodeImage before.* Batch"):
            list(Pipeline([[(encoded(),)] * 2, batch, stage]))


def test_a_transform_as_a_stage_names_augmentations():
    for item in [(np.zeros((4, 4, 3), np.uint8), 1), {"image": np.zeros((4, 4, 3), np.uint8)}]:
        with pytest.raises(ValueError, match=r"FlipX: expected an image.*, an item: .* use the stage Augmentations\(\[\.\.\.\]\)"):
            list(Pipeline([[item], FlipX()]))
