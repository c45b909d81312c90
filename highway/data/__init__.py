"""Photographs that come with the package, some with the objects in them, for the quickstart, the tutorials and the tests."""

from __future__ import annotations

from importlib.resources import files

SCHEME = "highway:"


def photos() -> str:
    """Return the folder of the photographs: ``train`` and ``val``, each with one folder per label; 8 labels, 160 small JPEGs."""
    return str(files(__name__) / "photos")


def resolve_data_dir(path: str) -> str:
    """Return a path. A leading ``highway:`` stands for the folder of the data in the package.

    >>> resolve_data_dir("imagenet/train")
    'imagenet/train'
    >>> resolve_data_dir("highway:photos/train") == photos() + "/train"
    True
    """
    return str(files(__name__) / path.removeprefix(SCHEME)) if path.startswith(SCHEME) else path
