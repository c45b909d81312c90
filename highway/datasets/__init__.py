"""What can be read by number, a file for each format; and tar shards as streams, and how files are written.

May use: engine, images, wire (its ``.ten`` codec). Begin with ``dataset``, then ``folder``.
"""

from highway.datasets.decoded_cache import DecodedCache
from highway.datasets.folder import Files, ImageFolder
from highway.datasets.npy import Npy, Npz
from highway.datasets.tar import Tar
from highway.datasets.ten import TenFiles

__all__ = ["DecodedCache", "Files", "ImageFolder", "Npy", "Npz", "Tar", "TenFiles"]
