"""tf.data with its fused operator: only the box is decoded, by the fast inverse DCT and without fancy upsampling, as in highway."""

from __future__ import annotations

import os
from collections.abc import Iterator

from worker import Batch, Batches, Job, serve


def prepare(job: Job) -> Batches:
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    import tensorflow as tf

    def decode(file: tf.Tensor, box: tf.Tensor, flip: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        data = tf.io.read_file(file)
        image = tf.io.decode_and_crop_jpeg(data, box, channels=3, dct_method="INTEGER_FAST", fancy_upscaling=False)
        image = tf.cast(tf.image.resize(image, job.shape) + 0.5, tf.uint8)  # bilinear, without antialiasing, in float32
        return tf.cond(flip, lambda: tf.reverse(image, [1]), lambda: image), number

    def asleep(worker: tf.Tensor) -> tf.data.Dataset:
        """Read a share of the files, one after the other, and sleep for each, all in C++."""
        files = tf.data.Dataset.from_tensor_slices((job.files, list(range(len(job.files))))).shard(job.workers, worker)
        return files.map(lambda file, number: (tf.io.read_file(file), number)).apply(testing.sleep(job.simulated))

    if job.simulated:
        from tensorflow.python.data.experimental.ops import testing

        workers = tf.data.Dataset.range(job.workers)
        images = workers.interleave(asleep, cycle_length=job.workers, num_parallel_calls=job.workers, deterministic=False)
        images = images.map(lambda _, number: (tf.zeros((*job.shape, 3), tf.uint8), number))
    else:
        table = (job.files, job.boxes, job.flips, list(range(len(job.files))))
        images = tf.data.Dataset.from_tensor_slices(table).map(decode, num_parallel_calls=job.workers)
    dataset = images.batch(job.batch).prefetch(2)
    options = tf.data.Options()
    options.threading.private_threadpool_size = job.workers
    options.threading.max_intra_op_parallelism = 1
    dataset = dataset.with_options(options)

    def batches() -> Iterator[Batch]:
        yield from dataset.as_numpy_iterator()  # without a copy, which .numpy() would make

    return batches


if __name__ == "__main__":
    serve(prepare, "tensorflow-cpu", "numpy")
