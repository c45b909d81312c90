"""The PyTorch notebook: ``pytorch.py URL STEPS``, with a small model on the CPU in place of a ResNet-50 on a GPU, and no plot."""

import sys

import numpy as np
import torch
from torch import nn

import highway as tc

url, steps = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)

mean = np.array([0.485, 0.456, 0.406], "f")
std = np.array([0.229, 0.224, 0.225], "f")


def norm_image(xs):
    return (xs - mean[None, None, None, :]) / std[None, None, None, :]


def norm_cls(ys):
    ys = ys.astype(np.int64)
    return ys - 1


training = tc.Connection(url, epoch=1000000, batch_transforms=[norm_image, norm_cls], converters="torch")
xs, ys = next(iter(training))
print(xs.shape, xs.dtype, xs.min().item(), xs.max().item())
print(ys.shape, ys.dtype, ys.min().item(), ys.max().item())

model = nn.Sequential(nn.Conv2d(3, 4, 7, stride=8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 8))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), 0.0001, momentum=0.9, weight_decay=0.0)


def train_for(steps, losses):
    model.train()
    for i, (inputs, target) in enumerate(training):
        if i >= steps:
            break
        loss = criterion(model(inputs), target)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


losses = train_for(steps, [])
print(len(losses), "losses, finite:", all(np.isfinite(losses)))
