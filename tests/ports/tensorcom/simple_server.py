"""The notebook of a server of one's own: ``simple_server.py URL EPOCHS``, with a small list of batches in place of MNIST."""

import sys

import numpy as np

import highway as tensorcom

url, epochs = sys.argv[1], int(sys.argv[2])
loader = [(np.full((32, 1, 28, 28), n / 4, np.float32), np.arange(32) % 10) for n in range(4)]

serve = tensorcom.Connection()
serve.connect(url)
for epoch in range(epochs):
    sys.stderr.write(f"{epoch} ")
    for xs, ys in loader:
        xs = np.array(xs).astype("float16")
        ys = np.array(ys).astype("int32")
        serve.send([xs, ys])
