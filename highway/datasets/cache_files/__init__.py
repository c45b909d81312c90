"""The files of a cache, which stores decoded samples. ``claim`` locks the folder. ``fields``, ``file`` and ``writer`` store samples.

Begin with ``folder``. :class:`highway.datasets.DecodedCache` reads these files. :class:`highway.modules.Cache` and ``highway convert``
write them.
"""
