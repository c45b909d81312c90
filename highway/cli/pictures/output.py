"""Write a picture to a file, or show it in a window if there is a display."""

from __future__ import annotations

import os
import sys
from typing import Any

from PIL import Image

from highway.datasets.writing import writing
from highway.errors import ConfigError

_FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
_SETTINGS: dict[str, dict[str, Any]] = {"PNG": {"optimize": True}, "JPEG": {"quality": 85, "optimize": True, "progressive": True}}


def check_output(path: str | None) -> None:
    """Check the value of ``--output``, if given.

    Raises:
        ConfigError: the value is not the file name of a picture.
    """
    if path is not None and _suffix(path) not in _FORMATS:
        raise ConfigError(f"--output {path}: expected a name that ends in .png or .jpg")


def put_out(picture: Image.Image, title: str, path: str | None, default: str) -> None:
    """Write a picture to a file, or show it in a window if there is a display and no path. Print where the picture is.

    Args:
        picture: The picture.
        title: Title of the window.
        path: The path of the file, or ``None``.
        default: The path of the file if ``path`` is ``None`` and there is no display.
    """
    if path is None and has_display():
        picture.show(title)
        print("shown in a window", flush=True)
        return
    path = path or default
    form = _FORMATS[_suffix(path)]
    with writing(path) as name:
        picture.save(name, form, **_SETTINGS[form])
    print(f"written to {os.path.abspath(path)}", flush=True)


def has_display() -> bool:
    """Return whether a window can be opened here."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()
