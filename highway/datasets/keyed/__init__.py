"""Databases of keys and values: LMDB and LevelDB, what is in their values, and their writers."""
