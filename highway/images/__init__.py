"""Decode images to pixels, in reused memory.

``header`` reads an image's header, ``decode`` decodes it (``_jpeg`` is the C extension), ``ops`` scales and flips pixels by OpenCV or
Pillow, ``buffers`` provides memory; ``items`` finds the images of an item, ``grid`` draws them. May use: engine (batch, stage), process.
Begin with ``decode``.
"""
