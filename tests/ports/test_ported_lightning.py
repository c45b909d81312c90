"""Lightning's ``Trainer`` as its documentation uses it, with our loader in place of torch's; run by ``tox -e adapters-torch``."""

import os
import random
import tempfile
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning", reason="lightning is not installed: this is run by tox -e adapters-torch")

from loader_runs import OURS, THEIRS, plain, run, start_server, watched  # noqa: E402

LENGTH = 13


@pytest.fixture(scope="module", autouse=True)
def server():
    start_server(__name__)


class Points(torch.utils.data.Dataset):
    """``(number and draws of all three generators, number)``."""

    def __len__(self):
        return LENGTH

    def __getitem__(self, number):
        return torch.tensor([number, random.random(), np.random.rand(), torch.rand(()).item()]), number


class Regression(lightning.LightningModule):
    """Fits a line, and notes each batch and each loss."""

    def __init__(self, saved_after=None):
        super().__init__()
        self.line = torch.nn.Linear(4, 1)
        self.seen, self.saved_after = [], saved_after

    def forward(self, x):
        return self.line(x)[:, 0]

    def step(self, kind, batch):
        x, number = batch
        loss = (self(x) - number).pow(2).mean()
        self.log(kind, loss, on_epoch=True, sync_dist=True, batch_size=len(x))
        self.seen.append((kind, plain(batch), loss.item()))
        return loss

    def training_step(self, batch, _):
        return self.step("train", batch)

    def validation_step(self, batch, _):
        self.step("validate", batch)

    def test_step(self, batch, _):
        self.step("test", batch)

    def predict_step(self, batch, _):
        return self(batch[0]), batch[1]

    def on_train_batch_end(self, *_):
        if self.global_step == self.saved_after:
            self.trainer.save_checkpoint(os.path.join(self.trainer.default_root_dir, "middle.ckpt"))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.001)


def trainer(ranks, folder, **options):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    warnings.simplefilter("ignore")
    strategy = {"strategy": "ddp", "devices": ranks} if ranks > 1 else {"devices": 1}
    return lightning.Trainer(accelerator="cpu", default_root_dir=folder, **strategy, **quiet, **options)


def train(loader, ranks, options):
    """Fit, validate, test and predict."""
    loader = watched(loader)
    lightning.seed_everything(5, workers=True)
    model = Regression()
    with tempfile.TemporaryDirectory() as folder:
        fitting = trainer(ranks, folder, max_epochs=2, **options)
        validation = loader(Points(), batch_size=4, num_workers=2, persistent_workers=True)
        fitting.fit(model, loader(Points(), batch_size=2, shuffle=True, num_workers=2), validation)
        tested = fitting.test(model, validation)
        predicted = fitting.predict(model, loader(Points(), batch_size=3))
    metrics = {name: value.item() for name, value in fitting.callback_metrics.items()}
    weights = plain(list(model.state_dict().values()))
    return {"ran": loader.ran, "seen": model.seen, "metrics": metrics, "tested": tested, "predicted": plain(predicted), "weights": weights}


def resume(loader, ranks, folder, saved_after):
    """Train three epochs, with a checkpoint after some steps, or resume from the checkpoint."""
    loader = watched(loader)
    lightning.seed_everything(5, workers=True)
    model = Regression(saved_after)
    checkpoint = None if saved_after else os.path.join(folder, "middle.ckpt")
    batches = loader(Points(), batch_size=2, shuffle=True, num_workers=2)
    trainer(ranks, folder, max_epochs=3).fit(model, batches, ckpt_path=checkpoint, weights_only=False if checkpoint else None)
    return {"ran": loader.ran, "seen": model.seen, "weights": plain(list(model.state_dict().values()))}


OPTIONS = {
    "plain": {},
    "accumulated": {"accumulate_grad_batches": 3},
    "overfit": {"overfit_batches": 2},
    "limited": {"limit_train_batches": 3, "val_check_interval": 2, "num_sanity_val_steps": 1},
}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_lightning_fits_validates_tests_and_predicts_alike(options, ranks):
    theirs, ours = (run(train, loader, ranks, options, ranks=ranks) for loader in (THEIRS, OURS))
    for package, results in ("torch", theirs), ("highway", ours):
        assert {ran for result in results for ran in result.pop("ran")} == {package}
    assert ours == theirs


@pytest.mark.parametrize("saved_after", [3, 7, 9])
def test_lightning_resumes_bit_for_bit(saved_after, tmp_path):
    whole = run(resume, OURS, 1, str(tmp_path), saved_after)[0]
    rest = run(resume, OURS, 1, str(tmp_path), None)[0]
    assert set(whole["ran"]) == set(rest["ran"]) == {"highway"}
    assert rest["seen"] == whole["seen"][saved_after:]
    assert rest["weights"] == whole["weights"]


def test_lightning_resumes_each_rank(tmp_path):
    whole = run(resume, OURS, 2, str(tmp_path), 5, ranks=2)
    rest = run(resume, OURS, 2, str(tmp_path), None, ranks=2)
    # Lightning saves the state of the first rank only: the samples are the same, random draws are not.
    assert [numbers(result) for result in rest] == [numbers(result)[5:] for result in whole]


def numbers(result):
    return [batch[1] for _, batch, _ in result["seen"]]
