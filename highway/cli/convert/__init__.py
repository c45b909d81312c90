"""``highway convert``: convert a dataset to another format. Begin with ``command``."""
