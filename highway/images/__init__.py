"""Decode images to pixels, in reused memory.

``header`` reads the header of an image, and ``decode`` decodes the image (``_jpeg`` is the C extension). ``ops`` scales and flips pixels by
OpenCV or Pillow, and ``buffers`` provides memory. ``items`` finds the images of an item, and ``grid`` draws them. May use: engine (batch,
stage), process. Begin with ``decode``.
"""
