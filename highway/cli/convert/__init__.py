"""``highway convert``: converts one format to another. Begin with ``command``."""
