"""Training loops as Accelerate's documentation writes them, with our loader in place of torch's; run by ``tox -e adapters-torch``."""

import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed: this is run by tox -e adapters-torch")

from accelerate import data_loader  # noqa: E402
from accelerate.utils import DataLoaderConfiguration, set_seed  # noqa: E402
from loader_runs import OURS, THEIRS, package, plain, run, start_server  # noqa: E402

LENGTH = 11  # a multiple of neither the batch nor the ranks


@pytest.fixture(scope="module", autouse=True)
def server():
    start_server(__name__)


class Points(torch.utils.data.Dataset):
    """``{"x": number and draws of all three generators, "y": number}``."""

    def __len__(self):
        return LENGTH

    def __getitem__(self, number):
        return {"x": torch.tensor([number, random.random(), np.random.rand(), torch.rand(()).item()]), "y": number}


class Stream(torch.utils.data.IterableDataset):
    """The same points, each from one worker."""

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return (Points()[number] for number in range(first, LENGTH, step))


def keep(loader):
    """Have Accelerate make its loaders from ours: what docs/howto/dataloader-programs.md says."""
    data_loader.DataLoader = loader


def reader(prepared):
    """The package of the loader that reads behind what ``prepare`` returned."""
    return package(type(prepared.base_dataloader))


def set_up(loader, kept, **options):
    if kept:
        keep(loader)
    set_seed(3)
    return accelerate.Accelerator(cpu=True, **options)


def train(loader, kept, dataset, configuration, accumulate=1):
    """Train for two epochs, and gather what a rank evaluates in each."""
    accelerator = set_up(loader, kept, dataloader_config=DataLoaderConfiguration(**configuration), gradient_accumulation_steps=accumulate)
    shuffle = {} if isinstance(dataset, Stream) else {"shuffle": True}
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    model, optimizer, batches, evaluated = accelerator.prepare(
        model, optimizer, loader(dataset, batch_size=4, num_workers=2, **shuffle), loader(dataset, batch_size=4)
    )
    seen = []
    for _ in range(2):
        for batch in batches:
            with accelerator.accumulate(model):
                loss = (model(batch["x"])[:, 0] - batch["y"]).pow(2).mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            seen.append((plain(batch), loss.item(), accelerator.sync_gradients, batches.end_of_dataloader, batches.remainder))
        for batch in evaluated:
            seen.append(plain(accelerator.gather_for_metrics(batch["y"])))
    return {
        "ran": [reader(batches), reader(evaluated)],
        "length": length(batches),
        "seen": seen,
        "weights": plain(list(accelerator.unwrap_model(model).state_dict().values())),
        "random": torch.rand(()).item(),
    }


def length(batches):
    try:
        return len(batches)
    except TypeError:
        return None


def read(loader, kept, configuration):
    """Read two epochs, without steps: ranks may have different numbers of batches."""
    accelerator = set_up(loader, kept, dataloader_config=DataLoaderConfiguration(**configuration))
    batches = accelerator.prepare(loader(Points(), batch_size=2, shuffle=True, num_workers=2, drop_last=False))
    return {"ran": [reader(batches)], "seen": [[plain(batch) for batch in batches] for _ in range(2)], "length": length(batches)}


def skip(loader, kept):
    """Resume in the middle of the second epoch, as the documentation does: ``skip_first_batches``."""
    accelerator = set_up(loader, kept, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
    batches = accelerator.prepare(loader(Points(), batch_size=2, shuffle=True, num_workers=2))
    batches.set_epoch(1)
    skipped = accelerator.skip_first_batches(batches, 2)
    seen = [[plain(batch) for batch in each] for each in (skipped, batches)]
    return {"ran": [reader(batches), reader(skipped)], "seen": seen}


def resume(loader, folder, stopped_after=None):
    """Save the state of the prepared loader of each rank after some steps, or resume from it."""
    accelerator = set_up(loader, kept=True)
    path = f"{folder}/rank-{accelerator.process_index}"
    batches = accelerator.prepare(loader(Points(), batch_size=1, shuffle=True, num_workers=2))
    if stopped_after is None:
        batches.load_state_dict(torch.load(path))
    seen = []
    for _ in range(2):
        for batch in batches:
            seen.append(plain(batch))
            if len(seen) == stopped_after:
                torch.save(batches.state_dict(), path)
    return {"ran": [reader(batches)], "seen": seen}


CONFIGURATIONS = {
    "even": {},
    "split": {"split_batches": True},
    "dispatched": {"dispatch_batches": True},
    "dispatched-and-split": {"dispatch_batches": True, "split_batches": True},
    "seedable": {"use_seedable_sampler": True},
}


def compare(program, *arguments, ranks):
    """Compare torch's loader, ours by Accelerate's usual calls, and ours kept."""
    theirs = run(program, THEIRS, False, *arguments, ranks=ranks)
    ours = run(program, OURS, False, *arguments, ranks=ranks)
    kept = run(program, OURS, True, *arguments, ranks=ranks)
    assert ours == theirs  # and their "ran"
    for expected, results in ("torch", theirs), ("highway", kept):
        assert {ran for result in results for ran in result.pop("ran")} == {expected}
    assert kept == theirs


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("configuration", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_accelerate_trains_and_evaluates_alike(configuration, ranks):
    compare(train, Points(), configuration, 2, ranks=ranks)


@pytest.mark.parametrize("dispatched", [None, False], ids=["dispatched", "sharded"])
def test_accelerate_reads_a_stream_alike(dispatched):
    compare(train, Stream(), {"dispatch_batches": dispatched}, 1, ranks=2)


def test_accelerate_gives_ranks_uneven_batches_alike():
    compare(read, {"even_batches": False}, ranks=2)


@pytest.mark.parametrize("ranks", [1, 2])
def test_accelerate_skips_the_first_batches_alike(ranks):
    compare(skip, ranks=ranks)


@pytest.mark.parametrize(("stopped_after", "ranks"), [(4, 1), (LENGTH + 3, 1), (4, 2), ((LENGTH + 1) // 2 + 2, 2)])
def test_a_loader_that_accelerate_keeps_resumes_exactly(stopped_after, ranks, tmp_path):
    whole = run(resume, OURS, str(tmp_path), stopped_after, ranks=ranks)
    rest = run(resume, OURS, str(tmp_path), ranks=ranks)
    assert {ran for result in (*whole, *rest) for ran in result["ran"]} == {"highway"}
    for before, after in zip(whole, rest, strict=True):
        count = len(before["seen"]) - stopped_after
        assert count > 2 and after["seen"][:count] == before["seen"][stopped_after:]
