"""Highway's README: the local example, and the one of several machines; which machine is the first argument.

Changed: the addresses, the folder, and the loop of the training machine, which shows what arrives; a bracket that its text lacked.
"""

import sys

from highway.engine import Pipeline
from highway.modules import Augmentations, ImageFileReader, ZMQSink, ZMQSource
from highway.transforms import FlipX

machine, data_dir, host = sys.argv[1:]

if machine == "local":
    # Create an image reader that loads images from a directory containing sub-directories for each label
    img_reader = ImageFileReader(data_dir, 16, (240, 320))

    # Build the pipeline. Randomly flip images along the x axis with a probability p=0.5
    p = Pipeline([img_reader, Augmentations([FlipX()])])

    # Pop a batch to feed into NNs
    images, labels = p.dequeue()
    print(images.shape, images.dtype, labels.shape, labels.dtype)

elif machine == "data source":
    # Create an image reader that loads images from a directory containing sub-directories for each label
    img_reader = ImageFileReader(data_dir, 16, (240, 320))
    p = Pipeline([img_reader, ZMQSink(f"tcp://{host}:5555")])

elif machine == "worker":
    # In case we're on a worker machine, pull some remote batches, augment them and push them into the training machine
    p = Pipeline([ZMQSource(f"tcp://{host}:5555"), Augmentations([FlipX()]), ZMQSink(f"tcp://{host}:5556", bind=False)])

else:
    # Training machine
    p = Pipeline([ZMQSource(f"tcp://{host}:5556", bind=True)])
    for _ in range(5):
        images, labels = p.dequeue()
        print(images.shape, images.dtype, labels.shape, labels.dtype)
