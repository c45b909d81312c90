"""MDS, the shards of Mosaic's streaming: ``dataset`` provides random access, ``encodings`` decodes columns, ``writer`` writes shards.

A shard is: uint32 number of samples; uint32 where each begins, and where the last one ends; a JSON text; the samples. A sample is: uint32
size of each column whose size varies; then the columns, in the order of their names. ``index.json`` beside the shards lists them, with
the names, encodings and sizes of their columns. Numbers are little-endian.
"""
