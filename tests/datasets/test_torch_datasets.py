"""Datasets of torch as they are, without an adapter."""

import numpy as np
import pytest

from highway import Pipeline
from highway.datasets import ImageFolder
from highway.errors import ParameterError
from highway.modules import ImageFileReader, Reader

torch = pytest.importorskip("torch")
data = pytest.importorskip("torch.utils.data")


class Squares(data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, number):
        return {"x": torch.tensor([number, number**2], dtype=torch.float32), "label": number % 3}


class Encoded(data.Dataset):
    def __init__(self):
        self.folder = ImageFolder("highway:photos/val")

    def __len__(self):
        return len(self.folder)

    def __getitem__(self, number):
        image, label = self.folder[number]
        return image, int(label)


def read(reader):
    with Pipeline([reader], seed=3) as pipeline:
        return list(pipeline)


@pytest.mark.parametrize(
    "dataset",
    [
        Squares(),
        data.Subset(Squares(), [7, 2, 2, 5, 0]),
        data.ConcatDataset([Squares(), Squares()]),
        data.TensorDataset(torch.arange(10).reshape(5, 2), torch.arange(5, dtype=torch.uint8)),
    ],
    ids=lambda dataset: type(dataset).__name__,
)
def test_the_batches_are_those_of_the_dataloader(dataset):
    batches = read(Reader(dataset, 4, shuffle=False, epochs=1))
    expected = list(data.DataLoader(dataset, 4))
    assert len(batches) == len(expected)
    for batch, tensors in zip(batches, expected, strict=True):
        assert type(batch) is (dict if isinstance(tensors, dict) else tuple)
        for field in tensors if isinstance(tensors, dict) else range(len(tensors)):
            assert isinstance(batch[field], np.ndarray)
            np.testing.assert_array_equal(batch[field], tensors[field])


def test_encoded_images_are_decoded_into_the_same_batches_as_those_of_the_folder():
    batches, expected = (read(ImageFileReader(of, 8, (32, 32), epochs=1)) for of in (Encoded(), ImageFolder("highway:photos/val")))
    assert len(batches) == len(expected) == 4
    for (images, labels), (expected_images, expected_labels) in zip(batches, expected, strict=True):
        np.testing.assert_array_equal(images, expected_images)
        np.testing.assert_array_equal(labels, expected_labels)


def test_a_dataset_without_numbers_is_an_error_that_says_what_is_missing():
    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter(range(3))

    with pytest.raises(ParameterError, match=r"dataset=<.*; expected a Dataset, an object with __len__, __getitem__"):
        Reader(Stream())
    assert list(Pipeline([Stream()])) == [0, 1, 2]  # a source as it is
