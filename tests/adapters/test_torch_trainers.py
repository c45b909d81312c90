"""Loaders in Lightning's ``Trainer`` and in Accelerate; run by ``tox -e adapters-torch``."""

import warnings

import pytest

from highway import Pipeline
from highway.modules import Reader

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning", reason="lightning is not installed: this is run by tox -e adapters-torch")
accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed: this is run by tox -e adapters-torch")

from torch_datasets import Numbered  # noqa: E402

from highway.adapters.torch import DataLoader, to_device  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:::(lightning|torch|lightning_fabric|lightning_utilities).*", "ignore:.*:UserWarning")
BATCHES = 6


class Pairs(Numbered):
    def __getitem__(self, number):
        return float(number), number


class Recorder(lightning.LightningModule):
    """Takes steps, and notes which samples came."""

    def __init__(self, stop_behind=None):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen, self.validated, self.stop_behind = [], 0, stop_behind

    def training_step(self, batch, index):
        values, numbers = batch
        self.seen.append(numbers.tolist())
        return (self.weight - values.float().mean()) ** 2

    def validation_step(self, batch, index):
        self.validated += 1

    def on_train_batch_end(self, *_):
        if self.stop_behind == len(self.seen):
            self.trainer.save_checkpoint(self.trainer.default_root_dir + "/middle.ckpt")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def over_dataset():
    return DataLoader(Pairs(18), 3, True, num_workers=2, generator=torch.Generator().manual_seed(7), workers="threads")


def over_pipeline():
    return DataLoader(Pipeline([Reader(Pairs(18), 3, num_workers=2)], seed=7))


def fit(loader, folder, epochs, model=None, checkpoint=None, **options):
    model = model or Recorder()
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(model, loader, ckpt_path=checkpoint, weights_only=None if checkpoint is None else False)
    return model


@pytest.mark.parametrize("stop_behind", [BATCHES + 1, BATCHES + 4, 2 * BATCHES])
@pytest.mark.parametrize(
    "make", [over_dataset, over_pipeline, lambda: to_device(over_dataset(), "cpu")], ids=["dataset", "pipeline", "device"]
)
def test_lightning_goes_on_in_the_middle_of_an_epoch_by_its_own_checkpoint(make, stop_behind, tmp_path):
    whole = fit(make(), tmp_path, 3, Recorder(stop_behind))
    assert len(whole.seen) == 3 * BATCHES
    resumed = fit(make(), tmp_path, 3, checkpoint=tmp_path / "middle.ckpt")
    assert resumed.seen == whole.seen[stop_behind:]


class Unsized(DataLoader):
    """A loader over a pipeline of unknown length."""

    def __len__(self):
        raise TypeError("the length is not known")


def of_unknown_length():
    return Unsized(Pipeline([Reader(Pairs(18), 3, num_workers=2)], seed=7))


class Asking(Recorder):
    """Asks the loader, and its pipeline, for their states after each step."""

    def __init__(self, loader, *asked):
        super().__init__()
        self.loader, self.asked, self.states = loader, asked, []

    def train_dataloader(self):
        return self.loader

    def on_train_batch_end(self, *_):
        self.states.append([asked.state_dict() for asked in self.asked])


@pytest.mark.parametrize("wrap", [lambda loader: loader, lambda loader: to_device(loader, "cpu")], ids=["loader", "device"])
@pytest.mark.parametrize("make", [over_pipeline, of_unknown_length], ids=["known", "unknown"])
def test_lightning_asks_for_states_of_the_batch_that_it_trains_with(make, wrap, tmp_path):
    loader = make()
    model = Asking(wrap(loader), loader, loader.dataset)
    fit(None, tmp_path, 2, model)
    assert len(model.states) == len(model.seen) == 2 * BATCHES
    for count in (1, 4, BATCHES + 3):
        for state in model.states[count - 1]:
            resumed = over_pipeline()
            resumed.load_state_dict(state)
            assert [numbers.tolist() for _, numbers in resumed] == model.seen[count : BATCHES if count < BATCHES else None]


@pytest.mark.parametrize("stop_behind", [BATCHES + 1, BATCHES + 4])
def test_lightning_goes_on_if_the_length_is_not_known(stop_behind, tmp_path):
    whole = fit(of_unknown_length(), tmp_path, 3, Recorder(stop_behind))
    resumed = fit(of_unknown_length(), tmp_path, 3, checkpoint=tmp_path / "middle.ckpt")
    assert resumed.seen == whole.seen[stop_behind:]


class Scheduled(Recorder):
    """Asks for the number of steps, which sets loaders up before a checkpoint is restored."""

    def configure_optimizers(self):
        self.steps = self.trainer.estimated_stepping_batches
        return super().configure_optimizers()


class Keeping(lightning.LightningDataModule):
    """Restores its loader itself, as docs/howto/dataloader.md says."""

    def __init__(self, loader):
        super().__init__()
        self.loader = loader

    def train_dataloader(self):
        return self.loader

    def state_dict(self):
        return self.loader.state_dict()

    def load_state_dict(self, state):
        self.loader.load_state_dict(state)


@pytest.mark.parametrize("stop_behind", [BATCHES + 4, 2 * BATCHES])
@pytest.mark.parametrize("make", [over_dataset, over_pipeline])
def test_a_data_module_restores_what_lightning_forgets(make, stop_behind, tmp_path):
    """Lightning #20550: loaders that were set up before the checkpoint is restored are not."""
    whole = fit(Keeping(make()), tmp_path, 3, Scheduled(stop_behind))
    resumed = fit(Keeping(make()), tmp_path, 3, Scheduled(), tmp_path / "middle.ckpt")
    assert resumed.seen == whole.seen[stop_behind:]


def test_lightning_validates_and_counts_steps(tmp_path):
    class Both(lightning.LightningDataModule):
        train_dataloader = staticmethod(over_dataset)
        val_dataloader = staticmethod(over_pipeline)

    model = fit(Both(), tmp_path, 2, Scheduled(), num_sanity_val_steps=2)
    assert len(model.seen) == model.steps == 2 * BATCHES
    assert model.validated == 2 + 2 * BATCHES


def test_accelerate_prepares_a_loader_over_a_pipeline():
    accelerator = accelerate.Accelerator(cpu=True)
    with over_pipeline() as loader:
        prepared = accelerator.prepare(loader)
        assert len(prepared) == BATCHES
        for _ in range(2):
            assert sorted(number for _, numbers in prepared for number in numbers.tolist()) == list(range(18))


def test_a_loader_that_accelerate_does_not_prepare_moves_its_batches_itself():
    accelerator = accelerate.Accelerator(cpu=True)
    with over_dataset() as loader:
        assert sum(len(numbers) for _, numbers in to_device(loader, accelerator.device)) == 18
