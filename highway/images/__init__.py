"""One encoded image to pixels, in memory that is used again.

``header`` says what an image is, ``decode`` makes pixels of it (``_jpeg`` is the C extension), ``ops`` scales and turns pixels by OpenCV or
Pillow, ``buffers`` is the memory; ``items`` finds the images of an item, and ``grid`` draws them. May use: engine (batch, stage), process.
Begin with ``decode``.
"""
