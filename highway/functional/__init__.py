"""Plain functions on one image: ``(H, W, C)`` or ``(H, W)``, uint8 or floats, in RGB.

The dtype and the number of channels are kept unless documented otherwise. uint8 results are rounded and saturate. Float results are
computed in float32 and never clipped, because their range is unknown. Functions that only move pixels (flips, pad, crop, shift, and
sampling of order 0) accept any dtype. No function modifies its argument; a result may be the argument or a view of it. If ``out`` has the
shape and dtype of the result, a function may fill and return it.
"""

from highway.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
