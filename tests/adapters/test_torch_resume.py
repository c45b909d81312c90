"""A run that is resumed from a state of ``DataLoader`` gives the batches that the uninterrupted run gives."""

import io
import itertools
import random
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from against_torch import Raising, generators, same, seed_everything  # noqa: E402
from pairwise import pairwise  # noqa: E402
from torch.utils import data  # noqa: E402

from highway import PipelineError  # noqa: E402
from highway.adapters.torch import DataLoader  # noqa: E402

LENGTH = 20

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a machine with fewer cores


class Numbers(data.Dataset):
    def __len__(self):
        return LENGTH

    def __getitem__(self, number):
        return number


class Augmented(Numbers):
    """Samples that depend on what the three global generators return."""

    def __getitem__(self, number):
        return number, random.random(), float(np.random.rand()), torch.rand(2)


def seeded():
    return torch.Generator().manual_seed(5)


class Drawing(data.Sampler):
    """Draws while it is iterated: from a generator of its own, or from torch's global one."""

    def __init__(self, generator=None):
        self.generator = generator

    def __iter__(self):
        for _ in range(LENGTH):
            yield int(torch.randint(LENGTH, (), generator=self.generator))

    def __len__(self):
        return LENGTH


class DrawingBatches(Drawing):
    """Batches of a size that is drawn; the size decides about the rest, if the generator is the sampler's own."""

    def __iter__(self):
        rest = torch.randperm(LENGTH, generator=self.generator).tolist()
        while rest:
            size = int(torch.randint(1, 5, (), generator=self.generator))
            yield rest[:size]
            rest = rest[size if self.generator else 2 :]


