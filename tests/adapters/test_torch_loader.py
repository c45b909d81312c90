"""``DataLoader`` over a dataset, held against torch's own."""

import itertools
import random
import threading

import numpy as np
import pytest

from highway import ConfigError, Pipeline, PipelineError
from highway.datasets import Files
from highway.errors import DatasetError

torch = pytest.importorskip("torch")

from torch.utils import data  # noqa: E402
from torch_datasets import Numbered, Raising  # noqa: E402
from waiting import wait_until  # noqa: E402

from highway.adapters.torch import DataLoader  # noqa: E402


def same(ours, theirs):
    """Fail unless two batches are the same: types, dtypes, nesting, values."""
    assert type(ours) is type(theirs)
    if isinstance(theirs, torch.Tensor):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        same(list(ours.values()), list(theirs.values()))
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
    else:
        np.testing.assert_array_equal(ours, theirs)


def seeded():
    return torch.Generator().manual_seed(5)


ORDERS = {
    "one by one": dict,
    "batches": lambda: {"batch_size": 8},
    "shuffled": lambda: {"batch_size": 8, "shuffle": True},
    "shuffled by a generator": lambda: {"batch_size": 8, "shuffle": True, "generator": seeded()},
    "whole batches": lambda: {"batch_size": 8, "shuffle": True, "drop_last": True, "generator": seeded()},
    "sampler": lambda: {"batch_size": 3, "sampler": data.WeightedRandomSampler([1.0] * 50, 20)},
    "subset": lambda: {"batch_size": 4, "sampler": data.SubsetRandomSampler(range(10, 30), seeded())},
    "batch sampler": lambda: {"batch_sampler": [[3, 1], [4], [1, 5, 9]]},
    "no batches": lambda: {"batch_size": None, "shuffle": True},
    "samples as pairs": lambda: {"batch_size": 4, "collate_fn": list},
}


@pytest.mark.parametrize("num_workers", [0, 1, 3])
@pytest.mark.parametrize("order", ORDERS)
def test_batches_and_their_order_are_those_of_torch(order, num_workers):
    torch.manual_seed(3)
    theirs = data.DataLoader(Numbered(), **ORDERS[order]())
    expected = [list(theirs), list(theirs), torch.rand(1)]
    torch.manual_seed(3)
    with DataLoader(Numbered(), num_workers=num_workers, workers="threads", **ORDERS[order]()) as ours:
        same([list(ours), list(ours), torch.rand(1)], expected)
        assert len(ours) == len(theirs)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_sampler_that_draws_while_the_training_does_draws_the_same(num_workers):
    class Sampler:
        def __iter__(self):
            for _ in range(20):
                yield int(torch.randint(50, ()))

    torch.manual_seed(1)
    expected = list(data.DataLoader(Numbered(), 4, sampler=Sampler()))
    torch.manual_seed(1)
    with DataLoader(Numbered(), 4, sampler=Sampler(), num_workers=num_workers, workers="threads") as loader:
        same(list(loader), expected)


def test_tensors_of_a_tensor_dataset_are_gathered_as_torch_stacks_them():
    dataset = data.TensorDataset(torch.arange(60).reshape(20, 3), torch.arange(20.0))
    theirs = data.DataLoader(dataset, 6, shuffle=True, generator=seeded())
    with DataLoader(dataset, 6, shuffle=True, generator=seeded(), num_workers=2, workers="threads") as ours:
        same(list(ours), list(theirs))


def test_a_dataset_that_reads_several_samples_is_asked_for_a_batch():
    asked = []

    class Several(Numbered):
        def __getitems__(self, numbers):
            asked.append(numbers)
            return list(map(self.__getitem__, numbers))

    with DataLoader(Several(10), 4, num_workers=2, workers="threads") as loader:
        same(list(loader), list(data.DataLoader(Numbered(10), 4)))
    assert sorted(asked) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_workers_share_the_first_batch():
    together = threading.Barrier(4)

    class Waiting(Numbered):
        def __getitem__(self, number):
            if number < 4:
                together.wait(30)
            return number

    with DataLoader(Waiting(8), 4, num_workers=4, workers="threads") as loader:
        assert next(iter(loader)).tolist() == [0, 1, 2, 3]


