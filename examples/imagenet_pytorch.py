"""Train a classifier of images in PyTorch, on one device or, under torchrun, on several.

python examples/imagenet_pytorch.py  # on photographs of the package; takes seconds
torchrun --nproc-per-node 8 examples/imagenet_pytorch.py --data /data/imagenet --model resnet50 --size 224 --batch-size 128 --epochs 90
"""

import argparse
import importlib
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from highway import Pipeline
from highway.adapters.torch import DataLoader, to_device
from highway.modules import ImageFileReader
from highway.transforms import RandomResizedCrop

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", default="highway:photos", help="folder with `train` and `val`, in which each label has a folder")
parser.add_argument("--model", help="a name of torchvision.models; default: a small one")
for name, default in {"--size": 32, "--batch-size": 16, "--epochs": 8, "--lr": 1e-2, "--seed": 0}.items():  # the batch size of each rank
    parser.add_argument(name, type=type(default), default=default)
parser.add_argument("--checkpoint", type=Path, help="file that is written after each epoch, and gone on from if it is there")


def make_model(name: str | None, num_classes: int) -> nn.Module:
    if name:
        return importlib.import_module("torchvision.models").get_model(name, num_classes=num_classes)
    sizes = [(3, 16), (16, 32), (32, 64)]
    blocks = [(nn.Conv2d(n, m, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(m), nn.ReLU()) for n, m in sizes]
    return nn.Sequential(*sum(blocks, ()), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, num_classes))


def main(args: argparse.Namespace) -> None:
    has_ranks, cuda = "RANK" in os.environ, torch.cuda.is_available()
    device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if cuda else "cpu")
    if has_ranks:
        dist.init_process_group("nccl" if cuda else "gloo")
    torch.manual_seed(args.seed)

    shape, crop = (args.size, args.size), RandomResizedCrop((args.size, args.size), scale=(0.35, 1.0))
    reader = ImageFileReader(f"{args.data}/train", args.batch_size, crop=crop, flip=0.5, drop_last=True)  # reads the share of this rank
    train, val = Pipeline([reader], args.seed), Pipeline([ImageFileReader(f"{args.data}/val", args.batch_size, shape, shuffle=False)])
    mean_and_std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    batches, val_batches = (to_device(DataLoader(data), device, channels_last=True, normalize=mean_and_std) for data in (train, val))

    net = make_model(args.model, len(reader.classes)).to(device)
    model = nn.parallel.DistributedDataParallel(net) if has_ranks else net
    optimizer = torch.optim.AdamW(net.parameters(), args.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, args.epochs * len(batches))
    parts = {"model": net, "optimizer": optimizer, "schedule": schedule, "data": batches}
    if args.checkpoint and args.checkpoint.exists():
        for name, state in torch.load(args.checkpoint, map_location=device).items():
            parts[name].load_state_dict(state)

    for epoch in range(train.epoch, args.epochs):
        model.train()
        for images, labels in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels.long())
            loss.backward()
            optimizer.step()
            schedule.step()
        model.eval()
        with torch.inference_mode():
            accuracy = torch.cat([net(images).argmax(1) == labels for images, labels in val_batches]).float().mean()
            if has_ranks:
                dist.all_reduce(accuracy)  # each rank has the same number of images
                accuracy /= dist.get_world_size()
        if os.environ.get("RANK", "0") == "0":
            print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {accuracy:.3f}", flush=True)
            if args.checkpoint:
                torch.save({name: part.state_dict() for name, part in parts.items()}, args.checkpoint)


if __name__ == "__main__":
    main(parser.parse_args())
    if dist.is_initialized():
        dist.destroy_process_group()
