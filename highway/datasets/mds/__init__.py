"""Read and write MDS, the format of Mosaic's streaming. ``dataset`` provides random access, ``encodings`` decodes columns, ``writer``
writes shards.

A shard is a file with many samples. The file begins with the number of samples, the position of each sample, and the end of the last sample
(all uint32). A JSON text and the samples follow. A sample begins with the size (uint32) of each column whose size varies. The values of the
columns follow, sorted by the names of the columns. The file ``index.json`` lists the shards of a folder, with the names, encodings and
sizes of the columns. Numbers are little-endian.
"""
