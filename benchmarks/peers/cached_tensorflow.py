"""tf.data: whole decoded images in ``cache()``, in memory, then the table's boxes, cut out and scaled."""

from __future__ import annotations

import os
from collections.abc import Iterator

from worker import Batch, Batches, Job, serve


def prepare(job: Job) -> Batches:
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    import tensorflow as tf

    def decode(file: tf.Tensor) -> tf.Tensor:
        return tf.io.decode_jpeg(tf.io.read_file(file), channels=3, dct_method="INTEGER_FAST", fancy_upscaling=False)

    def crop(image: tf.Tensor, place: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        box, flip = place
        limits = tf.shape(image)[:2]
        top, left = tf.minimum(box[0], limits[0] - 1), tf.minimum(box[1], limits[1] - 1)
        height, width = tf.minimum(box[2], limits[0] - top), tf.minimum(box[3], limits[1] - left)
        part = tf.image.crop_to_bounding_box(image, top, left, height, width)
        part = tf.cast(tf.image.resize(part, job.shape) + 0.5, tf.uint8)  # bilinear, without antialiasing, in float32
        return tf.cond(flip, lambda: tf.reverse(part, [1]), lambda: part), box

    files = sorted(set(job.files))
    images = (
        tf.data.Dataset.from_tensor_slices(files).map(decode, num_parallel_calls=job.workers).cache().shuffle(len(files)).repeat(job.epochs)
    )
    places = tf.data.Dataset.from_tensor_slices((job.boxes, job.flips))
    dataset = tf.data.Dataset.zip(images, places).map(crop, num_parallel_calls=job.workers).batch(job.batch).prefetch(2)
    options = tf.data.Options()
    options.threading.private_threadpool_size = job.workers
    options.threading.max_intra_op_parallelism = 1
    dataset = dataset.with_options(options)

    def batches() -> Iterator[Batch]:
        yield from dataset.as_numpy_iterator()

    return batches


if __name__ == "__main__":
    serve(prepare, "tensorflow-cpu", "numpy")
