"""Train a detector in PyTorch on images with boxes, and with masks, in the form of COCO or PASCAL VOC; on a CPU, in seconds.

python examples/detection.py                         # photographs of the package, with annotations in COCO's format
python examples/detection.py --form voc --masks      # with annotations in VOC's format, and masks of the objects
python examples/detection.py --topology pipelines/detection.yaml   # beside `highway run pipelines/detection.yaml --set external=true`
python examples/detection.py --images coco/train2017 --annotations coco/annotations/instances_train2017.json --classes 80 \\
    --model fasterrcnn_resnet50_fpn --size 640 --scale 0.1 2 --batch-size 16 --lr 1e-4
"""

import argparse
import dataclasses
import importlib
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from highway import Pipeline
from highway.adapters.torch import to_device
from highway.datasets import COCO, VOC
from highway.modules import Augmentations, Batch, DecodeImage, Reader, Rename, Select
from highway.transforms import ColorJitter, FlipX, LargeScaleJitter, Paste, RandomIoUCrop, SanitizeBoxes

CLASSES = ["person", "cat", "cup", "spoon", "rocket", "tower", "helmet", "light"]

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--form", choices=["coco", "voc"], default="coco")
parser.add_argument("--images", help="folder of the images, or of a year of VOC; default: photographs of the package")
parser.add_argument("--annotations", help="COCO's JSON file, or the name of VOC's list of images")
parser.add_argument("--classes", type=int, default=len(CLASSES), help="how many there are")
parser.add_argument("--masks", action="store_true", help="learn the objects' masks, too")
parser.add_argument("--topology", nargs="+", help="file, or several, in which the role `trainer` gets the batches")
parser.add_argument("--model", help="a name of torchvision.models.detection; default: a small one")
for name, default in {"--size": 128, "--batch-size": 4, "--epochs": 80, "--lr": 4e-3, "--seed": 0}.items():
    parser.add_argument(name, type=type(default), default=default)
parser.add_argument("--scale", type=float, nargs=2, default=(0.8, 1.25), help="least and greatest factor; large sets take 0.1 2")


def objects(masks: bool) -> list[str]:
    """Return the fields that have a row for each object."""
    return ["boxes", "labels", "iscrowd", *(["masks"] if masks else [])]


def samples(form: str, images: str | None, annotations: str, masks: bool) -> list[Any]:
    """Return stages that read images with their objects, the same in whichever form these are written."""
    if form == "coco":
        if images is None:
            images, annotations = "highway:objects/JPEGImages", f"highway:objects/instances_{annotations}.json"
        return [Reader(COCO(images, annotations, masks)), DecodeImage(), Select(["image", *objects(masks)])]
    classes = {"classes": CLASSES} if images is None else {}
    dataset = VOC(images or "highway:objects", annotations, masks="object" if masks else None, **classes)
    each = [mask_of_each] if masks else []
    return [Reader(dataset), DecodeImage(), Rename({"difficult": "iscrowd"}), *each, Select(["image", *objects(masks)])]


def mask_of_each(sample: dict[str, Any]) -> dict[str, Any]:
    """Return a sample with a mask for each object, of the numbers of the objects in one mask."""
    numbers = np.arange(1, len(sample["boxes"]) + 1)[:, None, None]
    return {**sample, "masks": (sample["mask"] == numbers).astype(np.uint8)}


def augment(size: int, masks: bool, scale: tuple[float, float] = (0.8, 1.25)) -> Augmentations:
    """Return the chain for training. Without chance, for validation, it fits the image in, and fills up."""
    shape, clean = (size, size), SanitizeBoxes(min_size=2, min_visibility=0.1)
    chain = [LargeScaleJitter(shape, scale), RandomIoUCrop(), Paste(shape, "random"), FlipX(), ColorJitter(), clean]
    return Augmentations(chain, boxes="boxes", mask="masks" if masks else None, with_boxes=objects(masks))


