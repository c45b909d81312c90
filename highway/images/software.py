"""Describe the software on which pixels depend, such as the JPEG decoder, and check that all senders of a link use the same software.

A *link* is a connection through which processes send batches to other processes.

Different decoders decode the same file to different pixels. OpenCV and Pillow round differently when they scale, warp and mix. Therefore,
processes with the same seed yield the same batches only if they use the same software.
"""

from __future__ import annotations

import logging
import os
import sys
from functools import cache
from importlib.machinery import PathFinder

import highway
from highway.distribution import version_of
from highway.images.decode import EXTENSION, extension_or_none

log = logging.getLogger("highway")

_OPENCV = ("opencv-python-headless", "opencv-python", "opencv-contrib-python-headless", "opencv-contrib-python")


@cache
def software() -> str:
    """Return the version of highway, the JPEG decoder and the pixel library of this process, without importing OpenCV."""
    opencv = next(filter(None, map(version_of, _OPENCV)), "") if _is_installed("cv2") else None
    pixels = f"OpenCV {opencv}".rstrip() if opencv is not None else f"Pillow {version_of('pillow')}"
    if extension := extension_or_none():
        decoder = f"{EXTENSION} on {getattr(extension, 'LIBJPEG', 'libjpeg-turbo')}"  # older builds of the extension have no LIBJPEG
    else:
        decoder = f"simplejpeg {version_of('simplejpeg')}" if _is_installed("simplejpeg") else pixels
    return f"highway {highway.__version__}, JPEGs by {decoder}, pixels by {pixels}"


def made_here() -> tuple[str, str]:
    """Return the software and the host of this process."""
    return software(), os.uname().nodename


class Comparison:
    """Compares the software of all senders of a link. Logs a warning once for each difference.

    Args:
        link: Name of the link in warnings.
    """

    def __init__(self, link: object) -> None:
        self._link = link
        self._first: tuple[str, ...] | None = None
        self._known: set[str] = set()

    def note(self, made: tuple[str, ...]) -> None:
        """Record the software and the host of a sender."""
        if made[0] in self._known or len(self._known) > 16:
            return
        self._known.add(made[0])
        if self._first is None:
            self._first = made
            mine = software()
            if _release(made[0]) != _release(mine):
                log.warning(
                    "%s: %s sends with %s, but this process runs %s; use the same software on both",
                    self._link,
                    made[1],
                    *map(_release, (made[0], mine)),
                )
            return
        (first, there), (other, here) = self._first, made
        log.warning(
            "%s: its senders have different software, so the same seed gives different batches: %s has %s; %s has %s. Install the "
            "same versions on both; `highway doctor` lists them",
            *(self._link, there, first, here, other),
        )


def _release(text: str) -> str:
    return text.partition(",")[0]


def _is_installed(module: str) -> bool:
    """Return whether a module can be imported. ``importlib.util.find_spec`` would fail while another thread imports the module."""
    return sys.modules.get(module, module) is not None and PathFinder.find_spec(module) is not None
