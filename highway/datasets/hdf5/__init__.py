"""HDF5: ``dataset`` provides random access to the rows of a file's datasets. ``columns`` has one reader per layout of a dataset.
``writer`` writes samples, ``growing`` appends them to datasets, and ``output`` writes the file. All calls to h5py take the lock in
``backend``.
"""
