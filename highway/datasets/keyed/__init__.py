"""Databases of keys and values: readers and writers of LMDB and LevelDB, and the decoding of values."""
