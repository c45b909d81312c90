"""Read and write HDF5 files. In HDF5, a dataset is an array in a file.

``dataset`` provides random access to the rows of datasets, and ``columns`` and ``heap`` read the rows. ``writer`` writes samples,
``growing`` appends rows to datasets, and ``output`` writes the file. All calls to h5py take the lock in ``backend``.
"""
