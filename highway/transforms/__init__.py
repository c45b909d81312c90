"""Transforms of an image and its boxes, points and mask. :mod:`highway.transforms.base` defines the interface."""

from highway.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
