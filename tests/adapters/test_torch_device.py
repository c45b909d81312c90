"""``to_device`` without a GPU: the same code without streams; and the streams themselves where there is one."""

import json
import threading
from collections import namedtuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_datasets import Numbered, Raising  # noqa: E402

from highway import ConfigError, EndOfStream, Pipeline, PipelineError  # noqa: E402
from highway.adapters.torch import DataLoader, to_device  # noqa: E402
from highway.modules import Batch, Noise, Reader, Shuffle  # noqa: E402

Pair = namedtuple("Pair", "image rest")


def test_any_nesting_is_moved_and_the_rest_stays():
    batch = Pair(torch.zeros(2), [{"a": np.ones(2, np.uint8), "b": "text"}, (torch.ones(1), 5, None)])
    (moved,) = to_device([batch], "meta")
    assert type(moved) is Pair
    assert moved.image.device.type == moved.rest[0]["a"].device.type == moved.rest[1][0].device.type == "meta"
    assert (moved.rest[0]["b"], moved.rest[1][1:]) == ("text", (5, None))


def test_batches_are_ready_before_they_are_asked_for_and_no_more_than_depth():
    taken, third = [], threading.Event()

    class Source:
        def __iter__(self):
            for number in range(10):
                taken.append(number)
                if number == 3:
                    third.set()
                yield torch.tensor(number)

    batches = iter(to_device(Source(), "cpu", depth=2))
    assert next(batches).item() == 0
    assert third.wait(30)
    assert 4 <= len(taken) <= 5  # one was taken, two wait or three, and one is at hand
    assert [batch.item() for batch in batches] == list(range(1, 10))


def test_images_become_what_the_training_takes():
    images = torch.randint(256, (2, 8, 6, 3), dtype=torch.uint8)
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    expected = (images / 255 - torch.tensor(mean)) / torch.tensor(std)
    batch = (images, torch.tensor([1, 2]))
    ((made, labels),) = to_device([batch], "cpu", normalize=(mean, std))
    torch.testing.assert_close(made, expected)
    assert labels.dtype is torch.int64
    ((made, _),) = to_device([batch], "cpu", channels_last=True, normalize=(mean, std), dtype=torch.float16)
    assert (made.dtype, made.shape) == (torch.float16, (2, 3, 8, 6))
    assert made.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(made.float(), expected.permute(0, 3, 1, 2), rtol=1e-3, atol=2e-3)
    ((made,),) = to_device([(images.permute(0, 3, 1, 2).contiguous(),)], "cpu", channels_last=True)
    assert made.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(made, images.permute(0, 3, 1, 2))
    ((made,),) = to_device([(images,)], "cpu", channels_last=True)
    assert made.data_ptr() == images.data_ptr()
    ((made,),) = to_device([(images.permute(0, 3, 1, 2).float() / 255,)], "cpu", normalize=(mean, std))
    torch.testing.assert_close(made, expected.permute(0, 3, 1, 2))


def test_masks_and_keypoints_are_no_images():
    image, masks = torch.zeros((2, 8, 6, 3), dtype=torch.uint8), torch.ones((2, 3, 8, 6), dtype=torch.uint8)
    normalize = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
    batch = {"image": image, "masks": masks, "keypoints": torch.ones(2, 3, 5, 2)}
    (moved,) = to_device([batch], "cpu", channels_last=True, normalize=normalize)
    assert moved["image"].shape == (2, 3, 8, 6) and (moved["image"] == -1).all()
    assert moved["masks"] is masks and moved["keypoints"] is batch["keypoints"]
    ((moved, same),) = to_device([(image, masks)], "cpu", channels_last=True, normalize=normalize, images=0)
    assert (moved == -1).all() and same is masks
    with pytest.raises(KeyError, match="no field 'pixels'"):
        list(to_device([batch], "cpu", images="pixels"))


def test_it_is_a_loader_itself():
    with DataLoader(Numbered(10), 4) as loader:
        moved = to_device(loader, "cpu")
        assert len(moved) == 3
        moved.set_epoch(5)
        assert loader.epoch == 5
        assert [batch[1].tolist() for batch in moved] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert moved.state_dict()["epoch"] == 6


def test_what_the_loader_raises_is_raised_in_its_place():
    batches = iter(to_device(DataLoader(Raising(6, 3, OSError("the disk is gone")), 1, shuffle=False), "cpu", depth=1))
    assert next(batches).tolist() == [0]
    with pytest.raises(OSError, match="the disk is gone") as caught:
        list(batches)
    assert "highway: raised for sample 3 of Raising" in caught.value.__notes__


def test_no_thread_is_left_of_a_loop_that_is_dropped():
    with DataLoader(Pipeline([Noise((4, 8, 8, 3))])) as loader:
        for (images,) in to_device(loader, "cpu"):
            assert images.shape == (4, 8, 8, 3)
            break
        left = [thread.name for thread in threading.enumerate() if "to_device" in thread.name]
    assert left == []


def test_a_depth_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="depth=0; expected at least 1 batch"):
        to_device([], "cpu", depth=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_gets_what_was_read_whatever_the_training_does_meanwhile():
    with DataLoader(Numbered(400), 8, num_workers=2, workers="threads") as loader:
        total = torch.zeros(2, 3, device="cuda")
        busy = torch.randn(2048, 2048, device="cuda")
        for arrays, numbers, _ in to_device(loader, "cuda", depth=2):
            busy = busy @ busy / busy.norm()  # the batch is used behind this, and its memory again behind that
            total += arrays.sum(0)
            assert numbers.device.type == "cuda"
            del arrays, numbers
        assert total.tolist() == [[sum(range(400))] * 3] * 2


@pytest.mark.parametrize(
    "loader_of",
    [DataLoader, lambda pipeline: to_device(pipeline, "cpu"), lambda pipeline: to_device(DataLoader(pipeline), "cpu")],
    ids=["DataLoader", "to_device", "to_device of a DataLoader"],
)
def test_the_states_of_all_ranks_resume_on_another_number_of_ranks(loader_of):
    def loader(rank, world_size):
        reader = Reader(range(48), epochs=1, rank=rank, world_size=world_size)
        return loader_of(Pipeline([reader, Shuffle(6), Batch(4)], seed=3))

    read, states = [], []
    for rank in range(2):
        with loader(rank, 2) as batches:
            for number, batch in enumerate(batches):
                read += batch.tolist()
                if number == 2:
                    states.append(json.loads(json.dumps(batches.state_dict())))
                    break
    for rank in range(3):
        with loader(rank, 3) as batches:
            batches.load_state_dict(states)
            read += [number for batch in batches for number in batch.tolist()]
    assert sorted(read) == list(range(48))
    with loader(0, 3) as batches, pytest.raises(PipelineError, match="the list has no state of rank 1"):
        batches.load_state_dict(states[:1])


def test_a_state_of_the_end_has_no_epoch_left_for_a_loop_on_a_device():
    def build():
        return Pipeline([Reader(np.arange(40), 4, epochs=1)])

    with build() as pipeline:
        assert len(list(to_device(pipeline, "cpu"))) == 10
        state = pipeline.state_dict()
    with build() as pipeline:
        pipeline.load_state_dict(state)
        with pytest.raises(EndOfStream):
            list(to_device(pipeline, "cpu"))