def test_batches_come_as_they_are_done_if_order_does_not_matter():
    gate = threading.Event()

    class Gated(Numbered):
        def __getitem__(self, number):
            if number == 0:
                gate.wait(30)
            return number

    with DataLoader(Gated(6), 1, num_workers=2, in_order=False, workers="threads") as loader:
        batches = iter(loader)
        first = next(batches)
        gate.set()
        assert first.tolist() != [0]
        assert sorted(batch.item() for batch in (first, *batches)) == list(range(6))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_error_comes_in_the_place_of_its_batch_and_the_next_batch_behind_it(num_workers):
    with DataLoader(Raising(12, 5, KeyError("no such file")), 2, num_workers=num_workers, workers="threads") as loader:
        batches = iter(loader)
        assert [next(batches).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
        with pytest.raises(KeyError, match="no such file") as caught:
            next(batches)
        assert "highway: raised for sample 5 of Raising" in caught.value.__notes__
        assert [batch.tolist() for batch in batches] == [[6, 7], [8, 9], [10, 11]]


@pytest.mark.parametrize("error", [StopIteration(), EOFError("cut short"), IndexError("list index out of range")], ids=repr)
def test_no_error_of_a_sample_looks_like_the_end_of_an_epoch(error):
    with (
        DataLoader(Raising(4, 3, error), 2, num_workers=1, workers="threads") as loader,
        pytest.raises(DatasetError if type(error) is StopIteration else type(error)),
    ):
        list(loader)


def test_an_error_of_the_sampler_comes_behind_the_batches_that_it_has_named():
    def numbers():
        yield from ([0, 1], [2, 3])
        raise RuntimeError("the index is damaged")

    with DataLoader(Numbered(), batch_sampler=numbers(), collate_fn=len, num_workers=2, workers="threads") as loader:
        batches = iter(loader)
        assert [next(batches), next(batches)] == [2, 2]
        with pytest.raises(RuntimeError, match="the index is damaged"):
            next(batches)


class Odd(Numbered):
    """One sample is not like the others."""

    def __getitem__(self, number):
        return (None if self.length == 3 else np.zeros(2)) if number == 1 else np.zeros(3)


def test_samples_that_do_not_go_together_get_the_error_of_torch_and_their_numbers():
    for length in (3, 4):
        with pytest.raises((TypeError, RuntimeError)) as theirs:
            list(data.DataLoader(Odd(length), 4))
        with DataLoader(Odd(length), 4, num_workers=1, workers="threads") as loader, pytest.raises(type(theirs.value)) as ours:
            list(loader)
        assert str(ours.value) == str(theirs.value)
        notes = "\n".join(ours.value.__notes__)
        assert f"raised when samples {', '.join(map(str, range(length)))} were combined into a batch" in notes
        assert ("the dataset returned None for sample 1" in notes) == (length == 3)


def test_a_batch_that_does_not_come_in_time_is_an_error_and_comes_later():
    gate = threading.Event()

    class Gated(Numbered):
        def __getitem__(self, number):
            gate.wait(30)
            return number

    with DataLoader(Gated(2), 2, num_workers=1, timeout=0.01, workers="threads") as loader:
        batches = iter(loader)
        with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.01 seconds"):
            next(batches)
        gate.set()

        def come():
            try:
                return next(batches).tolist()
            except RuntimeError:
                return None

        wait_until(lambda: come() == [0, 1])


@pytest.mark.parametrize("persistent", [True, False])
def test_an_epoch_that_is_left_leaves_the_next_ones_whole(persistent):
    with DataLoader(Numbered(20), 2, num_workers=2, persistent_workers=persistent, workers="threads") as loader:
        for _ in range(3):
            for batch in loader:
                assert batch[1].tolist() == [0, 1]
                break
        assert [batch[1].tolist() for batch in loader] == [[n, n + 1] for n in range(0, 20, 2)]


def test_two_loops_at_once_have_batches_of_their_own():
    with DataLoader(Numbered(6), 2, num_workers=1, workers="threads") as loader:
        pairs = [(a[1].tolist(), b[1].tolist()) for a, b in itertools.product(loader, loader)]
    assert len(pairs) == 9
    assert pairs[3:6] == [([2, 3], [0, 1]), ([2, 3], [2, 3]), ([2, 3], [4, 5])]


def threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("highway:")]


def test_no_thread_is_left_of_a_loop_that_is_dropped_nor_of_a_loader():
    loader = DataLoader(Numbered(), 2, num_workers=2, persistent_workers=False, workers="threads")
    batches = iter(loader)
    next(batches)
    assert len(threads()) == 3
    del batches
    assert threads() == []
    loader = DataLoader(Numbered(), 2, num_workers=2, workers="threads", persistent_workers=True)
    next(iter(loader))
    assert len(threads()) == 3
    del loader
    wait_until(lambda: threads() == [])  # one of them may hold it for a moment


