"""Components: readers, other sources, maps, streams, sinks and links."""

from highway.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
