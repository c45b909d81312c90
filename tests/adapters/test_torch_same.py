"""What a program can observe of ``DataLoader`` is what it observes of torch's, by default: each test runs both."""

import io
import itertools
import random
import sqlite3
import sys
import threading
import types
import warnings

import h5py
import numpy as np
import pytest
from PIL import Image, ImageFile

torch = pytest.importorskip("torch")

from against_torch import Numbered, compare, seed_everything  # noqa: E402
from torch import multiprocessing  # noqa: E402
from torch.utils import data  # noqa: E402
from torch.utils.data import datapipes, get_worker_info  # noqa: E402
from waiting import wait_until  # noqa: E402

from highway.adapters.torch import DataLoader  # noqa: E402

LENGTH = 14
WORKERS = pytest.mark.parametrize("num_workers", [0, 2])

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a machine with fewer cores


class Augmented(data.Dataset):
    """Samples that depend on what the three global generators return."""

    def __len__(self):
        return LENGTH

    def __getitem__(self, number):
        return number, random.random(), float(np.random.rand()), torch.rand(2)


def seeded(seed=5):
    return torch.Generator().manual_seed(seed)


class Drawing(data.Sampler):
    """A sampler that draws from torch's global generator while it is iterated."""

    def __iter__(self):
        for _ in range(LENGTH):
            yield int(torch.randint(LENGTH, ()))

    def __len__(self):
        return LENGTH


ORDERS = {
    "one by one": dict,
    "batches": lambda: {"batch_size": 8},
    "shuffled": lambda: {"batch_size": 8, "shuffle": True},
    "shuffled by a generator": lambda: {"batch_size": 8, "shuffle": True, "generator": seeded()},
    "whole batches": lambda: {"batch_size": 8, "shuffle": True, "drop_last": True},
    "weighted": lambda: {"batch_size": 3, "sampler": data.WeightedRandomSampler([1.0] * LENGTH, 10)},
    "subset": lambda: {"batch_size": 4, "sampler": data.SubsetRandomSampler(range(4, 14), seeded())},
    "distributed": lambda: {"batch_size": 4, "sampler": data.DistributedSampler(range(LENGTH), 2, 1)},
    "drawn by the sampler": lambda: {"batch_size": 5, "sampler": Drawing()},
    "batch sampler": lambda: {"batch_sampler": [[3, 1], [4], [1, 5, 9]]},
    "batch sampler that draws": lambda: {"batch_sampler": data.BatchSampler(data.RandomSampler(range(LENGTH)), 4, False)},
    "no batches": lambda: {"batch_size": None, "shuffle": True},
    "another collation": lambda: {"batch_size": 4, "collate_fn": list},
    "prefetching": lambda: {"batch_size": 4, "shuffle": True, "prefetch_factor": 5},
    "persistent workers": lambda: {"batch_size": 4, "shuffle": True, "persistent_workers": True},
    "any order": lambda: {"batch_size": 4, "in_order": False},
}


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("order", ORDERS)
def test_two_epochs_of_a_dataset_that_draws_at_random_are_those_of_torch(order, num_workers):
    """The model draws from torch's global generator in between."""

    def run(loader):
        options = ORDERS[order]()
        if num_workers == 0 and ("prefetch_factor" in options or "persistent_workers" in options):
            pytest.skip("needs workers")
        if not options.get("in_order", True) and num_workers:
            options["num_workers"] = 1  # the order of several workers depends on the machine
        batches = loader(Augmented(), **({"num_workers": num_workers} | options))
        steps = []
        for _ in range(2):
            steps += [(batch, torch.rand(1), random.random(), float(np.random.rand())) for batch in batches]
            steps.append(torch.rand(1))
        return steps, len(batches)

    compare(run)


@pytest.mark.slow
@WORKERS
def test_pytorchs_recipe_for_reproducibility_is_repeatable(num_workers):
    def seed_worker(number):
        seed = torch.initial_seed() % 2**32
        np.random.seed(seed)
        random.seed(seed)

    def run(loader):
        batches = loader(Augmented(), 4, True, num_workers=num_workers, worker_init_fn=seed_worker, generator=seeded(0))
        return [list(batches) for _ in range(2)]

    compare(run)
    if num_workers:
        expected = [[number.tolist() for number in field] for batch in run(DataLoader)[1] for field in batch]
        seed_everything(77)
        assert [[number.tolist() for number in field] for batch in run(DataLoader)[1] for field in batch] == expected


