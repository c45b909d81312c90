"""The files of a decoded cache: locking (``claim``), and the storage of samples (``fields``, ``file``, ``writer``).

Begin with ``folder``. :class:`highway.datasets.DecodedCache` reads these files. :class:`highway.modules.Cache` and ``highway convert``
write them.
"""
