"""States of a ``DataLoader``: what others got wrong, with the number of their bug where there is one."""

import json
import subprocess
import sys
from itertools import chain

import pytest

from highway import ConfigError, Pipeline, PipelineError
from highway.modules import Reader

torch = pytest.importorskip("torch")

from torch.utils import data  # noqa: E402
from torch_datasets import Numbered, Raising  # noqa: E402

from highway.adapters.torch import DataLoader, to_device  # noqa: E402

LENGTH = 23
BATCHES = 8


def numbers(loader):
    return [batch[1].tolist() for batch in loader]


def over_dataset(**arguments):
    arguments = {"num_workers": 2, "shuffle": True, "generator": torch.Generator().manual_seed(7)} | arguments
    return DataLoader(Numbered(LENGTH), 3, **arguments)


def over_pipeline():
    return DataLoader(Pipeline([Reader(Pairs(LENGTH), 3, num_workers=2)], seed=7))


class Pairs(Numbered):
    def __getitem__(self, number):
        return 0, number


LOADERS = {
    "threads": over_dataset,
    "threads that stay": lambda: over_dataset(persistent_workers=True),
    "the caller": lambda: over_dataset(num_workers=0),
    "processes": lambda: over_dataset(workers="processes"),
    "processes that stay": lambda: over_dataset(workers="processes", persistent_workers=True),
    "a pipeline": over_pipeline,
    "on a device": lambda: to_device(over_dataset(), "cpu", depth=3),
    "a pipeline on a device": lambda: to_device(over_pipeline(), "cpu", depth=3),
}


def closed(loader):
    getattr(loader, "loader", loader).close()


@pytest.fixture(params=LOADERS)
def make(request):
    made = []

    def make():
        made.append(LOADERS[request.param]())
        return made[-1]

    yield make
    for loader in made:
        closed(loader)


def epochs(loader, count):
    return [numbers(loader) for _ in range(count)]


def saved(loader):
    return json.loads(json.dumps(loader.state_dict()))


@pytest.mark.parametrize("taken", [0, 4, BATCHES - 1])
def test_a_state_of_the_middle_of_an_epoch_goes_on_with_the_next_batch(make, taken):
    """torchtitan PR 3008: no batch that was being read is lost; huggingface/datasets 7447: later epochs are whole."""
    expected = epochs(make(), 3)
    first = make()
    assert numbers(first) == expected[0]
    batches = iter(first)
    assert [next(batches)[1].tolist() for _ in range(taken)] == expected[1][:taken]
    second = make()
    second.load_state_dict(saved(first))
    assert len(second) == BATCHES
    assert epochs(second, 2) == [expected[1][taken:], *expected[2:]]


def test_a_state_of_the_end_of_an_epoch(make):
    """pytorch/data 1437: before the loop has ended, the rest of the epoch is empty; after it, the next epoch is whole."""
    expected = epochs(make(), 3)
    first = make()
    states = []
    for _ in first:
        states.append(saved(first))
    inside, behind = make(), make()
    inside.load_state_dict(states[-1])
    assert saved(inside) == states[-1]
    assert epochs(inside, 3) == [[], *expected[1:]]
    behind.load_state_dict(saved(first))
    assert epochs(behind, 2) == expected[1:]


def test_a_second_state_in_one_epoch_counts_from_its_begin(make):
    """KempnerForge 57: the second resume in an epoch was misaligned."""
    expected = epochs(make(), 2)
    state, given = saved(make()), []
    for count in (2, 3, 1):
        loader = make()
        loader.load_state_dict(state)
        batches = iter(loader)
        given += [next(batches)[1].tolist() for _ in range(count)]
        state = saved(loader)
    last = make()
    last.load_state_dict(state)
    assert given + numbers(last) == expected[0]
    assert numbers(last) == expected[1]


def test_a_state_that_was_loaded_is_the_state_until_the_loop_begins(make):
    first = make()
    batches = iter(first)
    next(batches)
    state = saved(first)
    second = make()
    second.load_state_dict(state)
    assert saved(second) == state


def test_a_state_of_a_loader_that_has_not_begun_is_its_begin(make):
    expected = epochs(make(), 1)
    second = make()
    second.load_state_dict(saved(make()))
    assert epochs(second, 1) == expected


def test_a_loop_that_is_left_and_begun_anew_counts_from_its_begin():
    with over_dataset() as first:
        next(iter(first))
        batches = iter(first)
        second_epoch = [next(batches)[1].tolist() for _ in range(2)]
        state = saved(first)
        del batches
    with over_dataset() as second:
        second.load_state_dict(state)
        assert second.epoch == 1
        assert not set(chain.from_iterable(second_epoch)) & set(chain.from_iterable(numbers(second)))


def test_the_global_generator_is_the_trainings_and_the_order_is_found_again_nevertheless():
    torch.manual_seed(1)
    with over_dataset(generator=None) as first:
        batches = iter(first)
        given = [next(batches)[1].tolist() for _ in range(3)]
        state = saved(first)
        rest = [batch[1].tolist() for batch in batches]
    with over_dataset(generator=None) as second:
        second.load_state_dict(state)
        torch.manual_seed(99)  # the program decides, as it has set the generator after the state was loaded
        before = torch.get_rng_state()
        assert numbers(second) == rest
    assert torch.equal(torch.get_rng_state(), before)
    assert sorted(chain.from_iterable(given + rest)) == list(range(LENGTH))


