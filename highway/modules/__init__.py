"""Components: readers, maps, streams and sinks."""

from highway.modules.augment import Augmentations
from highway.modules.readers import ImageFileReader, ImageReader

__all__ = ["Augmentations", "ImageFileReader", "ImageReader"]