class DrawingByPython(Drawing):
    """Draws from Python's global generator and NumPy's."""

    def __iter__(self):
        for _ in range(LENGTH):
            yield random.randrange(LENGTH // 2) + int(np.random.randint(LENGTH // 2))


class Counting(data.Sampler):
    """Has a state, and continues where it was in the epoch."""

    def __init__(self):
        self.at = 0

    def __iter__(self):
        while self.at < LENGTH:
            self.at += 1
            yield self.at * 7 % LENGTH
        self.at = 0

    def __len__(self):
        return LENGTH

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


ORDERS = {  # their batches do not depend on the global generators from the first batch of an epoch on
    "in order": dict,
    "shuffled": lambda: {"shuffle": True},
    "shuffled by a generator": lambda: {"shuffle": True, "generator": seeded()},
    "shuffled by a sampler's generator": lambda: {"sampler": data.RandomSampler(range(LENGTH), generator=seeded())},
    "with replacement": lambda: {"sampler": data.RandomSampler(range(LENGTH), replacement=True, num_samples=50)},
    "weighted": lambda: {"sampler": data.WeightedRandomSampler([1.0] * LENGTH, LENGTH)},
    "weighted by a generator": lambda: {"sampler": data.WeightedRandomSampler([1.0] * LENGTH, LENGTH, generator=seeded())},
    "subset by a generator": lambda: {"sampler": data.SubsetRandomSampler(range(LENGTH), seeded())},
    "distributed": lambda: {"sampler": data.DistributedSampler(range(LENGTH), 2, 1)},
    "a user's sampler that draws by its generator": lambda: {"sampler": Drawing(seeded())},
    "a user's batch sampler that draws by its generator": lambda: {"batch_sampler": DrawingBatches(seeded())},
    "batches of a random sampler": lambda: {"batch_sampler": data.BatchSampler(data.RandomSampler(range(LENGTH)), 3, False)},
    "a list of batches": lambda: {"batch_sampler": [[number, number + 1] for number in range(LENGTH - 1)]},
    "a sampler with a state": lambda: {"sampler": Counting()},
    "no batches": lambda: {"batch_size": None, "shuffle": True},
}
GLOBAL = {  # and those that do
    "drawn from torch's global generator": lambda: {"sampler": Drawing()},
    "batches drawn from torch's global generator": lambda: {"batch_sampler": DrawingBatches()},
    "drawn from Python's and NumPy's": lambda: {"sampler": DrawingByPython()},
    "subset by the global generator": lambda: {"sampler": data.SubsetRandomSampler(range(LENGTH))},
}


def make(order=dict, dataset=None, **options):
    options = order() | options
    if "batch_sampler" not in options:
        options.setdefault("batch_size", 3)
    return DataLoader(dataset or Numbers(), **options)


def step(loader, batches, count):
    """Take batches as a training does that draws from the global generators itself."""
    return [(batch, torch.rand(1), random.random(), float(np.random.rand())) for batch in itertools.islice(batches, count)]


def epoch(loader, number):
    """Run an epoch."""
    if isinstance(loader.sampler, data.DistributedSampler):
        loader.sampler.set_epoch(number)
    return step(loader, iter(loader), None)


def restore(states):
    torch.set_rng_state(states[0])
    np.random.set_state(tuple(states[1]))
    random.setstate(states[2])


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def batches_of(steps):
    return [step[0] for step in steps]


def resume(make, state, before, loads_first=True):
    """Return a loader of another process, whose global generators are restored before or after its state is, or not at all."""
    seed_everything(99)
    loader = make()
    if before is not None and not loads_first:
        restore(before)
    loader.load_state_dict(state)
    if before is not None and loads_first:
        restore(before)
    return loader


def begun(make, number, taken):
    """Return a loader in the middle of an epoch, and the iterator of its loop."""
    seed_everything()
    loader = make()
    for index in range(number):
        epoch(loader, index)
    if isinstance(loader.sampler, data.DistributedSampler):
        loader.sampler.set_epoch(number)
    batches = iter(loader)
    step(loader, batches, taken)
    return loader, batches


@pytest.mark.slow
@pytest.mark.parametrize(("order", "taken", "num_workers"), pairwise([*ORDERS, *GLOBAL], [0, 1, 4], [0, 2]))
def test_the_rest_of_an_epoch_and_the_next_one_are_those_of_the_uninterrupted_run(order, num_workers, taken):
    """Generators are restored beside the state, before and after; for most samplers the rest needs no restored generator either."""

    def again():
        return make((ORDERS | GLOBAL)[order], num_workers=num_workers)

    loader, batches = begun(again, 1, taken)
    state, before = through_a_file(loader.state_dict()), generators()
    rest, following = step(loader, batches, None), epoch(loader, 2)
    for loads_first in (True, False):
        resumed = resume(again, state, before, loads_first)
        if isinstance(resumed.sampler, data.DistributedSampler):
            resumed.sampler.set_epoch(1)
        same(step(resumed, iter(resumed), None), rest)
        same(epoch(resumed, 2), following)
    if order in ORDERS and (taken or num_workers or order not in ("weighted", "with replacement")):
        resumed = resume(again, state, None)
        if isinstance(resumed.sampler, data.DistributedSampler):
            resumed.sampler.set_epoch(1)
        same(batches_of(step(resumed, iter(resumed), None)), batches_of(rest))


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("loads_first", [True, False])
def test_a_checkpoint_between_epochs_gives_the_next_epochs(num_workers, persistent, loads_first):
    """A, B, C where the uninterrupted run gives A, B, C: torch's RNG is saved beside the state, as most programs do."""
    if persistent and not num_workers:
        pytest.skip("needs workers")

    def again():
        return make(dataset=Augmented(), shuffle=True, num_workers=num_workers, persistent_workers=persistent)

    seed_everything()
    loader = again()
    first = epoch(loader, 0)
    state, before = through_a_file(loader.state_dict()), generators()
    expected = [epoch(loader, number) for number in (1, 2)]
    assert len({tuple(number for batch in steps for number in batch[0][0].tolist()) for steps in (first, *expected)}) == 3
    resumed = resume(again, state, before, loads_first)
    same([epoch(resumed, number) for number in (1, 2)], expected)


@pytest.mark.slow
@pytest.mark.parametrize(("taken", "persistent", "every"), pairwise([1, 3, 5], [False, True], [1, 3]))
def test_random_transforms_of_the_rest_are_those_of_the_uninterrupted_run(persistent, taken, every):
    """The state holds each worker's generators at the moment when it was taken."""

    def again():
        options = {"num_workers": 2, "persistent_workers": persistent, "snapshot_every_n_steps": every}
        return make(dataset=Augmented(), shuffle=True, **options)

    loader, batches = begun(again, 1, taken)
    state = through_a_file(loader.state_dict())
    rest = list(batches)
    resumed = resume(again, state, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(list(resumed), rest)


def test_random_transforms_in_the_process_that_trains_go_on_with_its_generators():
    def again():
        return make(dataset=Augmented(), shuffle=True)

    loader, batches = begun(again, 1, 3)
    state, before = through_a_file(loader.state_dict()), generators()
    rest = step(loader, batches, None)
    same(epoch(resume(again, state, before), 1), rest)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [(2, 1), (1, 2), (0, 2), (2, 0)])
def test_another_number_of_workers_gives_the_same_order_and_samples_and_one_warning(first, second, caplog):
    def again(num_workers):
        return make(dataset=Augmented(), shuffle=True, generator=seeded(), num_workers=num_workers)

    loader, batches = begun(lambda: again(first), 1, 3)
    state = through_a_file(loader.state_dict())
    rest, following = ([batch[0] for batch in batches], [batch[0] for batch in loader])
    resumed = resume(lambda: again(second), state, None)
    same([batch[0] for batch in resumed], rest)
    same([batch[0] for batch in resumed], following)
    (message,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert f"num_workers={first}, but now num_workers is {second}. Samples and their order" in message and "random transforms" in message


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 2])
def test_after_the_last_batch_a_state_is_an_empty_rest_in_the_loop_and_the_next_epoch_after_it(num_workers):
    """As in torchdata."""

    def again():
        return make(shuffle=True, generator=seeded(), num_workers=num_workers)

    loader = again()
    for _ in loader:
        inside = loader.state_dict()
    outside, expected = loader.state_dict(), [list(loader), list(loader)]
    for state, rests in ((inside, [[], *expected]), (outside, expected)):
        resumed = again()
        resumed.load_state_dict(through_a_file(state))
        same([list(resumed) for _ in rests], rests)


