"""Photographs for the quickstart, the tutorials and the tests. Some have annotated objects."""

from __future__ import annotations

from importlib.resources import files

SCHEME = "highway:"


def photos() -> str:
    """Return a folder with 160 small JPEGs of 8 labels. ``train`` and ``val`` have one folder per label."""
    return str(files(__name__) / "photos")


def resolve_data_dir(path: str) -> str:
    """Replace a leading ``highway:`` of a path by the folder of this package. Return other paths unchanged.

    >>> resolve_data_dir("imagenet/train")
    'imagenet/train'
    >>> resolve_data_dir("highway:photos/train") == photos() + "/train"
    True
    """
    return str(files(__name__) / path.removeprefix(SCHEME)) if path.startswith(SCHEME) else path
