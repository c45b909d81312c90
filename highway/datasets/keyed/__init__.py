"""Databases of keys and values: read and write LMDB and LevelDB databases, and decode their values."""
