"""The parts of ``Cache``: its key (``fingerprint``), its run and its repair. :mod:`highway.datasets.cache_files` has the cache's files.

Begin with ``run``.
"""
