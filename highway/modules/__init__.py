"""Components for pipelines: sources such as readers, maps, streams, sinks, and links to other processes."""

from highway.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
