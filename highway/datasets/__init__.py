"""Random-access datasets, one module per format. Also tar shards as streams, and writers.

May use: engine, images, wire (its ``.ten`` codec). Begin with ``dataset``, then ``folder``.
"""

from highway.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
