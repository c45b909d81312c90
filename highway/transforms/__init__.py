"""Transforms of one image and what belongs to it: what one is in :mod:`highway.transforms.base`, and highway's own."""

from highway.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