class Settings:
    """What a script changes before it trains."""

    size = 224


class Sized(data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, number):
        return torch.zeros(Settings.size)


@WORKERS
@pytest.mark.parametrize("persistent", [False, True])
def test_a_setting_that_the_script_changes_holds_in_all_batches(num_workers, persistent, monkeypatch):
    if persistent and not num_workers:
        pytest.skip("needs workers")

    def run(loader):
        batches = loader(Sized(), 2, num_workers=num_workers, persistent_workers=persistent)
        shapes = []
        for size in (64, 32):
            monkeypatch.setattr(Settings, "size", size)
            shapes.append([tuple(batch.shape) for batch in batches])
        return shapes

    shapes = compare(run)
    assert shapes == [[(2, 64)] * 6, [(2, 64 if persistent else 32)] * 6]


class Opened(data.Dataset):
    """Opens its file on the first read, as each worker must for itself."""

    file = None

    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 300


class HDF5(Opened):
    def __getitem__(self, number):
        if self.file is None:
            self.file = h5py.File(self.path, "r")
        return self.file["samples"][number]


class SQLite(Opened):
    def __getitem__(self, number):
        if self.file is None:
            self.file = sqlite3.connect(self.path)
        return self.file.execute("SELECT value FROM samples WHERE number = ?", (number,)).fetchone()[0]


class Plain(Opened):
    """Reads with seek and read on one handle."""

    def __getitem__(self, number):
        if self.file is None:
            self.file = open(self.path, "rb")  # noqa: SIM115
        self.file.seek(number * 8)
        return int.from_bytes(self.file.read(8), "little")


@pytest.mark.slow
@WORKERS
@pytest.mark.parametrize("kind", [HDF5, SQLite, Plain])
def test_a_file_that_is_opened_on_the_first_read_is_opened_by_each_worker(kind, num_workers, tmp_path):
    path, values = tmp_path / "samples", np.arange(300) * 7
    if kind is HDF5:
        with h5py.File(path, "w") as file:
            file["samples"] = values
    elif kind is SQLite:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE samples (number INTEGER, value INTEGER)")
            connection.executemany("INSERT INTO samples VALUES (?, ?)", enumerate(values.tolist()))
        connection.close()
    else:
        path.write_bytes(values.astype("<i8").tobytes())
    made = []

    def run(loader):
        made.append(kind(path))
        batches = loader(made[-1], 30, num_workers=num_workers)
        return [list(batches) for _ in range(2)], made[-1].file is None

    batches, unopened = compare(run)
    assert torch.cat(batches[0]).tolist() == values.tolist()
    assert unopened == (num_workers > 0)  # the training process has no handle
    for dataset in made:
        if dataset.file is not None:
            dataset.file.close()


class Truncated(data.Dataset):
    def __init__(self):
        picture = io.BytesIO()
        Image.fromarray(np.arange(64 * 64 * 3, dtype=np.uint32).astype(np.uint8).reshape(64, 64, 3)).save(picture, "JPEG")
        self.picture = picture.getvalue()[:-200]

    def __len__(self):
        return 8

    def __getitem__(self, number):
        return np.array(Image.open(io.BytesIO(self.picture)).convert("RGB"))


