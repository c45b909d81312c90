"""From a dataset's indexes to batches: the order of the samples in an epoch, each rank's share, and the batch rows they are read into.

May use: datasets, images, transforms, engine. Begin with ``loader``, then ``sampler``.
"""
