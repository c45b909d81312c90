"""tensorpack's ImageNet tutorial (docs/tutorial/efficient-dataflow.md) with highway's stages, and what it must give."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from highway import Pipeline, Stage
from highway.data import photos
from highway.modules import Augmentations, Batch, Map, Peek, Processes, Repeat, Shuffle, Take
from highway.transforms import Brightness, Contrast, FlipX, RandomResizedCrop, Resize, Saturation

PHOTOS = Path(photos()) / "train"
FILES = [
    [str(path), label] for label, folder in enumerate(sorted(PHOTOS.iterdir())) if folder.is_dir() for path in sorted(folder.glob("*.jpg"))
]

# its augmentor list, of which Lighting and the random order of the colour transforms have no counterpart yet
LOTS_OF_AUGMENTORS = [RandomResizedCrop((224, 224)), Brightness(0.4), Contrast(0.4), Saturation(0.4), FlipX()]


def read(datapoint):
    """Do what dataset.ILSVRC12 does for each file: ``yield [cv2.imread(filename), label]``."""
    return [cv2.imread(datapoint[0], cv2.IMREAD_COLOR), datapoint[1]]


def jpegs():
    """Do what its BinaryILSVRC12 does: the files' bytes as uint8 arrays."""
    for filename, label in FILES:
        yield [np.fromfile(filename, np.uint8), label]


def decode(jpeg):
    return cv2.imdecode(jpeg, cv2.IMREAD_COLOR)


def augmented(images):
    return Augmentations(images, field=0)


def test_random_read_of_images_at_their_own_sizes():
    # ds0 = dataset.ILSVRC12(..., shuffle=True); ds1 = BatchData(ds0, 256, use_list=True)
    with Pipeline([FILES, Shuffle(len(FILES)), read, Batch(16, as_list=True)]) as ds:
        images, labels = ds.dequeue()
    assert type(images) is list and len(images) == 16 and all(image.dtype == np.uint8 and image.ndim == 3 for image in images)
    assert all(type(label) is int for label in labels) and len(set(labels)) > 1


def test_batches_are_arrays_once_images_have_one_size(capsys):
    # ds = AugmentImageComponent(ds, [imgaug.Resize(224)]); ds = BatchData(ds, 256); PrintData(ds)
    with Pipeline([FILES, read, augmented([Resize((224, 224))]), Batch(16), Peek(names=["image", "label"]), Take(2)]) as ds:
        batches = list(ds)
    for images, labels in batches:
        assert (images.shape, images.dtype, labels.shape, labels.dtype) == ((16, 224, 224, 3), np.uint8, (16,), np.int32)
    assert capsys.readouterr().out.splitlines()[1:] == ["  image: uint8 (16, 224, 224, 3), 0 to 255", "  label: int32 (16,), 0 to 0"]


def test_threads_map_on_one_source():
    # ds1 = ThreadedMapData(ds0, nr_thread=25, map_func=lambda dp: [augmentor.augment(cv2.imread(dp[0])), dp[1]], buffer_size=1000)
    def ds(num_workers):
        stages = [
            FILES,
            Stage(read, num_workers=num_workers, buffer_size=20),
            Stage(augmented(LOTS_OF_AUGMENTORS), num_workers=num_workers),
        ]
        with Pipeline([*stages, Batch(32)], seed=1) as pipeline:
            return list(pipeline)

    one, many = ds(1), ds(5)
    assert sum(len(labels) for _, labels in one) == len(FILES)  # nothing is lost or doubled
    for (images, labels), (same_images, same_labels) in zip(one, many, strict=True):
        np.testing.assert_array_equal(images, same_images)
        np.testing.assert_array_equal(labels, same_labels)


@pytest.mark.slow
def test_a_whole_dataflow_in_a_process():
    # ds1 = PrefetchDataZMQ(ds1, nr_proc=1); ds = BatchData(ds1, 256)
    inside = [FILES[:20], read, augmented(LOTS_OF_AUGMENTORS)]
    with Pipeline([Processes(inside), Batch(8)], seed=1) as there, Pipeline([*inside, Batch(8)], seed=1) as here:
        for (images, labels), (same_images, same_labels) in zip(there, here, strict=True):
            np.testing.assert_array_equal(images, same_images)
            np.testing.assert_array_equal(labels, same_labels)


def test_sequential_read_decodes_a_component_and_shuffles_locally():
    # LocallyShuffleData(ds, 50000); MapDataComponent(ds, imdecode, 0); AugmentImageComponent(ds, ...); BatchData(ds, 256)
    stages = [jpegs, Shuffle(50), Map(decode, field=-2), augmented(LOTS_OF_AUGMENTORS), Batch(32), Repeat(times=2)]
    with Pipeline(stages) as ds:
        batches = [list(ds) for _ in range(2)]
    epochs = [np.concatenate([labels for _, labels in epoch]) for epoch in batches]
    assert {images.shape[1:] for epoch in batches for images, _ in epoch} == {(224, 224, 3)}
    expected = sorted(label for _, label in FILES)
    assert [sorted(labels.tolist()) for labels in epochs] == [expected, expected]
    assert not np.array_equal(*epochs)
