"""tf.data: whole decoded images in ``cache()``, in memory, then boxes and flips of its own, cut out and scaled."""

from __future__ import annotations

import os
from collections.abc import Iterator

from worker import Batch, Batches, Job, serve


def prepare(job: Job) -> Batches:
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    import tensorflow as tf

    def decode(file: tf.Tensor) -> tf.Tensor:
        return tf.io.decode_jpeg(tf.io.read_file(file), channels=3, dct_method="INTEGER_FAST", fancy_upscaling=False)

    def crop(image: tf.Tensor) -> tf.Tensor:
        everything = tf.zeros((1, 0, 4))
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.shape(image), everything, 0, aspect_ratio_range=(3 / 4, 4 / 3), area_range=(0.08, 1.0), use_image_if_no_bounding_boxes=True
        )
        part = tf.slice(image, begin, size)
        part = tf.cast(tf.image.resize(part, job.shape) + 0.5, tf.uint8)  # bilinear, without antialiasing, in float32
        return tf.cond(tf.random.uniform(()) < 0.5, lambda: tf.reverse(part, [1]), lambda: part)

    files = sorted(set(job.files))
    images = (
        tf.data.Dataset.from_tensor_slices(files).map(decode, num_parallel_calls=job.workers).cache().shuffle(len(files)).repeat(job.epochs)
    )
    dataset = images.map(crop, num_parallel_calls=job.workers).batch(job.batch).prefetch(2)
    options = tf.data.Options()
    options.threading.private_threadpool_size = job.workers
    options.threading.max_intra_op_parallelism = 1
    dataset = dataset.with_options(options)

    def batches() -> Iterator[Batch]:
        for batch in dataset.as_numpy_iterator():
            yield batch, range(len(batch))

    return batches


if __name__ == "__main__":
    serve(prepare, "tensorflow-cpu", "numpy")