def targets(batch: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """Return what the detectors of torchvision take for each image: boxes (N, 4), labels (N,) from 1 on, masks (N, H, W); no crowds."""
    found = []
    for row, count in enumerate(batch["boxes_count"].tolist()):
        target = {name: batch[name][row, :count] for name in ("boxes", "labels", "iscrowd", "masks") if name in batch}
        keep = ~target.pop("iscrowd").bool()
        target = {name: value[keep] for name, value in target.items()}
        found.append({**target, "labels": target["labels"].long() + 1})
    return found


class TinyDetector(nn.Module):
    """A small detector in the interface of torchvision's: losses in training, else boxes, labels, scores and masks of each image.

    Each cell of a grid in the middle of an object is to say its class and its box, as in FCOS (Tian et al. 2019), and of which classes its
    pixels are.
    """

    def __init__(self, classes: int, masks: bool) -> None:
        super().__init__()
        sizes = [(3, 16, 2, 1), (16, 32, 2, 1), (32, 64, 2, 1), (64, 64, 1, 2), (64, 64, 1, 4)]
        blocks = [
            (nn.Conv2d(n, m, 3, stride, dilation, dilation, bias=False), nn.BatchNorm2d(m), nn.ReLU()) for n, m, stride, dilation in sizes
        ]
        self.classes, self.masks, self.stride = classes, masks, 8
        self.layers = nn.Sequential(*sum(blocks, ()))
        self.head = nn.Conv2d(64, 2 * classes + 4, 1)
        nn.init.constant_(self.head.bias[:classes], -4.0)  # at the start, predict no objects

    def forward(self, images: list[Tensor], targets: list[dict[str, Tensor]] | None = None) -> Any:
        parts = self.head(self.layers(torch.stack(images))).split([self.classes, 4, self.classes], 1)
        return self.losses(*parts, targets) if targets is not None else self.found(*parts)

    def losses(self, scores: Tensor, boxes: Tensor, pixels: Tensor, targets: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        labels, places, of_class = torch.zeros_like(scores), torch.zeros_like(boxes), []
        for row, target in enumerate(targets):
            shapes = self.shapes(target["boxes"])
            for number in shapes[:, 2:].sum(1).argsort(descending=True):  # in a shared cell, the smaller object stays
                middle, sides = shapes[number, :2], shapes[number, 2:].exp()
                left, top = (middle - sides / 4).long().clamp(0, scores.shape[-1] - 1)
                right, bottom = (middle + sides / 4).long() + 1
                labels[row, :, top:bottom, left:right] = 0
                labels[row, target["labels"][number] - 1, top:bottom, left:right] = 1
                places[row, :, top:bottom, left:right] = shapes[number, :, None, None]
            if self.masks:
                of_class.append(torch.zeros(self.classes, *target["masks"].shape[1:], device=scores.device))
                for label, mask in zip(target["labels"] - 1, target["masks"], strict=True):
                    of_class[row][label] = of_class[row][label].maximum(mask)
        error = F.binary_cross_entropy_with_logits(scores, labels, reduction="none") * (labels - scores.sigmoid()).abs() ** 2
        taken = labels.sum(1) > 0
        off = (self.placed(boxes) - places).abs().sum(1)[taken]
        losses = {"classes": error.sum() / taken.sum().clamp(min=1), "boxes": off.sum() / taken.sum().clamp(min=1)}
        if self.masks:
            losses["masks"] = F.binary_cross_entropy_with_logits(pixels, F.avg_pool2d(torch.stack(of_class), self.stride))
        return losses

    def shapes(self, boxes: Tensor) -> Tensor:
        """Return the middle of boxes in cells, and the logarithm of their sides: (N, 4)."""
        return torch.cat([(boxes[:, :2] + boxes[:, 2:]) / 2 / self.stride, ((boxes[:, 2:] - boxes[:, :2]) / self.stride).log()], 1)

    def placed(self, boxes: Tensor) -> Tensor:
        """Return what each cell says of a box, (B, 4, h, w), as :meth:`shapes` does: the middle is said from the cell's own."""
        rows, columns = (torch.arange(side, device=boxes.device) + 0.5 for side in boxes.shape[2:])
        x, y = torch.meshgrid(columns, rows, indexing="xy")
        return torch.cat([boxes[:, :1] + x, boxes[:, 1:2] + y, boxes[:, 2:]], 1)

    def found(self, scores: Tensor, boxes: Tensor, pixels: Tensor) -> list[dict[str, Tensor]]:
        results = []
        for score, place, pixel in zip(scores.sigmoid().flatten(2), self.placed(boxes).flatten(2), pixels, strict=True):
            best, label = score.max(0)
            corners = torch.cat([place[:2] - place[2:].exp() / 2, place[:2] + place[2:].exp() / 2]).T * self.stride
            kept: list[int] = []
            for cell in best.argsort(descending=True)[: (best > 0.3).sum()].tolist():
                others = [one for one in kept if label[one] == label[cell]]
                if not (overlaps(corners[[cell]], corners[others]) > 0.3).any():
                    kept.append(cell)
            result = {"boxes": corners[kept], "labels": label[kept] + 1, "scores": best[kept]}
            if self.masks:
                result["masks"] = F.interpolate(pixel[None], scale_factor=self.stride, mode="bilinear")[0, label[kept], None].sigmoid()
            results.append(result)
        return results


def overlaps(first: Tensor, second: Tensor) -> Tensor:
    """Return intersection over union of each of N boxes with each of M: (N, M)."""
    low, high = torch.maximum(first[:, None, :2], second[:, :2]), torch.minimum(first[:, None, 2:], second[:, 2:])
    common = (high - low).clamp(min=0).prod(2)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(1) for boxes in (first, second)]
    return common / (areas[0][:, None] + areas[1] - common)


def hits(found: list[dict[str, Tensor]], expected: list[dict[str, Tensor]]) -> list[bool]:
    """Return of each object whether it was found: with its label, and a box that overlaps with its own by at least a half."""
    return [
        bool(hit)
        for result, target in zip(found, expected, strict=True)
        for hit in ((target["labels"][:, None] == result["labels"]) & (overlaps(target["boxes"], result["boxes"]) >= 0.5)).any(1)
    ]


def main(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    chain, pad = augment(args.size, args.masks, tuple(args.scale)), Batch(args.batch_size, ragged="pad", fields=objects(args.masks))
    if args.topology:
        train = Pipeline.from_yaml(args.topology, role="trainer")
    else:
        train = Pipeline([*samples(args.form, args.images, args.annotations or "train", args.masks), chain, pad], args.seed)

    if args.model:
        model = importlib.import_module("torchvision.models.detection").get_model(args.model, num_classes=args.classes + 1)
    else:
        model = TinyDetector(args.classes, args.masks)
    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), args.lr)
    to_floats = {"channels_last": True, "normalize": ((0.0,) * 3, (1.0,) * 3)}  # 0 to 1: the models of torchvision do the rest
    for epoch in range(1 if args.topology else args.epochs):  # a topology sets the number of epochs itself
        for step, batch in enumerate(to_device(train, device, **to_floats)):
            losses = model(list(batch["image"]), targets(batch))
            loss = sum(losses.values())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if epoch % 10 == 0 and step % 40 == 0:
                print(
                    f"epoch {epoch}, step {step}: " + ", ".join(f"{name} {value.item():.3f}" for name, value in losses.items()), flush=True
                )

    if not args.images:
        model.eval()
        val = Pipeline([*samples(args.form, None, "val", args.masks), dataclasses.replace(chain, deterministic=True), pad])
        with torch.inference_mode():
            found = [hit for batch in to_device(val, device, **to_floats) for hit in hits(model(list(batch["image"])), targets(batch))]
        print(f"found {sum(found)} of {len(found)} objects, recall: {sum(found) / len(found):.2f}")


if __name__ == "__main__":
    main(parser.parse_args())