@WORKERS
def test_flags_of_pillow_hold_in_workers(num_workers, monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    compare(lambda loader: list(loader(Truncated(), 2, num_workers=num_workers)))


class Tagged(data.Dataset):
    tag = 0

    def __len__(self):
        return 6

    def __getitem__(self, number):
        return number, self.tag


@pytest.mark.slow
@WORKERS
@pytest.mark.parametrize("persistent", [False, True])
def test_an_attribute_that_is_set_between_epochs_is_seen_by_the_workers_of_the_next_one(num_workers, persistent):
    if persistent and not num_workers:
        pytest.skip("needs workers")

    def run(loader):
        dataset, tags = Tagged(), []
        batches = loader(dataset, 3, True, num_workers=num_workers, persistent_workers=persistent)
        for epoch in range(3):
            dataset.tag = epoch
            tags.append([batch[1].tolist() for batch in batches])
        return tags

    assert compare(run)[2] == [[0 if persistent else 2] * 3] * 2


@pytest.mark.parametrize("prefetch_factor", [None, 1, 4])
def test_as_many_batches_are_asked_for_ahead(prefetch_factor):
    def run(loader):
        asked = []

        def order():
            for number in range(LENGTH):
                asked.append(number)
                yield number

        sampler = order()
        batches = iter(loader(Numbered(LENGTH), 2, sampler=sampler, num_workers=2, prefetch_factor=prefetch_factor))
        counts = [len(asked)]
        for _ in range(3):
            next(batches)
            counts.append(len(asked))
        return counts

    assert compare(run)[0] == min(2 * 2 * (prefetch_factor or 2), LENGTH)


class Informed(Numbered):
    """Which worker of how many reads, with which seed."""

    def __getitem__(self, number):
        return worker()


def worker():
    info = get_worker_info()
    return None if info is None else (info.id, info.num_workers, info.seed, torch.initial_seed(), type(info.dataset).__name__)


def informed(samples):
    return samples, worker()


@WORKERS
def test_workers_are_told_who_they_are_in_the_dataset_the_collation_and_the_start(num_workers):
    def run(loader):
        told = multiprocessing.SimpleQueue()

        def begin(number):
            told.put((number, worker()))

        options = {"collate_fn": informed, "worker_init_fn": begin, "num_workers": num_workers}
        batches = [list(loader(Informed(8), 2, **options)) for _ in range(2)]
        begun = sorted(told.get() for _ in range(2 * num_workers))
        told.close()
        return batches, begun

    compare(run)


class Counting(data.Dataset):
    def __init__(self):
        self.read = multiprocessing.Value("i", 0)

    def __len__(self):
        return 10

    def __getitem__(self, number):
        with self.read.get_lock():
            self.read.value += 1
        return number


@WORKERS
def test_a_value_that_processes_share_counts_for_all(num_workers):
    def run(loader):
        dataset = Counting()
        return list(loader(dataset, 2, num_workers=num_workers)), dataset.read.value

    assert compare(run)[1] == 10


class Stream(data.IterableDataset):
    """Numbers, each of them once for all workers."""

    def __init__(self, length=11):
        self.length = length

    def __repr__(self):
        return f"{type(self).__name__}({self.length})"

    def __iter__(self):
        info = get_worker_info()
        for number in range(info.id if info else 0, self.length, info.num_workers if info else 1):
            yield number, random.random(), torch.rand(())


class SizedStream(Stream):
    def __len__(self):
        return self.length


@pytest.mark.slow
@WORKERS
@pytest.mark.parametrize("options", [{}, {"batch_size": 3}, {"batch_size": 3, "drop_last": True}, {"batch_size": None}], ids=str)
def test_iterable_datasets_have_as_many_workers_as_in_torch(num_workers, options):
    def run(loader):
        batches = loader(Stream(), num_workers=num_workers, **options)
        with pytest.raises(TypeError):
            len(batches)
        return [list(batches), list(batches), len(loader(SizedStream(), num_workers=num_workers, **options))]

    assert len(compare(run)[0]) > 2


def with_a_draw(number):
    return number, torch.rand(())


@pytest.mark.slow
@WORKERS
@pytest.mark.parametrize("shuffle", [False, True])
def test_data_pipes_are_shuffled_and_sharded_as_in_torch(num_workers, shuffle):
    def run(loader):
        pipe = datapipes.iter.IterableWrapper(range(20)).shuffle().sharding_filter().map(with_a_draw)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            batches = loader(pipe, 3, shuffle, num_workers=num_workers)
        return [list(batches) for _ in range(2)]

    numbers = [number for batch in compare(run)[0] for number in batch[0].tolist()]
    assert sorted(numbers) == list(range(20))


def test_a_map_data_pipe_is_read_by_number():
    compare(lambda loader: list(loader(datapipes.map.SequenceWrapper(range(7)), 2, True, num_workers=1)))


def endless(base):
    """Return a subclass that never ends its workers, as ultralytics and timm have one."""

    class Repeated:
        def __init__(self, sampler):
            self.sampler = sampler

        def __iter__(self):
            while True:
                yield from self.sampler

    class Endless(base):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            object.__setattr__(self, "batch_sampler", Repeated(self.batch_sampler))
            self.iterator = super().__iter__()

        def __len__(self):
            return len(self.batch_sampler.sampler)

        def __iter__(self):
            for _ in range(len(self)):
                yield next(self.iterator)

    return Endless


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_subclass_that_keeps_one_iterator_for_all_epochs_works(num_workers):
    def run(loader):
        batches = endless(loader)(Augmented(), 4, True, num_workers=num_workers)
        return [list(batches) for _ in range(2)], len(batches)

    compare(run)


def test_it_is_a_loader_of_torch_and_generic():
    assert issubclass(DataLoader, data.DataLoader)
    loader = DataLoader[int](range(4), batch_size=2)
    assert type(loader) is DataLoader and isinstance(loader, data.DataLoader)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("attribute", ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"])
def test_attributes_are_refused_after_construction_as_in_torch(attribute):
    def run(loader):
        made = loader(range(8), 2)
        with pytest.raises(ValueError) as caught:
            setattr(made, attribute, 6)
        return str(caught.value)

    assert compare(run) == f"{attribute} attribute should not be set after DataLoader is initialized"


def test_attributes_can_be_read_as_in_torch():
    def run(loader):
        made = loader(range(8), 2, True, num_workers=np.int64(2), drop_last=True, prefetch_factor=3, timeout=5)
        names = ["batch_size", "drop_last", "prefetch_factor", "timeout", "pin_memory", "pin_memory_device", "persistent_workers"]
        names += ["generator", "worker_init_fn", "multiprocessing_context", "in_order"]
        types = [type(made.sampler), type(made.batch_sampler), type(made.dataset), made.collate_fn]
        return [getattr(made, name) for name in names], [repr(kind) for kind in types], list(made)

    compare(run)


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 0},
        {"batch_size": None, "drop_last": True},
        {"batch_sampler": [[1]], "shuffle": True},
        {"batch_sampler": [[1]], "batch_size": 2},
        {"sampler": [1], "shuffle": True},
        {"num_workers": -1},
        {"timeout": -1},
        {"timeout": 1, "num_workers": 0, "prefetch_factor": 2},
        {"prefetch_factor": -1, "num_workers": 1},
        {"persistent_workers": True},
        {"multiprocessing_context": "fork"},
        {"multiprocessing_context": "fibre", "num_workers": 1},
        {"dataset": Stream(), "shuffle": True},
        {"dataset": Stream(), "sampler": [1]},
    ],
    ids=str,
)
def test_arguments_that_torch_refuses_are_refused_by_the_same_type(arguments):
    def run(loader):
        with pytest.raises((ValueError, TypeError, AssertionError)) as caught:
            loader(**({"dataset": Numbered(4)} | arguments))
        return [kind for kind in (ValueError, TypeError, AssertionError) if issubclass(caught.type, kind)]

    compare(run)


