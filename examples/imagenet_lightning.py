"""Train a classifier of images with Lightning, whose Trainer takes a highway DataLoader as it is.

python examples/imagenet_lightning.py  # on photographs of the package; takes seconds
python examples/imagenet_lightning.py --data /data/imagenet --model resnet50 --size 224 --batch-size 128 --epochs 90 --devices 8
"""

import argparse

import lightning
import torch
from imagenet_pytorch import make_model, parser
from torch import nn

from highway import Pipeline
from highway.adapters.torch import DataLoader
from highway.modules import ImageFileReader
from highway.transforms import RandomResizedCrop

parser.description = __doc__
parser.add_argument("--devices", default="auto", help="how many, one rank for each")


class Classifier(lightning.LightningModule):
    """A network that takes uint8 images as they come, channels last, and normalises them where it is."""

    def __init__(self, args: argparse.Namespace, num_classes: int) -> None:
        super().__init__()
        self.net, self.lr = make_model(args.model, num_classes), args.lr
        self.register_buffer("mean", 255 * torch.tensor([0.485, 0.456, 0.406]))
        self.register_buffer("std", 255 * torch.tensor([0.229, 0.224, 0.225]))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(((images - self.mean) / self.std).permute(0, 3, 1, 2))

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self(images), labels.long())

    def validation_step(self, batch: list[torch.Tensor], number: int) -> None:
        images, labels = batch
        self.log("accuracy", (self(images).argmax(1) == labels).float().mean(), batch_size=len(labels), sync_dist=True, prog_bar=True)

    def configure_optimizers(self) -> dict[str, object]:
        optimizer = torch.optim.AdamW(self.parameters(), self.lr)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.lr, self.trainer.estimated_stepping_batches)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main(args: argparse.Namespace) -> None:
    lightning.seed_everything(args.seed)
    shape, crop = (args.size, args.size), RandomResizedCrop((args.size, args.size), scale=(0.35, 1.0))
    reader = ImageFileReader(f"{args.data}/train", args.batch_size, crop=crop, flip=0.5, drop_last=True)  # reads the share of this rank
    train = DataLoader(Pipeline([reader], seed=args.seed))
    val = DataLoader(Pipeline([ImageFileReader(f"{args.data}/val", args.batch_size, shape, shuffle=False)]))
    trainer = lightning.Trainer(
        max_epochs=args.epochs, devices=args.devices, logger=False, enable_checkpointing=False, num_sanity_val_steps=0
    )
    trainer.fit(Classifier(args, len(reader.classes)), train, val)  # checkpoints include the state of `train`, also in mid-epoch
    print(f"accuracy {trainer.callback_metrics['accuracy']:.3f}")


if __name__ == "__main__":
    main(parser.parse_args())
