"""A program for the webdataset package, and its port, from the same shards."""

import gc
import warnings
from pathlib import Path

import numpy as np
import pytest
import webdataset as wds

from highway import DROP, Pipeline, Stage
from highway.data import photos
from highway.datasets import ImageFolder, Tar
from highway.modules import Batch, DecodeImage, Map, Reader, Select, ShardSink, Shuffle, WebDatasetSource

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
FOLDER = ImageFolder(f"{photos()}/val")


@pytest.fixture
def theirs(tmp_path):
    """Shards that webdataset has written."""
    with wds.ShardWriter(str(tmp_path / "photos-%06d.tar"), maxcount=20, verbose=0) as sink:
        for number, key in enumerate(FOLDER.keys):
            image, label = FOLDER[number]
            sink.write({"__key__": key.replace("/", "-").removesuffix(".jpg"), "jpg": image, "cls": int(label)})
    return f"{tmp_path}/photos-{{000000..000001}}.tar"


@pytest.fixture(autouse=True)
def collects_open_files():
    """webdataset leaves its files to the garbage collector, which warns of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


def corner(image):
    return image[:200, :200] // 2


def is_cat(sample):
    return sample["cls"] in (2, b"2")


def old_program(urls, shuffle):
    dataset = wds.WebDataset(urls, shardshuffle=2 if shuffle else False).shuffle(1000 if shuffle else 0).select(is_cat).decode("rgb8")
    return list(dataset.map_dict(jpg=corner).to_tuple("jpg", "cls").batched(3, partial=False))


def new_program(urls, shuffle, source=None):
    stages = [
        source or WebDatasetSource(urls, epochs=1, shuffle=shuffle),
        *([Shuffle(1000)] if shuffle else []),
        Stage(lambda sample: sample if is_cat(sample) else DROP, drops=True),
        Stage(DecodeImage("jpg"), num_workers=2),
        Map(corner, field="jpg"),
        Select(["jpg", "cls"]),
        Batch(3, drop_last=True),
    ]
    with Pipeline(stages) as pipeline:
        return [(batch["jpg"], batch["cls"]) for batch in pipeline]


@pytest.mark.parametrize("by_number", [False, True])
def test_the_port_gives_what_webdataset_gave(theirs, by_number):
    source = Reader(Tar(theirs), epochs=1, shuffle=False) if by_number else None
    expected = old_program(theirs, shuffle=False)
    got = new_program(theirs, False, source)
    assert len(got) == len(expected) == 1
    for (images, labels), (expected_images, expected_labels) in zip(got, expected, strict=True):
        assert (images.shape, images.dtype, labels.tolist()) == (np.shape(expected_images), np.uint8, list(expected_labels))
        assert np.abs(images.astype(int) - expected_images).mean() < 1  # decoders interpolate colours in their own ways


def test_shuffled_programs_give_the_same_labels_in_whatever_order(theirs):
    old, new = (np.concatenate([labels for _, labels in program(theirs, True)]).tolist() for program in (old_program, new_program))
    assert old == new == [2, 2, 2]


def test_shards_written_here_are_read_by_webdataset(tmp_path):
    stages = [Reader(FOLDER, epochs=1, shuffle=False), lambda sample: {"jpg": sample[0], "cls": sample[1]}]
    Pipeline([*stages, ShardSink(str(tmp_path / "%06d.tar"), max_samples=20)]).run()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        samples = [(sample["jpg"], int(sample["cls"])) for sample in wds.WebDataset("{000000..000001}.tar", shardshuffle=False)]
    assert len(samples) == 32 and Path(tmp_path / "000001.tar").exists()
    assert samples == [(FOLDER[n][0], FOLDER[n][1]) for n in range(32)]