def test_a_loop_over_a_loader_that_was_closed_says_so_and_the_next_one_begins_anew():
    loader = DataLoader(Numbered(20), 2, num_workers=1, workers="threads")
    batches = iter(loader)
    next(batches)
    loader.close()
    with pytest.raises(PipelineError, match="the DataLoader was closed in the middle of a loop"):
        list(batches)
    assert len(list(loader)) == 10
    loader.close()


def test_each_worker_is_begun_by_the_users_function():
    begun = []
    with DataLoader(Numbered(), 1, num_workers=3, worker_init_fn=begun.append, workers="threads") as loader:
        list(loader)
    assert sorted(begun) == list(range(len(begun)))
    assert 1 <= len(begun) <= 3

    def refuse(number):
        raise OSError("no licence left")

    with (
        DataLoader(Numbered(), 1, num_workers=1, worker_init_fn=refuse, workers="threads") as loader,
        pytest.raises(OSError, match="no licence left") as caught,
    ):
        list(loader)
    assert "highway: raised by worker_init_fn of thread 0" in caught.value.__notes__


def test_each_thread_has_a_dataset_of_its_own_if_it_is_not_thread_safe():
    class Own(Numbered):
        def __getitem__(self, number):
            return id(self)

    for per_worker in (False, True):
        shared = Own(40)
        with DataLoader(shared, 1, num_workers=2, per_worker=per_worker, workers="threads") as loader:
            found = {batch.item() for batch in loader}
        assert (found == {id(shared)}) != per_worker


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": "fibres"}, "expected 'processes' or 'threads'"),
        ({"shard": True, "rank": 1}, "rank=1, world_size=None; pass both or neither"),
        ({"shard": True, "sampler": [1]}, "shard=True creates its own sampler,"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_arguments_that_do_not_go_together_are_refused_with_words(arguments, message):
    with pytest.raises(ConfigError, match=message):
        DataLoader(Numbered(), **arguments)


def test_old_spellings_work_with_a_warning():
    with pytest.warns(DeprecationWarning, match='add workers="threads"'), DataLoader(Numbered(4), num_workers=1, per_worker=True) as loader:
        assert loader.workers == "threads"
    with pytest.warns(DeprecationWarning, match='add workers="threads"'):
        assert DataLoader(Numbered(4), num_workers=1, isolated=True).workers == "threads"
    with pytest.warns(DeprecationWarning, match="add shard=True"):
        assert len(DataLoader(Numbered(4), rank=0, world_size=2)) == 2
    with pytest.warns(DeprecationWarning, match=r"as_torch\(\) is deprecated"):
        batches = DataLoader(Numbered(4)).as_torch()
    same(list(batches), list(data.DataLoader(Numbered(4))))


@pytest.mark.parametrize("option", ["isolated", "per_worker"])
def test_an_option_of_threads_is_an_error_with_processes(option):
    with pytest.raises(ConfigError, match='isolated=True and per_worker=True are only for threads; add workers="threads", or remove'):
        DataLoader(Numbered(4), num_workers=1, workers="processes", **{option: True})


def test_old_spellings_that_mean_the_same_work_without_a_warning():
    loader = DataLoader(Numbered(4), workers="processes", budget_mb=64, persistent_workers=None)
    assert (loader.workers, loader.budget_mb, bool(loader.persistent_workers)) == ("processes", 64, False)
    same(list(loader), list(data.DataLoader(Numbered(4))))


def test_an_attribute_that_is_gone_names_its_successors():
    with pytest.raises(AttributeError, match=r"why_here was removed: use loader\.workers .* and loader\.isolated"):
        DataLoader(Numbered(4)).why_here  # noqa: B018


class Undeclared(Numbered):
    __thread_safe__ = None


@pytest.mark.parametrize("options", [{}, {"collate_fn": list}, {"worker_init_fn": print}, {"multiprocessing_context": "fork"}], ids=str)
def test_threads_are_the_default_of_datasets_that_allow_them_without_functions_of_the_user(options, tmp_path):
    expected = "processes" if options else "threads"
    safe, own = Numbered(4), Files(str(tmp_path))
    for dataset in (safe, own, data.Subset(own, [0]), data.ConcatDataset([safe, safe])):
        assert DataLoader(dataset, num_workers=1, **options).workers == expected
    for dataset in (Undeclared(4), data.Subset(Undeclared(4), [0]), data.ConcatDataset([safe, Undeclared(4)]), range(4)):
        assert DataLoader(dataset, num_workers=1, **options).workers == "processes"


def test_a_declaration_skips_the_check_of_threads():
    read = {}
    for kind in (Numbered, Undeclared):

        class Noting(kind):
            def __getitem__(self, number):
                read.setdefault(type(self).__base__, set()).add(number)
                return number

        with DataLoader(Noting(40), sampler=[30, 31], num_workers=1, workers="threads") as loader:
            assert [batch.tolist() for batch in loader] == [[30], [31]]
    assert read == {Numbered: {30, 31}, Undeclared: {*range(8), 30, 31}}


class Drawing(Numbered):
    __thread_safe__ = None

    def __init__(self, draw):
        super().__init__()
        self.draw = draw

    def __getitem__(self, number):
        return self.draw()


DRAWS = {"torch": lambda: torch.rand(1), "NumPy": np.random.rand, "random": random.random}


@pytest.mark.parametrize("name", DRAWS)
def test_threads_refuse_samples_that_draw_from_a_global_generator(name):
    before = torch.get_rng_state(), np.random.get_state()[2], random.getstate()
    loader = DataLoader(Drawing(DRAWS[name]), num_workers=2, workers="threads")
    with pytest.raises(ConfigError, match=f"draw random numbers from the global generator of {name}.*remove workers"):
        iter(loader)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[2], random.getstate()) == before[1:]


