"""HDF5: ``dataset`` reads the rows of a file's datasets by number, each in the way of its layout (``columns``);
``writer`` writes them, as datasets that grow (``growing``), by ``output``. All that asks h5py takes the lock in ``backend``.
"""
