"""Databases of keys and values: LMDB and LevelDB, the decoding of their values, and their writers."""