def test_threads_refuse_a_dataset_that_returns_other_samples_when_several_read():
    class Racing(Numbered):
        __thread_safe__ = None

        def __getitem__(self, number):
            return number if threading.current_thread() is threading.main_thread() else number + 1

    with pytest.raises(ConfigError, match=r"Racing returns different values for sample 0 when 4 threads read.*threading\.local"):
        iter(DataLoader(Racing(), num_workers=2, workers="threads"))


class OneFile(Undeclared):
    """Reads with seek and read from one file, which threads must not share."""

    file = None

    def __getitem__(self, number):
        self.file.seek(8 * number)
        return self.file.read(8)


@pytest.mark.parametrize("num_workers", [2, 8])
def test_threads_refuse_a_dataset_that_seeks_and_reads_in_one_file(num_workers, tmp_path):
    (tmp_path / "samples").write_bytes(np.arange(50).tobytes())
    dataset = OneFile()
    with open(tmp_path / "samples", "rb") as dataset.file, pytest.raises(ConfigError, match=r"OneFile .* sample \d+ when \d+ threads read"):
        iter(DataLoader(dataset, num_workers=num_workers, workers="threads"))


def test_threads_refuse_a_dataset_that_only_raises_when_several_read():
    class Breaking(Numbered):
        __thread_safe__ = None

        def __getitem__(self, number):
            if threading.current_thread() is not threading.main_thread():
                raise OSError("bad seek")
            return number

    with pytest.raises(ConfigError, match=r"Breaking raises OSError\('bad seek'\) for sample 0 when 4 threads read"):
        iter(DataLoader(Breaking(), num_workers=2, workers="threads"))


class Partial(Numbered):
    """Of which sample 5, which the check of threads reads too, cannot be read."""

    __thread_safe__ = None

    def __getitem__(self, number):
        if number == 5:
            raise ValueError("bad")
        return number


@pytest.mark.slow
@pytest.mark.parametrize("isolated", [False, True])
def test_an_error_of_a_first_sample_comes_when_the_loop_comes_to_it_and_names_it(isolated):
    batches = iter(DataLoader(Partial(12), 2, num_workers=2, workers="threads", isolated=isolated))
    assert [next(batches).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(ValueError, match="bad") as caught:
        next(batches)
    assert any("sample 5" in note for note in caught.value.__notes__)


def test_threads_end_with_a_loop_that_is_dropped_after_an_error_of_their_last_batch():
    batches = iter(DataLoader(Partial(6), 6, num_workers=1, workers="threads"))
    with pytest.raises(ValueError, match="bad"):
        next(batches)


@pytest.mark.parametrize("batch_size", [1, 2, None])
def test_torchs_own_loader_of_a_pipeline_is_an_error_that_names_ours(batch_size):
    message = r"a Pipeline is not a dataset.*highway\.adapters\.torch\.DataLoader"
    with Pipeline([[(1, 2)] * 4]) as pipeline, pytest.raises(TypeError, match=message):
        list(data.DataLoader(pipeline, batch_size=batch_size))