@pytest.mark.slow
def test_a_state_counts_what_the_loop_received_and_not_what_workers_read_ahead():
    loader = make(num_workers=2, prefetch_factor=3)
    states = [(loader.state_dict(), batch.tolist()) for batch in loader]
    for index in (0, 3):
        resumed = make(num_workers=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            resumed.load_state_dict(states[index][0])
            assert [batch.tolist() for batch in resumed] == [numbers for _, numbers in states[index + 1 :]]


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 2])
def test_asking_for_states_changes_nothing_and_a_state_does_not_change_later(num_workers):
    def run(asks):
        seed_everything()
        loader, states, seen = make(dataset=Augmented(), shuffle=True, num_workers=num_workers), [], []
        for _ in range(2):
            for batch in loader:
                seen.append(batch)
                if asks:
                    states.append((loader.state_dict(), through_a_file(loader.state_dict())))
        return [seen, generators()], states

    (seen, states), (expected, _) = run(True), run(False)
    same(seen, expected)
    for state, as_it_was in states:
        same(through_a_file(state), as_it_was)


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_second_state_in_one_epoch_counts_from_the_epochs_begin(num_workers):
    def again():
        return make(dataset=Augmented(), shuffle=True, generator=seeded(), num_workers=num_workers)

    seed_everything()
    loader, seen = again(), []
    whole = list(loader)
    seed_everything()
    loader = again()
    state, before = loader.state_dict(), generators()
    for count in (2, 3, 1):
        loader = resume(again, through_a_file(state), before)
        batches = iter(loader)
        seen += itertools.islice(batches, count)
        state, before = loader.state_dict(), generators()
    seen += list(resume(again, through_a_file(state), before))
    same(seen, whole)


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_state_that_was_loaded_is_the_state_until_the_loop_begins(num_workers):
    def again():
        return make(shuffle=True, num_workers=num_workers)

    loader, batches = begun(again, 0, 2)
    state = through_a_file(loader.state_dict())
    rest = list(batches)
    resumed = resume(again, state, None)
    same(through_a_file(resumed.state_dict()), state)
    third = resume(again, resumed.state_dict(), None)
    same(list(third), rest)


