"""The parts of ``Cache``: its key (``fingerprint``), its files (``folder``, ``file``, ``writer``), its run (``run``), and repair.

Begin with ``run``.
"""
