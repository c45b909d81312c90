"""How long Lightning and Hugging Face's ``Trainer`` wait for data; run by ``tox -e adapters-torch``.

The clock is a number that the dataset, the model, evaluation and saving advance, so that the times are exact.
"""

import csv
import warnings

import pytest

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning", reason="lightning is not installed: this is run by tox -e adapters-torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: this is run by tox -e adapters-torch")

from lightning.pytorch.loggers import CSVLogger  # noqa: E402

from highway.adapters import lightning as for_lightning  # noqa: E402
from highway.adapters import transformers as for_transformers  # noqa: E402
from highway.adapters.torch import DataLoader  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:::(lightning|torch|lightning_fabric|lightning_utilities|transformers|accelerate).*")
READ, STEP, OTHER = 1.0, 6.0, 100.0  # seconds of a sample, of a step, and of anything else


class Clock:
    def __init__(self):
        self.now = 5.0

    def __call__(self):
        return self.now


class Slow(torch.utils.data.Dataset):
    def __init__(self, clock):
        self.clock = clock

    def __len__(self):
        return 8

    def __getitem__(self, number):
        self.clock.now += READ
        return {"x": torch.tensor([float(number)])}


class Fitted(lightning.LightningModule):
    def __init__(self, clock):
        super().__init__()
        self.line, self.clock = torch.nn.Linear(1, 1), clock

    def training_step(self, batch, _):
        self.clock.now += STEP
        return self.line(batch["x"]).sum()

    def validation_step(self, *_):
        self.clock.now += OTHER

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


class Saving(lightning.Callback):
    """Takes long after each step, as a checkpoint does."""

    def __init__(self, clock):
        self.clock = clock

    def on_train_batch_end(self, *_):
        self.clock.now += OTHER


@pytest.mark.parametrize("loader", [DataLoader, torch.utils.data.DataLoader], ids=["highway", "torch"])
def test_lightning_logs_the_wait_of_each_step(loader, tmp_path):
    clock = Clock()
    logger = CSVLogger(tmp_path)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=2,
        logger=logger,
        log_every_n_steps=1,
        callbacks=[for_lightning.DataWait(clock), Saving(clock)],
        val_check_interval=2,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(Fitted(clock), loader(Slow(clock), batch_size=2), loader(Slow(clock), batch_size=8))
    with open(f"{logger.log_dir}/metrics.csv") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["data_wait_seconds_step"]) for row in rows if row["data_wait_seconds_step"]] == [2 * READ] * 8
    assert [float(row["data_wait_seconds_epoch"]) for row in rows if row["data_wait_seconds_epoch"]] == [2 * READ] * 2
    assert [float(row["data_wait_share"]) for row in rows if row["data_wait_share"]] == [0.25] * 8
    assert not {"start", "stop"} & set(vars(trainer.profiler))  # they are the profiler's own again


class Line(torch.nn.Module):
    def __init__(self, clock):
        super().__init__()
        self.line, self.clock = torch.nn.Linear(1, 1), clock

    def forward(self, x):
        self.clock.now += STEP if self.training else OTHER
        return {"loss": self.line(x).sum()}


class Records(transformers.TrainerCallback):
    """Keeps what an integration, which comes before callbacks of the user, is given."""

    def __init__(self, clock):
        self.clock, self.logs = clock, []

    def on_log(self, *_, logs, **__):
        self.clock.now += OTHER
        self.logs.append(dict(logs))

    def on_save(self, *_, **__):
        self.clock.now += OTHER


def test_trainer_logs_the_wait_of_its_steps(tmp_path):
    clock = Clock()
    records = Records(clock)
    arguments = transformers.TrainingArguments(
        str(tmp_path),
        num_train_epochs=2,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=2,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_steps=2,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(Line(clock), arguments, train_dataset=Slow(clock), eval_dataset=Slow(clock), callbacks=[records])
    trainer.add_callback(for_transformers.DataWaitCallback(trainer, clock))
    trainer.train()
    for logs in records.logs, trainer.state.log_history:
        waits = [log for log in logs if "data_wait_seconds" in log]
        # Accelerate takes a batch ahead: the first step of an epoch waits for three, the last for one.
        assert [log["data_wait_seconds"] for log in waits] == [2.5 * READ, 1.5 * READ] * 2
        assert [log["data_wait_share"] for log in waits] == [2.5 / 14.5, 1.5 / 13.5] * 2
    assert [log["step"] for log in trainer.state.log_history if "data_wait_share" in log] == [2, 4, 6, 8]
