"""Decode images to pixels.

``header`` reads the header of an image, and ``decode`` decodes the image (``_jpeg`` is the C extension). ``ops`` scales and flips images
with OpenCV or Pillow. ``buffers`` and ``scratch`` provide memory that is used again. ``items`` finds the images of an item, and ``grid``
draws them. May use: engine (batch, stage), process. Begin reading with ``decode``.
"""
