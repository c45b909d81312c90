"""What can be read by number, a file for each format; and tar shards as streams, and how files are written.

May use: engine, images, wire (its ``.ten`` codec). Begin with ``dataset``, then ``folder``.
"""

from typing import TYPE_CHECKING

from highway.lazy import import_when_asked

if TYPE_CHECKING:
    from highway.datasets.decoded_cache import DecodedCache
    from highway.datasets.folder import Files, ImageFolder
    from highway.datasets.npy import Npy, Npz
    from highway.datasets.tar import Tar
    from highway.datasets.ten import TenFiles

__all__ = ["DecodedCache", "Files", "ImageFolder", "Npy", "Npz", "Tar", "TenFiles"]

import_when_asked(
    __name__,
    {
        "decoded_cache": "DecodedCache",
        "folder": "Files ImageFolder",
        "npy": "Npy Npz",
        "tar": "Tar",
        "ten": "TenFiles",
    },
)
