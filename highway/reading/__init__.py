"""Read a dataset into batches: the order of the samples in an epoch, the samples of each rank, and the rows of the batches.

May use: datasets, images, transforms, engine. Begin with ``loader``, then ``sampler``.
"""
