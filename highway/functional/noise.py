"""Functions that add noise.

``(H, W, C)`` or ``(H, W)``, uint8 or floats, in RGB: see :mod:`highway.functional`.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from highway.images import ops
from highway.images.ops import computed_in_float32
from highway.renamed import with_old_names


@with_old_names
@computed_in_float32
def add_noise(image: np.ndarray, strength: float = 0.2, mu: float = 0.0, sigma: float = 50.0, rng: Generator | None = None) -> np.ndarray:
    """Add ``strength`` times normal noise of mean ``mu`` and deviation ``sigma`` to each value.

    The defaults are in grey levels, 0 to 255; for a float image that spans 0 to 1 give ``sigma`` in its units. Without ``rng`` the noise
    is another each time.
    """
    noise = (rng or np.random.default_rng()).standard_normal(image.shape, np.float32)
    noise *= strength * sigma
    noise += strength * mu
    noise += image
    return ops.saturated(noise, image.dtype)
