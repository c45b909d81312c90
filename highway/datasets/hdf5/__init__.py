"""HDF5: ``dataset`` provides random access to the rows of a file's datasets, with a reader per layout (``columns``);
``writer`` writes datasets that grow (``growing``), by ``output``. All calls to h5py take the lock in ``backend``.
"""
