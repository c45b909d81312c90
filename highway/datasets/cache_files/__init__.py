"""The files of a decoded cache: who may write them (``claim``), and how samples lie in them (``fields``, ``file``, ``writer``).

Begin with ``folder``. :class:`highway.datasets.DecodedCache` reads them; :class:`highway.modules.Cache` and ``highway convert`` write.
"""