@pytest.mark.slow
def test_a_state_loaded_in_the_middle_of_a_loop_holds_for_the_next_loop():
    loader = make(shuffle=True, num_workers=2, persistent_workers=True)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest = list(batches)
    for _ in loader:
        break
    loader.load_state_dict(state)
    same(list(loader), rest)


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 2])
def test_after_a_break_the_state_is_that_of_the_last_batch(num_workers):
    def again():
        return make(shuffle=True, num_workers=num_workers)

    seed_everything()
    loader = again()
    for index, _ in enumerate(loader):
        if index == 1:
            break
    state = through_a_file(loader.state_dict())
    seed_everything()
    whole = list(again())
    same(list(resume(again, state, None)), whole[2:])


@pytest.mark.slow
def test_batches_that_came_out_of_order_are_not_given_again():
    loader = make(shuffle=True, num_workers=2, in_order=False)
    batches = iter(loader)
    given = [next(batches) for _ in range(3)]
    state = through_a_file(loader.state_dict())
    resumed = make(shuffle=True, num_workers=2, in_order=False)
    resumed.load_state_dict(state)
    assert sorted(torch.cat([*given, *resumed]).tolist()) == list(range(LENGTH))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_batch_that_failed_is_tried_again_or_skipped_as_in_the_run_itself(num_workers):
    loader = DataLoader(Raising(9, 4, OSError("the disk is gone")), 3, num_workers=num_workers)
    batches = iter(loader)
    next(batches)
    before = through_a_file(loader.state_dict())
    with pytest.raises(OSError, match="the disk is gone"):
        next(batches)
    resumed = DataLoader(Raising(9, -1, None), 3, num_workers=num_workers)
    resumed.load_state_dict(before)
    assert [batch.tolist() for batch in resumed] == [[3, 4, 5], [6, 7, 8]]


class Stream(data.IterableDataset):
    """Random numbers, of each worker its own, with no state of its own."""

    def __iter__(self):
        info = data.get_worker_info()
        for number in range(info.id if info else 0, LENGTH, info.num_workers if info else 1):
            yield number, random.random(), torch.rand(())


class StatefulStream(Stream):
    """Knows where it is, and whether it was asked to skip."""

    def __init__(self):
        self.at, self.reads = 0, 0

    def __iter__(self):
        info = data.get_worker_info()
        first, every = (info.id, info.num_workers) if info else (0, 1)
        while first + self.at * every < LENGTH:
            self.at += 1
            self.reads += 1
            yield first + (self.at - 1) * every, self.reads
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


class ShuffledStream(Stream):
    """Shuffles as programs do: the order of its parts when a loop begins, and its samples in a buffer."""

    def __iter__(self):
        return self.shuffled(torch.rand(()), super().__iter__())

    def shuffled(self, drawn, samples):
        buffer = list(itertools.islice(samples, 3))
        while buffer:
            number, *rest = buffer.pop(random.randrange(len(buffer)))
            buffer += itertools.islice(samples, 1)
            yield number, drawn, *rest


