"""Programs of timm, torchvision, ultralytics and open_clip, with our loader in place of torch's; run by ``tox -e ports-torch``.

These packages make their loaders themselves. A user who changes the import in their code gets what these programs run: their modules are
executed again with our loader under the name that they import.
"""

import importlib
import os
import random
import tempfile
from argparse import Namespace
from collections import defaultdict

import numpy as np
import pytest
import webdataset

torch = pytest.importorskip("torch")
for package in ("timm", "ultralytics", "open_clip_train"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: this is run by tox -e ports-torch", allow_module_level=True)

from without_operators import torchvision_without_operators  # noqa: E402

torchvision = torchvision_without_operators()
os.environ |= {"YOLO_OFFLINE": "true", "HF_HUB_OFFLINE": "1", "YOLO_CONFIG_DIR": tempfile.gettempdir()}

import open_clip  # noqa: E402
import open_clip_train.data  # noqa: E402
import timm.data  # noqa: E402
import torch.distributed as dist  # noqa: E402
import ultralytics.data.build  # noqa: E402
import webdataset.compat  # noqa: E402
from loader_runs import OURS, THEIRS, plain, run, start_server, watched  # noqa: E402
from PIL import Image  # noqa: E402
from torch.utils.data import DistributedSampler, RandomSampler, Subset  # noqa: E402
from torchvision.transforms import v2  # noqa: E402
from ultralytics.models.yolo.detect import DetectionTrainer  # noqa: E402
from ultralytics.utils.nms import TorchNMS  # noqa: E402

LENGTH = 13


@pytest.fixture(scope="module", autouse=True)
def server():
    start_server(__name__)


class Pictures(torch.utils.data.Dataset):
    """Images of two shapes, which ``transform`` changes, and their labels."""

    def __init__(self, transform=None):
        self.transform = transform

    def __len__(self):
        return LENGTH

    def __getitem__(self, number):
        image = Image.fromarray(picture(number))
        return image if self.transform is None else self.transform(image), number % 3


def picture(number):
    shape = (20, 24, 3) if number % 2 else (24, 18, 3)
    return np.random.default_rng(number).integers(256, size=shape, dtype=np.uint8)


def changed_import(loader, *modules):
    """Execute modules again with another class under the name ``torch.utils.data.DataLoader``."""
    here = torch.utils.data, torch.utils.data.dataloader
    for module in here:
        module.DataLoader = loader
    for module in modules:
        importlib.reload(module)
    for module in here:
        module.DataLoader = THEIRS


def begin(ranks):
    random.seed(4)
    np.random.seed(4)
    torch.manual_seed(4)
    if ranks > 1:
        dist.init_process_group("gloo")


def fit(batches, model, optimizer):
    """Take a step with each ``(images, labels)``; return the batches and the losses."""
    seen = []
    for images, labels in batches:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append((plain([images, labels]), loss.item()))
    return seen


def small_model(ranks):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(4, 3))
    model = torch.nn.parallel.DistributedDataParallel(model) if ranks > 1 else model
    return model, torch.optim.SGD(model.parameters(), 0.1)


def train_by_timm(loader, ranks, options):
    """The calls of timm's ``train.py``: a loader for training, with RandAugment and random erasing, and a loader for validation."""
    loader = watched(loader)
    changed_import(loader, timm.data.loader)
    torch.utils.data.DataLoader = loader
    begin(ranks)
    common = {"num_workers": 2, "distributed": ranks > 1, "device": torch.device("cpu")}
    training = timm.data.create_loader(
        Pictures(), (3, 16, 16), 3, is_training=True, auto_augment="rand-m9-mstd0.5-inc1", re_prob=0.5, **common, **options
    )
    validation = timm.data.create_loader(Pictures(), (3, 16, 16), 4, persistent_workers=False, **common)
    model, optimizer = small_model(ranks)
    seen = []
    for epoch in range(3):
        if hasattr(training.sampler, "set_epoch"):
            training.sampler.set_epoch(epoch)
        seen.append(fit(training, model, optimizer))
        seen.append([plain(model(images)) for images, _ in validation])
    return {"ran": loader.ran, "seen": seen, "length": len(training), "random": torch.rand(()).item()}


class ByShape(torch.utils.data.BatchSampler):
    """Batches of images of one shape, as those of torchvision's references/detection/group_by_aspect_ratio.py."""

    def __iter__(self):
        waiting = defaultdict(list)
        for number in self.sampler:
            group = waiting[number % 2]
            group.append(number)
            if len(group) == self.batch_size:
                yield group.copy()
                group.clear()


def together(samples):
    return tuple(zip(*samples))


