"""Plain functions on one image: ``(H, W, C)`` or ``(H, W)``, uint8 or floats, in RGB.

The result has the dtype and the number of channels of the image, unless documented otherwise. uint8 results are rounded and clipped to the
range from 0 to 255. Float results are computed in float32. They are not clipped, because their range is unknown. Functions that only move
pixels, such as flips and ``crop``, accept any dtype. Most other functions raise TypeError for dtypes that are neither uint8 nor floats. No
function modifies the image, but the result can be the image itself or a view of the image. ``out`` is optional memory for the result. If
its shape and dtype fit, a function can write the result into ``out``, and return ``out``. Otherwise, it returns a new array. Always use the
returned array.
"""

from highway.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