@pytest.mark.slow
@pytest.mark.parametrize("taken", [0, 1, 4])
@pytest.mark.parametrize(("num_workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_an_iterable_dataset_without_a_state_goes_on_by_skipping(num_workers, persistent, taken):
    def again():
        return make(dataset=ShuffledStream(), num_workers=num_workers, persistent_workers=persistent, generator=seeded())

    seed_everything()
    loader = again()
    list(loader)
    batches = iter(loader)
    list(itertools.islice(batches, taken))
    state, before = through_a_file(loader.state_dict()), generators()
    rest, following = list(batches), list(loader)
    for saved in (before, None):  # the loader restores the generators itself, if the program does not
        resumed = resume(again, state, saved)
        same([list(resumed), list(resumed)], [rest, following])
        resumed.close()
    loader.close()


@pytest.mark.slow
@pytest.mark.parametrize("taken", [0, 1, 4])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_iterable_dataset_with_a_state_goes_on_where_it_was(num_workers, taken):
    def again():
        return make(dataset=StatefulStream(), num_workers=num_workers)

    loader, batches = begun(again, 0, taken)
    state = through_a_file(loader.state_dict())
    rest = [batch[0].tolist() for batch in batches]
    resumed = list(resume(again, state, None))
    assert [batch[0].tolist() for batch in resumed] == rest
    assert min(batch[1][0].item() for batch in resumed) == 1  # nothing was read again


def test_a_stream_is_continued_by_as_many_workers_as_began_its_epoch_and_the_next_one_by_any():
    """Each worker has its own part of a stream."""
    loader, batches = begun(lambda: make(dataset=StatefulStream(), num_workers=2), 0, 2)
    state = through_a_file(loader.state_dict())
    with pytest.raises(PipelineError, match=r"with num_workers=2, but now num_workers is 1.*use num_workers=2 until the epoch ends"):
        iter(resume(lambda: make(dataset=StatefulStream(), num_workers=1), state, None))
    list(batches)
    between = through_a_file(loader.state_dict())
    for num_workers in (0, 1):
        resumed = resume(lambda: make(dataset=Stream(), num_workers=num_workers), between, None)  # noqa: B023  # called at once
        assert torch.cat([batch[0] for batch in resumed]).tolist() == list(range(LENGTH))


class StatefulShuffle(data.IterableDataset):
    """Shuffles in a buffer that is part of its state, with random numbers that are not."""

    def __init__(self):
        self.at, self.buffer = 0, []

    def __iter__(self):
        random.random()
        return self.shuffled()

    def shuffled(self):
        while self.at < LENGTH or self.buffer:
            while self.at < LENGTH and len(self.buffer) < 4:
                self.buffer.append(self.at)
                self.at += 1
            yield self.buffer.pop(random.randrange(len(self.buffer)))

    def state_dict(self):
        return {"at": self.at, "buffer": list(self.buffer)}

    def load_state_dict(self, state):
        self.at, self.buffer = state["at"], list(state["buffer"])


@pytest.mark.slow
def test_batches_since_the_last_state_of_a_dataset_are_read_again_as_they_were():
    def again():
        return make(dataset=StatefulShuffle(), batch_size=1, num_workers=1, snapshot_every_n_steps=3)

    seed_everything()
    loader, seen = again(), []
    whole = list(loader)
    seed_everything()
    loader = again()
    for count in (3, 1, 1, LENGTH):
        seen += itertools.islice(loader, count)
        loader = resume(again, through_a_file(loader.state_dict()), None)
    same(seen, whole)


class StatefulSamples(Numbers):
    """A map-style dataset that counts what it has read."""

    def __init__(self):
        self.count = 0

    def __getitem__(self, number):
        self.count += 1
        return number, self.count

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


class Rotating(data.IterableDataset):
    """Changes its state in place, and returns no copy of it."""

    def __init__(self):
        self.state = {"at": 0, "seen": []}

    def __iter__(self):
        while self.state["at"] < 400:
            self.state["at"] += 1
            self.state["seen"] = self.state["seen"][-3:]
            self.state["seen"].append(self.state["at"])
            yield sum(self.state["seen"])

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_state_that_the_dataset_changes_in_place_is_that_of_the_moment(num_workers):
    def again():
        return make(dataset=Rotating(), num_workers=num_workers)

    loader, batches = begun(again, 0, 3)
    states = [(loader.state_dict(), next(batches)) for _ in range(20)]
    for state, batch in states[::5]:
        (first,) = itertools.islice(resume(again, state, None), 1)
        same(first, batch)


@pytest.mark.slow
@pytest.mark.parametrize(("num_workers", "every"), [(0, 1), (1, 1), (1, 3)])
def test_a_run_that_is_resumed_after_each_batch_gives_the_batches_of_the_uninterrupted_run(num_workers, every):
    def again():
        return make(dataset=Rotating(), num_workers=num_workers, snapshot_every_n_steps=every)

    loader, batches = begun(again, 0, 4)
    state = loader.state_dict()
    for batch in itertools.islice(batches, 4):
        loader = again()
        loader.load_state_dict(state)
        same(next(iter(loader)), batch)
        state = loader.state_dict()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_dataset_with_a_state_is_restored_in_each_worker(num_workers):
    def again():
        return make(dataset=StatefulSamples(), shuffle=True, generator=seeded(), num_workers=num_workers)

    loader, batches = begun(again, 0, 3)
    state = through_a_file(loader.state_dict())
    rest = list(batches)
    same(list(resume(again, state, None)), rest)


def test_a_state_of_something_else_is_an_error():
    for wrong in ({"format": 9}, {"_num_yielded": 3}, None):
        with pytest.raises(PipelineError, match="load_state_dict: expected"):
            make().load_state_dict(wrong)
