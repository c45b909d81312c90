"""Hugging Face's ``Trainer`` as its documentation uses it, with our loader in place of torch's; run by ``tox -e adapters-torch``."""

import os
import random
import tempfile

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # models are made from their configurations
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: this is run by tox -e adapters-torch")

import accelerate.data_loader  # noqa: E402
from loader_runs import OURS, THEIRS, plain, run, start_server, watched  # noqa: E402

LENGTH = 11


@pytest.fixture(scope="module", autouse=True)
def server():
    start_server(__name__)


class Sentences(torch.utils.data.Dataset):
    """Token numbers, one of which is random, and a label; not all have the same length."""

    def __len__(self):
        return LENGTH

    def __getitem__(self, number):
        if number >= LENGTH:
            raise IndexError(number)  # sampling by length iterates over the dataset
        tokens = [1, number + 2, random.randrange(2, 30), int(torch.randint(2, 30, ()))] + [3] * (number % 3)
        return {"input_ids": tokens, "labels": number % 2}


def collate(samples):
    """Pad all samples to six tokens: Accelerate dispatches batches of one size only."""
    ids = torch.tensor([sample["input_ids"] + [0] * (6 - len(sample["input_ids"])) for sample in samples])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": torch.tensor([sample["labels"] for sample in samples])}


def model():
    sizes = {"vocab_size": 32, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return transformers.BertForSequenceClassification(transformers.BertConfig(**sizes, max_position_embeddings=8, num_labels=2))


class Recorder(transformers.Trainer):
    """Notes each batch."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.seen = []

    def compute_loss(self, model, inputs, *arguments, **options):
        self.seen.append(plain(dict(inputs)))
        return super().compute_loss(model, inputs, *arguments, **options)


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(1) == prediction.label_ids).mean())}


def put(loader):
    """Have ``Trainer`` make its loaders from ours: what docs/howto/dataloader-programs.md says."""
    accelerate.data_loader.DataLoader = loader


def train(loader, folder=None, checkpoint=None, **options):
    """Train, evaluate and predict."""
    put(loader := watched(loader))
    transformers.set_seed(5)
    with tempfile.TemporaryDirectory() as own:
        arguments = transformers.TrainingArguments(
            folder or own,
            num_train_epochs=3,
            per_device_train_batch_size=2,
            per_device_eval_batch_size=4,
            dataloader_num_workers=2,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            logging_steps=1,
            **{"eval_strategy": "epoch", "save_strategy": "no", **options},
        )
        trainer = Recorder(model(), arguments, collate, Sentences(), Sentences(), compute_metrics=accuracy)
        trained = trainer.train(checkpoint)
        count = len(trainer.seen)
        predicted = trainer.predict(Sentences())
    return {
        "ran": loader.ran,
        "seen": trainer.seen[:count],
        "logs": [{name: value for name, value in log.items() if not is_time(name)} for log in trainer.state.log_history],
        "loss": trained.training_loss,
        "predicted": [predicted.predictions.tolist(), predicted.label_ids.tolist(), predicted.metrics["test_accuracy"]],
        "weights": plain(list(trainer.model.state_dict().values())),
    }


def is_time(name):
    return name.endswith(("_runtime", "_per_second"))


def compare(options, ranks):
    theirs, ours = (run(trained_with, loader, options, ranks=ranks) for loader in (THEIRS, OURS))
    for package, results in ("torch", theirs), ("highway", ours):
        assert {ran for result in results for ran in result.pop("ran")} == {package}
    assert ours == theirs


def trained_with(loader, options):
    return train(loader, **options)


OPTIONS = {
    "plain": {},
    "accumulated": {"gradient_accumulation_steps": 2},
    "persistent": {"dataloader_persistent_workers": True, "dataloader_drop_last": True},
    "grouped": {"train_sampling_strategy": "group_by_length"},
    "dispatched": {"accelerator_config": {"dispatch_batches": True}},
    "split": {"accelerator_config": {"split_batches": True}},
}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_trainer_trains_evaluates_and_predicts_alike(options, ranks):
    compare(options, ranks)


@pytest.mark.parametrize("ranks", [1, 2])
def test_trainer_resumes_alike(ranks, tmp_path):
    saved = {"save_strategy": "steps", "save_steps": 2, "folder": str(tmp_path)}
    run(trained_with, OURS, saved, ranks=ranks)
    checkpoint = str(tmp_path / f"checkpoint-{8 // ranks}")  # in the middle of the second epoch
    theirs, ours = (
        run(trained_with, loader, saved | {"checkpoint": checkpoint, "folder": str(tmp_path / loader.__module__)}, ranks=ranks)
        for loader in (THEIRS, OURS)
    )
    for package, results in ("torch", theirs), ("highway", ours):
        assert {ran for result in results for ran in result.pop("ran")} == {package}
    assert ours == theirs
