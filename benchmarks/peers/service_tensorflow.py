"""tf.data service: ``PYTHON service_tensorflow.py JOB TIMES WORKERS``, a dispatcher and workers in processes of their own, and a consumer.

The work is that of :mod:`with_tensorflow`: its fused operator decodes the boxes of the table. Each worker has one thread for that, and the
images are dealt out to them as they ask.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from scaling import record
from worker import Job

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


def dispatch(port: str) -> None:
    """Be the dispatcher."""
    from tensorflow.data.experimental import service

    service.DispatchServer(service.DispatcherConfig(port=int(port))).join()


def work(port: str) -> None:
    """Be a worker."""
    from tensorflow.data.experimental import service

    service.WorkerServer(service.WorkerConfig(dispatcher_address=f"localhost:{port}", port=0)).join()


def consume(folder: Path, times: str, workers: int) -> None:
    """Start the others, all at once, take all images, and end them."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    roles = ["dispatch", *["work"] * workers]
    started = [subprocess.Popen([sys.executable, __file__, role, port]) for role in roles]
    try:
        record(times, (len(images) for images, _ in dataset(Job.load(folder), port).as_numpy_iterator()))
    finally:
        for process in started:
            process.kill()
            process.wait()


def dataset(job: Job, port: str) -> Any:
    import tensorflow as tf
    from tensorflow.data.experimental import service

    def decode(file: tf.Tensor, box: tf.Tensor, flip: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        data = tf.io.read_file(file)
        image = tf.io.decode_and_crop_jpeg(data, box, channels=3, dct_method="INTEGER_FAST", fancy_upscaling=False)
        image = tf.cast(tf.image.resize(image, job.shape) + 0.5, tf.uint8)
        return tf.cond(flip, lambda: tf.reverse(image, [1]), lambda: image), number

    table = (job.files, job.boxes, job.flips, list(range(len(job.files))))
    images = tf.data.Dataset.from_tensor_slices(table).map(decode, num_parallel_calls=1).batch(job.batch)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    dealt = images.with_options(options).apply(
        service.distribute(processing_mode=service.ShardingPolicy.DYNAMIC, service=f"grpc://localhost:{port}")
    )
    return dealt.prefetch(2)


if __name__ == "__main__":
    if sys.argv[1] == "dispatch":
        dispatch(sys.argv[2])
    elif sys.argv[1] == "work":
        work(sys.argv[2])
    else:
        consume(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