def train_by_references(loader, ranks):
    """The calls of ``train.py`` in torchvision's references/detection."""
    loader = watched(loader)
    begin(ranks)
    augment = v2.Compose([v2.ToImage(), v2.RandomPhotometricDistort(p=1), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)])
    dataset = Pictures(augment)
    sampler = DistributedSampler(dataset) if ranks > 1 else RandomSampler(dataset)
    batches = loader(dataset, batch_sampler=ByShape(sampler, 2, drop_last=True), num_workers=2, collate_fn=together)
    tested = loader(dataset, batch_size=1, sampler=torch.utils.data.SequentialSampler(dataset), num_workers=2, collate_fn=together)
    model, optimizer = small_model(ranks)
    seen = []
    for epoch in range(3):
        if ranks > 1:
            sampler.set_epoch(epoch)
        seen.append(fit(((torch.stack(images), torch.tensor(labels)) for images, labels in batches), model, optimizer))
        seen.append([plain(batch) for batch in tested])
    return {"ran": loader.ran, "seen": seen, "random": torch.rand(()).item()}


def train_by_example(loader, ranks):
    """The calls of imagenet/main.py in pytorch/examples with ``--dummy -j 2``: the rest of the validation is read by every rank."""
    loader = watched(loader)
    begin(ranks)
    crop = [v2.RandomResizedCrop(16), v2.RandomHorizontalFlip(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    training = torchvision.datasets.FakeData(LENGTH, (3, 20, 20), 3, v2.Compose(crop))
    validation = torchvision.datasets.FakeData(LENGTH, (3, 20, 20), 3, v2.Compose([v2.CenterCrop(16), *crop[2:]]))
    sampler = validated = None
    if ranks > 1:
        sampler, validated = DistributedSampler(training), DistributedSampler(validation, shuffle=False, drop_last=True)
    batches = loader(training, batch_size=2, shuffle=sampler is None, num_workers=2, sampler=sampler)
    tests = [loader(validation, batch_size=2, shuffle=False, num_workers=2, sampler=validated)]
    if ranks > 1:
        tests.append(loader(Subset(validation, range(len(validated) * ranks, LENGTH)), batch_size=2, shuffle=False, num_workers=2))
    model, optimizer = small_model(ranks)
    seen = []
    for epoch in range(3):
        if ranks > 1:
            sampler.set_epoch(epoch)
        seen.append(fit(batches, model, optimizer))
        seen.append([plain((model(images).argmax(1) == labels).sum()) for test in tests for images, labels in test])
    return {"ran": loader.ran, "seen": seen, "random": torch.rand(()).item()}


def tokens(texts):
    return torch.tensor([[ord(letter) % 16 for letter in text[:4].ljust(4)] for text in texts])


def train_by_open_clip(loader, ranks, kind, folder):
    """The calls of ``open_clip_train.main``: ``get_data``, ``DataInfo.set_epoch`` and the loss of a small model."""
    loader = watched(loader)
    changed_import(loader, open_clip_train.data)
    webdataset.compat.DataLoader = loader
    open_clip_train.data._SAMPLE_SHUFFLE_SIZE = open_clip_train.data._SAMPLE_SHUFFLE_INITIAL = (
        1  # webdataset seeds this shuffle by the time
    )
    begin(ranks)
    augment = v2.Compose([v2.RandomResizedCrop(16), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    arguments = Namespace(
        train_data=f"{folder}/{kind}" + ("/{0..3}.tar" if kind == "webdataset" else ".csv"),
        val_data=f"{folder}/csv.csv" if kind == "csv" else None,
        dataset_type=kind,
        train_num_samples=16 if kind == "webdataset" else None,
        train_data_upsampling_factors=None,
        imagenet_val=None,
        imagenet_v2=None,
        csv_img_key="file",
        csv_caption_key="title",
        csv_separator="\t",
        batch_size=2,
        workers=2,
        world_size=ranks,
        distributed=ranks > 1,
        seed=0,
    )
    data = open_clip_train.data.get_data(arguments, (augment, augment), tokenizer=tokens)
    vision = {"image_size": 16, "layers": 1, "width": 8, "patch_size": 8, "head_width": 4}
    text = {"context_length": 4, "vocab_size": 16, "width": 8, "heads": 2, "layers": 1}
    model = open_clip.CLIP(8, vision, text)
    loss, optimizer = open_clip.ClipLoss(), torch.optim.SGD(model.parameters(), 0.1)
    seen = []
    for epoch in range(2):
        data["train"].set_epoch(epoch)
        for images, texts in data["train"].dataloader:
            value = loss(*model(images, texts))
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            seen.append((plain([images, texts]), value.item()))
    seen += [plain(batch) for batch in (data["val"].dataloader if "val" in data else [])]
    return {"ran": loader.ran, "seen": seen, "batches": data["train"].dataloader.num_batches}


def boxes(folder):
    """Write a data set as ultralytics reads it: images, and a box for each."""
    for number in range(LENGTH):
        for kind in ("images", "labels"):
            (folder / kind).mkdir(exist_ok=True)
        Image.fromarray(picture(number)).save(folder / "images" / f"{number:02}.png")
        (folder / "labels" / f"{number:02}.txt").write_text(f"{number % 2} 0.5 0.5 0.4 0.{number % 5 + 3}\n")
    (folder / "data.yaml").write_text(f"path: {folder}\ntrain: images\nval: images\nnames: [even, odd]\n")


def train_by_ultralytics(loader, folder):
    """``yolo train``: two epochs of YOLOv8n with mosaics, and its validation."""
    loader = watched(loader)
    changed_import(loader, ultralytics.data.build)
    torchvision.ops.nms = TorchNMS.nms  # ultralytics' own, which it uses without torchvision: this torchvision has no operators
    settings = {"imgsz": 32, "batch": 5, "epochs": 2, "workers": 2, "device": "cpu", "plots": False, "amp": False, "verbose": False}
    with tempfile.TemporaryDirectory() as project:
        trainer = DetectionTrainer(
            overrides=settings | {"model": "yolov8n.yaml", "data": f"{folder}/data.yaml", "project": project, "close_mosaic": 1}
        )
        trainer.train()
        rows = trainer.csv.read_text().splitlines()
    made = [isinstance(made, loader) for made in (trainer.train_loader, trainer.test_loader)]
    metrics = {name: float(value) for name, value in trainer.metrics.items()}
    return {"made": made, "metrics": metrics, "rows": [row.split(",")[2:] for row in rows]}


def read_by_ultralytics(loader, ranks, folder):
    """``build_dataloader`` as on several GPUs: batches of two epochs, and of the validation."""
    loader = watched(loader)
    changed_import(loader, ultralytics.data.build)
    begin(ranks)
    build = ultralytics.data.build
    config = ultralytics.utils.DEFAULT_CFG
    data = {"names": {0: "even", 1: "odd"}, "nc": 2, "channels": 3}
    seen = []
    rank = dist.get_rank() if ranks > 1 else -1
    for mode in ("train", "val"):
        dataset = build.build_yolo_dataset(config, f"{folder}/images", 2, data, mode=mode)
        batches = build.build_dataloader(dataset, 2, 2, shuffle=mode == "train", rank=rank, device="cpu")
        for epoch in range(2):
            if mode == "train" and ranks > 1:
                batches.sampler.set_epoch(epoch)
            seen.append([plain({name: batch[name] for name in ("img", "cls", "bboxes", "im_file")}) for batch in batches])
        seen.append(isinstance(batches, loader))
        batches.close()
    return seen


def compare(program, *arguments, ranks):
    theirs, ours = (run(program, loader, *arguments, ranks=ranks) for loader in (THEIRS, OURS))
    for package, results in ("torch", theirs), ("highway", ours):
        assert {ran for result in results for ran in result.pop("ran")} == {package}
    assert ours == theirs


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("options", [{}, {"use_multi_epochs_loader": True}, {"use_prefetcher": False}], ids=["plain", "epochs", "default"])
def test_timm_trains_alike(options, ranks):
    compare(train_by_timm, ranks, options, ranks=ranks)


def test_timm_repeats_augmentations_alike():
    compare(train_by_timm, 2, {"num_aug_repeats": 2}, ranks=2)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("program", [train_by_references, train_by_example])
def test_programs_of_pytorch_train_alike(program, ranks):
    compare(program, ranks, ranks=ranks)


@pytest.fixture
def captioned(tmp_path):
    """The pictures as open_clip reads them: a table, and four shards."""
    (tmp_path / "webdataset").mkdir()
    rows = ["file\ttitle"]
    # Four samples a shard: a worker whose shard has less than a batch would never end its epoch.
    with webdataset.ShardWriter(f"{tmp_path}/webdataset/%d.tar", maxcount=4, verbose=0) as writer:
        for number in range(16):
            Image.fromarray(picture(number)).save(path := tmp_path / f"{number}.png")
            rows.append(f"{path}\tpicture {number}")
            writer.write({"__key__": str(number), "png": path.read_bytes(), "txt": f"{number} picture"})
    (tmp_path / "csv.csv").write_text("\n".join(rows))
    return str(tmp_path)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("kind", ["csv", "webdataset"])
def test_open_clip_trains_alike(kind, ranks, captioned):
    compare(train_by_open_clip, ranks, kind, captioned, ranks=ranks)


def test_ultralytics_trains_alike(tmp_path):
    boxes(tmp_path)
    theirs, ours = (run(train_by_ultralytics, loader, str(tmp_path))[0] for loader in (THEIRS, OURS))
    assert theirs.pop("made") == ours.pop("made") == [True, True]
    assert ours == theirs


@pytest.mark.parametrize("ranks", [1, 2])
def test_ultralytics_reads_alike_on_ranks(ranks, tmp_path):
    boxes(tmp_path)
    theirs, ours = (run(read_by_ultralytics, loader, ranks, str(tmp_path), ranks=ranks) for loader in (THEIRS, OURS))
    assert ours == theirs
