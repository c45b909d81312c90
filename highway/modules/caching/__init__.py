"""The parts of ``Cache``: its key (``fingerprint``), its files (``claim``, ``folder``, ``file``, ``writer``), its run and its repair.

Begin with ``run``.
"""
