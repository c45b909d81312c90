"""Plain functions on one image: ``(H, W, C)`` or ``(H, W)``, uint8 or floats, in RGB.

Dtype and channels are kept unless the text says otherwise. Results of uint8 are rounded and saturate; floats are computed in float32 and
never clipped, since their range is not known. What only moves pixels (flips, pad, crop, shift, and sampling of order 0) takes any dtype.
No function writes into its argument; a result may be the argument itself or a view of it. ``out`` may be filled and returned where its
shape and dtype fit.
"""

from highway.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
