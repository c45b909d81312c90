"""The dataset that torch's ``DataLoader`` reads a connection through."""

import shutil
import tempfile

import numpy as np
import pytest

from highway.wire.connection import Connection

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402

from highway.adapters.torch import TensorcomDataset  # noqa: E402

IMAGES = np.zeros((2, 4, 4, 3), np.uint8)


@pytest.fixture
def place():
    folder = tempfile.mkdtemp(prefix="hw")  # a socket's path must be short
    yield f"{folder}/link"
    shutil.rmtree(folder)


def test_an_epoch_has_the_length_asked_for_and_the_next_goes_on(place):
    dataset = TensorcomDataset(f"zpull+ipc://{place}", length=3)
    with Connection(f"zpush+ipc://{place}") as sender:
        for number in range(7):
            sender.send([IMAGES, np.full(2, number, np.int32)])
        epochs = [[labels[0].item() for _, labels in epoch] for epoch in (DataLoader(dataset, batch_size=None), dataset)]
        images, labels = next(iter(dataset))
        dataset.close()
    assert epochs == [[0, 1, 2], [3, 4, 5]]
    assert (images.shape, images.dtype) == ((2, 4, 4, 3), np.uint8)
    assert (labels.dtype, labels.tolist()) == (np.int32, [6, 6])
    assert len(dataset) == 3


def test_batches_come_as_they_were_sent_unless_converted(place):
    for options, shape, label in (({}, (2, 4, 4, 3), torch.int32), ({"converters": "torch"}, (2, 3, 4, 4), torch.int64)):
        dataset = TensorcomDataset(f"zpull+ipc://{place}", **options)
        assert len(dataset) == 1000000
        with Connection(f"zpush+ipc://{place}") as sender:
            sender.send([IMAGES, np.array([3, 4], np.int32)])
            images, labels = next(iter(DataLoader(dataset, batch_size=None)))
            dataset.close()
        images += 1  # it may be written into
        assert (images.shape, images.dtype, labels.dtype, labels.tolist()) == (shape, torch.uint8, label, [3, 4])


def test_further_arguments_go_to_the_connection(place):
    dataset = TensorcomDataset(f"zpull+ipc://{place}?senders=1", length=0, converters="numpy")
    with Connection(f"zpush+ipc://{place}?end=1") as sender:
        sender.send([IMAGES])
        assert sender.bound == []
        iterator = iter(dataset)
        (images,) = next(iterator)
        sender.serve([])
        assert list(iterator) == []
        dataset.close()
    assert isinstance(images, np.ndarray)
