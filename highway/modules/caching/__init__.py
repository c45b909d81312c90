"""The parts of ``Cache``: its key (``fingerprint``), its run and its repair; its files are in :mod:`highway.datasets.cache_files`.

Begin with ``run``.
"""
