"""Decode images to pixels.

``header`` reads the header of an image, and ``decode`` decodes the image (``_jpeg`` is the C extension). ``ops`` scales and flips images
with OpenCV or Pillow. ``buffers`` and ``scratch`` provide memory that is reused. ``items`` finds the images of an item (a sample or batch),
and ``grid`` draws them. These modules may import ``engine`` (``batch``, ``stage``) and ``process``. Begin with ``decode``.
"""
