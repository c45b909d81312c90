"""What can be read by number, a file for each format; and tar shards as streams, and how files are written.

May use: engine, images, wire (its ``.ten`` codec). Begin with ``dataset``, then ``folder``.
"""

from highway.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
