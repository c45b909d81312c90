"""Highway's benchmark_generic.py: constant images resized.

Changed: as noise.py; the modules' places; ``Noise`` yields one array with a batch axis in place of a list, and a function names its field.
"""

import sys
import time

from highway.engine import Pipeline
from highway.modules import Augmentations, Noise
from highway.transforms import Resize

N = int(sys.argv[1])
shape = (32, 320, 240, 3)


def named(item):
    (images,) = item
    return {"images": images}


resize = Augmentations([Resize((255, 255), mode="resize", interp="nearest")])
source = Pipeline([Noise(shape, dtype="float32", constant=True), named, resize])

print("Running benchmark...")

n_bytes = 0
n_iters = 0
s = time.time()
for _ in range(N):
    data = source.dequeue()
    for key in data:
        n_bytes += data[key].nbytes

    images = data["images"]
    assert images.shape == (32, 255, 255, 3)
    n_iters += 1

e = time.time()
d = e - s
bs = (n_bytes / d) / 1000000.0
print("MBytes/s: ", bs)
print("Iters/s", n_iters / d)
