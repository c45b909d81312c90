"""Highway's benchmark_noise.py: how fast constant tensors leave a pipeline.

Changed: ``data_shape``, ``force_constant`` and ``n_worker`` (the errors for them name the new ones), print as a function.
"""

import sys
import time

from highway.engine import Pipeline
from highway.modules import Noise

N = int(sys.argv[1])
shape = (320, 240, 3)

source = Pipeline([Noise(shape, n_tensors=3, dtype="float32", constant=True)])

print("Running benchmark...")

n_bytes = 0
n_iters = 0
s = time.time()
for _ in range(N):
    data = source.dequeue()
    for tensor in data:
        n_bytes += tensor.nbytes
    n_iters += 1

e = time.time()
d = e - s
bs = (n_bytes / d) / 1000000.0
print("MBytes/s: ", bs)
print("Iters/s", n_iters / d)
