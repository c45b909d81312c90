"""The README's training loop: ``client.py URL BATCHES`` prints what it got of each batch."""

import sys

import highway as tensorcom

url, count = sys.argv[1], int(sys.argv[2])


def train_batch(xs, ys):
    print(xs.shape, xs.dtype, ys.shape, ys.dtype, flush=True)


training = tensorcom.Connection(url, epoch=1000000)
for batch, (xs, ys) in enumerate(training, start=1):
    train_batch(xs, ys)
    if batch == count:
        break
print(len(training))
