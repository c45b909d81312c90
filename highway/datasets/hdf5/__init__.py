"""HDF5: ``dataset`` provides random access to the rows of a file's datasets, with one reader per layout (``columns``).
``writer`` writes datasets that grow (``growing``) into a file (``output``). All calls to h5py take the lock in ``backend``.
"""
