"""Datasets with random access, one module per format. Other modules read tar files as streams, and write samples to files.

These modules may import ``engine``, ``images``, and the codec of ``.ten`` files in ``wire``. Begin with ``dataset``, then ``folder``.
"""

from highway.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
