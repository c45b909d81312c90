"""``highway convert``: from one format to another. Begin with ``command``."""
