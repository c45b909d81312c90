"""Components: readers, other sources, maps, streams, sinks and links."""

from typing import TYPE_CHECKING

from highway.lazy import import_when_asked

if TYPE_CHECKING:
    from highway.modules.augment import Augmentations
    from highway.modules.cache import Cache, CacheReader
    from highway.modules.decode import DecodeImage
    from highway.modules.encoded_images import DecodeBatch, EncodedImageReader
    from highway.modules.links import ZMQSink, ZMQSource
    from highway.modules.maps import Identity, Map, Rename, Select
    from highway.modules.noise import Noise
    from highway.modules.printing import Benchmark, Peek
    from highway.modules.processes import Processes
    from highway.modules.readers import ImageFileReader, ImageReader, Reader
    from highway.modules.repeat import Repeat
    from highway.modules.sinks import ContactSheet, DumpImages, ImageSink
    from highway.modules.sources import Concat, FromQueue, Mix, Zip
    from highway.modules.streams import Batch, BatchByShape, Duplicate, Shuffle, Take, Tee, Unbatch
    from highway.modules.ten_files import TenSink, TenSource
    from highway.modules.webdataset import ShardSink, WebDatasetSource

__all__ = [
    "Augmentations",
    "Batch",
    "BatchByShape",
    "Benchmark",
    "Cache",
    "CacheReader",
    "Concat",
    "ContactSheet",
    "DecodeBatch",
    "DecodeImage",
    "DumpImages",
    "Duplicate",
    "EncodedImageReader",
    "FromQueue",
    "Identity",
    "ImageFileReader",
    "ImageReader",
    "ImageSink",
    "Map",
    "Mix",
    "Noise",
    "Peek",
    "Processes",
    "Reader",
    "Rename",
    "Repeat",
    "Select",
    "ShardSink",
    "Shuffle",
    "Take",
    "Tee",
    "TenSink",
    "TenSource",
    "Unbatch",
    "WebDatasetSource",
    "ZMQSink",
    "ZMQSource",
    "Zip",
]

import_when_asked(
    __name__,
    {
        "augment": "Augmentations",
        "cache": "Cache CacheReader",
        "decode": "DecodeImage",
        "encoded_images": "DecodeBatch EncodedImageReader",
        "links": "ZMQSink ZMQSource",
        "maps": "Identity Map Rename Select",
        "noise": "Noise",
        "printing": "Benchmark Peek",
        "processes": "Processes",
        "readers": "ImageFileReader ImageReader Reader",
        "repeat": "Repeat",
        "sinks": "ContactSheet DumpImages ImageSink",
        "sources": "Concat FromQueue Mix Zip",
        "streams": "Batch BatchByShape Duplicate Shuffle Take Tee Unbatch",
        "ten_files": "TenSink TenSource",
        "webdataset": "ShardSink WebDatasetSource",
    },
)
