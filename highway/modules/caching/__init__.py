"""The implementation of the stage ``Cache``. :mod:`highway.datasets.cache_files` reads and writes the files of a cache.

Begin reading with ``run``.
"""