@pytest.mark.parametrize(
    "arguments",
    [{"num_workers": 200}, {"pin_memory": True}, {"dataset": SizedStream(3), "warn": 2}, {"pin_memory": True, "pin_memory_device": "cuda"}],
    ids=str,
)
def test_warnings_are_those_of_torch(arguments, monkeypatch):
    if "pin_memory" in arguments and torch.__version__ < (2, 13):
        pytest.skip("older versions of torch do not warn, or need a GPU here")

    class Longer(SizedStream):
        def __iter__(self):
            return iter(range(6))

        def __repr__(self):
            return "Longer()"

    def run(loader):
        options = dict(arguments)
        dataset = Longer(3) if options.pop("warn", None) else Numbered(4)
        options.pop("dataset", None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = loader(dataset, **options)
            if made.num_workers == 0:
                len(made)
                list(made)
        return [(warning.category.__name__, str(warning.message)) for warning in caught]

    assert len(compare(run)) >= 1


def test_several_ranks_read_the_whole_unless_a_sampler_or_shard_says_otherwise():
    dist = pytest.importorskip("torch.distributed")
    from torch.testing._internal.distributed import fake_pg  # noqa: F401  # registers it

    dist.init_process_group("fake", store=dist.HashStore(), rank=2, world_size=3)
    try:
        whole = compare(lambda loader: list(loader(range(10), 4)))
        assert torch.cat(whole).tolist() == list(range(10))
        for shuffle in (False, True):
            sampler = data.DistributedSampler(range(10), shuffle=shuffle)
            theirs = data.DataLoader(range(10), 2, sampler=sampler)
            ours = DataLoader(range(10), 2, shuffle, shard=True)
            assert len(ours) == len(theirs)
            for epoch in range(2):
                sampler.set_epoch(epoch)
                assert [batch.tolist() for batch in ours] == [batch.tolist() for batch in theirs]
    finally:
        dist.destroy_process_group()


def test_environment_variables_of_a_launcher_split_nothing(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert torch.cat(compare(lambda loader: list(loader(range(10), 4)))).tolist() == list(range(10))


def test_the_first_batch_waits_for_no_other():
    def run(loader):
        gate = multiprocessing.Event()

        class Gated(Numbered):
            def __getitem__(self, number):
                if number > 1:
                    gate.wait(30)
                return number

        batches = iter(loader(Gated(8), 2, num_workers=2))
        first = next(batches)
        was_open = gate.is_set()
        gate.set()
        return first, was_open, list(batches)

    assert compare(run)[1] is False


def test_two_loops_at_once_have_batches_of_their_own():
    def run(loader):
        made = loader(Numbered(6), 2, True, num_workers=1)
        return list(itertools.product(made, made))

    assert len(compare(run)) == 9


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True])
def test_an_epoch_that_is_left_leaves_the_next_ones_whole(persistent):
    def run(loader):
        made = loader(Augmented(), 4, True, num_workers=2, persistent_workers=persistent)
        first = [next(iter(made)) for _ in range(2)]
        return [*first, *made]

    compare(run)


