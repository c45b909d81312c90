"""Numbers to batches: which images stand in an epoch, and the rows of a batch that they are decoded into.

May use: datasets, images, transforms, engine. Begin with ``loader``.
"""
