"""Numbers to batches: which samples stand in an epoch, for which rank, and the rows of batches that they are read into.

May use: datasets, images, transforms, engine. Begin with ``loader``, then ``sampler``.
"""