def test_a_sampler_with_a_state_continues_by_it():
    class Sampler:
        """Goes on where it was, and says so."""

        at = 0

        def __iter__(self):
            for _ in range(6):
                self.at += 1
                yield self.at % LENGTH

        def state_dict(self):
            return {"at": self.at}

        def load_state_dict(self, state):
            self.at = state["at"]

    expected = epochs(over_dataset(sampler=Sampler(), shuffle=None), 3)
    with over_dataset(sampler=Sampler(), shuffle=None) as first, over_dataset(sampler=Sampler(), shuffle=None) as second:
        numbers(first)
        batches = iter(first)
        next(batches)
        second.load_state_dict(saved(first))
        assert epochs(second, 2) == [expected[1][1:], expected[2]]


def test_batches_that_came_out_of_order_are_not_given_again():
    with over_dataset(in_order=False) as first, over_dataset(in_order=False) as second:
        batches = iter(first)
        given = [next(batches)[1].tolist() for _ in range(4)]
        second.load_state_dict(saved(first))
        assert sorted(chain.from_iterable(given + numbers(second))) == list(range(LENGTH))


def test_a_batch_that_failed_is_tried_again():
    bad = Raising(9, 4, OSError("the disk is gone"))
    with DataLoader(bad, 3, num_workers=1, workers="threads") as first:
        batches = iter(first)
        next(batches)
        with pytest.raises(OSError, match="the disk is gone"):
            next(batches)
        state = saved(first)
    with DataLoader(Numbered(9), 3, num_workers=1, workers="threads") as second:
        second.load_state_dict(state)
        assert numbers(second) == [[3, 4, 5], [6, 7, 8]]


def test_another_epoch_than_that_of_a_state_is_refused():
    """torchtitan PR 3008 guards against it, too."""
    with over_dataset() as first, over_dataset() as second:
        numbers(first)
        batches = iter(first)
        next(batches)
        second.load_state_dict(saved(first))
        second.set_epoch(1)
        with pytest.raises(ConfigError, match=r"set_epoch\(0\), but the state that was loaded is in epoch 1, after 1 batches"):
            second.set_epoch(0)


def test_a_state_of_something_else_is_refused():
    with over_dataset() as loader:
        state = saved(loader)
        for wrong in ({"format": 9}, None, {"_num_yielded": 3}):
            with pytest.raises(PipelineError, match="load_state_dict: expected a state of a DataLoader"):
                loader.load_state_dict(wrong)
    with DataLoader(Numbered(24), 3) as other, pytest.raises(PipelineError, match="samples=24, was 23; samplers="):
        other.load_state_dict(state)


def test_a_sampler_of_the_users_is_told_the_epoch():
    sampler = data.DistributedSampler(Numbered(LENGTH), 2, 0, seed=3)
    with over_dataset(sampler=sampler, shuffle=None) as loader:
        loader.set_epoch(4)
        assert sampler.epoch == 4
        expected = numbers(loader)
        batches = iter(loader)
        given = [next(batches)[1].tolist() for _ in range(2)]
        state = saved(loader)
        sampler.set_epoch(9)
    sampler = data.DistributedSampler(Numbered(LENGTH), 2, 0, seed=3)
    with over_dataset(sampler=sampler, shuffle=None) as loader:
        loader.load_state_dict(state)
        assert given + numbers(loader) == expected


@pytest.mark.parametrize("make", [over_dataset, lambda: to_device(over_dataset(), "cpu", depth=3), over_pipeline])
def test_a_loop_of_which_nothing_was_taken_leaves_the_state_as_it_was_loaded(make):
    """Lightning begins one to see what there is."""
    loader, other = make(), make()
    batches = iter(loader)
    taken = [next(batches) for _ in range(3)]
    state = loader.state_dict()
    rest = [batch[1].tolist() for batch in batches]
    assert len(taken) + len(rest) == BATCHES
    other.load_state_dict(json.loads(json.dumps(state)))
    iter(other)
    assert numbers(other) == rest
    assert len(numbers(other)) == BATCHES
    closed(loader)
    closed(other)


READ_IN_TWO_THREADS = """
import gc, sys, threading
import torch
from highway.adapters.torch.generators import state_of

gc.set_threshold(1, 10, 10)
generator, collecting = torch.Generator(), threading.Event()

class Cycle:
    def __init__(self):
        self.own = self
    def __del__(self):  # lets the other thread run if the garbage collector runs inside get_state
        if "state_of" in sys._getframe(1).f_code.co_name:
            collecting.set()
            other.join(1)

def read():
    collecting.wait()
    state_of(generator)

other = threading.Thread(target=read)
other.start()
for _ in range(300):
    Cycle()
    state_of(generator)
collecting.set()
other.join()
print(gc.isenabled())
"""


def test_two_threads_that_read_a_generator_do_not_wait_for_each_other():
    """torch keeps the generator's mutex while the garbage collector lets the other thread run."""
    done = subprocess.run([sys.executable, "-c", READ_IN_TWO_THREADS], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