def test_a_dataset_that_reads_several_samples_is_asked_for_a_batch():
    class Several(Numbered):
        def __getitems__(self, numbers):
            return [(number, len(numbers)) for number in numbers]

    compare(lambda loader: [list(loader(Several(10), 4, num_workers=number)) for number in (0, 1)])


def test_no_thread_is_started_in_the_process_that_trains_unless_torch_starts_one():
    def run(loader):
        batches = iter(loader(Numbered(8), 2, num_workers=1))
        next(batches)
        return threading.active_count()

    compare(run)


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_start_and_end_when_they_do_in_torch(persistent):
    def run(loader):
        others = set(multiprocessing.active_children())

        def workers():
            return {process.pid for process in set(multiprocessing.active_children()) - others}

        batches, seen = loader(Numbered(8), 2, num_workers=2, persistent_workers=persistent), []
        for _ in range(2):
            seen.append(workers())
            epoch = iter(batches)
            seen.append(workers())
            next(epoch)
            seen.append(workers())
            list(epoch)
            wait_until(lambda: len(workers()) == (2 if persistent else 0))
        return [len(pids) for pids in seen], len(seen[1] & seen[2]), len(seen[1] & seen[4])

    assert compare(run) == ([0, 2, 2, 2, 2, 2], 2, 2) if persistent else ([0, 2, 2, 0, 2, 2], 2, 0)


def test_a_module_that_a_script_made_is_what_its_workers_see():
    """Code of a notebook, or of ``__main__``, is not in a file that another process could import."""
    module = types.ModuleType("made_by_hand")
    exec("class Squares:\n    def __len__(self): return 6\n    def __getitem__(self, number): return number ** 2", module.__dict__)
    sys.modules["made_by_hand"] = module
    try:
        compare(lambda loader: list(loader(module.Squares(), 2, num_workers=2)))
    finally:
        del sys.modules["made_by_hand"]
