"""MDS, the shards of Mosaic's streaming: ``dataset`` provides random access, ``encodings`` decodes columns, ``writer`` writes shards.

A shard consists of the number of samples (uint32), the start of each sample and the end of the last sample (uint32 each), a JSON text, and
the samples. A sample begins with the sizes of its columns of variable size (uint32 each). The columns follow, in the order of their names.
The file ``index.json`` beside the shards lists the shards, with the names, encodings and sizes of their columns. Numbers are little-endian.
"""
