"""The picture in the reference of the transforms, and the script that draws it."""

import inspect
import os
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

import highway.transforms as T
from highway.cli.pictures.examples import packaged
from highway.images.grid import type_face
from highway.modules import CopyPaste, CutMix, MixUp, Mosaic

DOCS = Path(__file__).parents[3] / "docs"
PICTURE = DOCS / "reference" / "transforms.jpg"
SCRIPT = str(DOCS / "reference" / "transforms.py")
DRAWS = runpy.run_path(SCRIPT)
GROUPS, arguments, tiles = DRAWS["GROUPS"], DRAWS["arguments"], DRAWS["tiles"]


def test_every_public_transform_has_a_cell():
    classes = {cls for name in T.__all__ if isinstance(cls := getattr(T, name), type)}
    there_are = {cls for cls in classes if not inspect.isabstract(cls) and not getattr(cls, "_is_protocol", False)}
    shown = [type(cell) for group in GROUPS for cell in group.cells]
    assert set(shown) == there_are | {MixUp, CutMix, Mosaic, CopyPaste}
    assert len(shown) == len(set(shown))


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.title)
def test_the_cells_of_a_group_can_be_drawn_and_show_what_they_do(group):
    before, *after = tiles(group, packaged(), 48)
    assert [tile.label for tile in after] == [type(cell).__name__ for cell in group.cells]
    given = np.asarray(before.image)
    same = [tile.label for tile in after if tile.image.size == before.image.size and (np.asarray(tile.image) == given).all()]
    assert set(same) <= {"ToFloat", "ToUint8", "RescaleImages", "MinMaxNormalize", "MeanVarianceNormalize"}, (
        "nothing is to be seen of others"
    )
    for tile in after:
        assert max(tile.image.size) == 48


def test_the_picture_in_the_docs_is_the_one_that_the_page_says_how_to_make(tmp_path, monkeypatch):
    page = (DOCS / "reference" / "transforms.md").read_text()
    assert "$ python docs/reference/transforms.py " in page and "](transforms.jpg)" in page
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [SCRIPT, "made.jpg"])
    runpy.run_path(SCRIPT, run_name="__main__")
    with Image.open("made.jpg") as made, Image.open(PICTURE) as there:
        assert made.info["comment"] == there.info["comment"], "its cells are others now: make it again"
        assert made.width == there.width and os.path.getsize(PICTURE) < 1_500_000


def test_a_cell_says_what_is_not_the_default():
    assert arguments(T.Rotate(30)) == "30"
    assert arguments(T.FlipX()) == ""
    assert arguments(T.Chain((T.FlipX(), T.Invert(p=1.0)))) == "FlipX, Invert"
    assert arguments(T.JpegNoise((5, 10))) == "quality=(5, 10)"
    assert arguments(T.Affine(20.0, scale=(0.7, 1.3))) == "rotate=20, scale=(0.7, 1.3)"


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.title)
def test_what_stands_below_a_cell_is_not_cut_off(group):
    draw = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    for tile in tiles(group, packaged(), 48):
        for text in (tile.label, tile.key):
            assert draw.textlength(text, font=type_face(12)) <= 160, text
