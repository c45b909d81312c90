"""Highway's benchmark_distributed_ipc_local.py: three pipelines in one process, over ipc.

Changed: as noise.py; nothing starts when a pipeline is constructed, so those that end in a sink are started, and stopped at the end.
"""

import sys
import time

from highway.engine import Pipeline
from highway.modules import Noise, ZMQSink, ZMQSource

N = int(sys.argv[1])

shape = (320, 240, 3)

sink = Pipeline([ZMQSource("ipc://sink")])
worker = Pipeline([ZMQSource("ipc://source"), ZMQSink("ipc://sink")])
source = Pipeline([Noise(shape, n_tensors=3, dtype="float32", constant=True), ZMQSink("ipc://source")])
worker.start()
source.start()

print("Running benchmark...")

n_bytes = 0
n_iters = 0

s = time.time()
for _ in range(N):
    data = sink.dequeue()
    for tensor in data:
        n_bytes += tensor.nbytes
    n_iters += 1

e = time.time()
d = e - s
bs = (n_bytes / d) / 1000000.0
print("MBytes/s: ", bs)
print("Iters/s", n_iters / d)

for pipeline in (source, worker, sink):
    pipeline.stop()
