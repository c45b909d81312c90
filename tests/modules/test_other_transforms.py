"""What holds for transforms of other packages whichever they are, and without them; the packages themselves are in tests/oracles."""

import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from highway.errors import ConfigError
from highway.modules import Albumentations, TorchvisionV2
from highway.modules.other_transforms.adapter import Adapter, Changed

IMAGE = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
IMAGE.flags.writeable = False
BOXES = np.float32([[1, 2, 10, 12], [5, 5, 20, 15], [3, 3, 9, 9]])


class Stub(Adapter):
    """Stands for a package: its transforms take a ``Changed``, and return another one."""

    def _moves_pixels(self, transform):
        return transform in (mirrored, without_first)

    def _changed(self, target, rng):
        belongs = {role: target[role] for role in ("boxes", "points", "mask") if role in target}
        changed = Changed(target["image"], belongs, np.arange(len(target["boxes"])) if "boxes" in target else None)
        for transform in self.transforms if isinstance(self.transforms, list) else [self.transforms]:
            changed = transform(changed)
        return changed


def mirrored(changed):
    return changed._replace(image=changed.image[:, ::-1])


def brighter(changed):
    return changed._replace(image=changed.image | 1)


def without_first(changed):
    return changed._replace(belongs={**changed.belongs, "boxes": changed.belongs["boxes"][1:]}, rows=changed.rows[1:])


def backwards(changed):
    return changed._replace(belongs={**changed.belongs, "boxes": changed.belongs["boxes"][::-1]}, rows=changed.rows[::-1])


def test_all_that_has_a_row_for_each_box_follows_the_rows_that_are_left_in_their_order():
    item = {
        "image": IMAGE,
        "boxes": BOXES,
        "names": ["a", "b", "c"],
        "points": np.arange(12, dtype=np.float32).reshape(3, 2, 2),
        "masks": np.arange(3, dtype=np.uint8)[:, None, None] * np.ones((20, 30), np.uint8),
        "label": 4,
    }
    stage = Stub([without_first, backwards], "boxes", "points", "masks", ["names", "points", "masks"])
    done = stage(item, np.random.default_rng(0))
    assert_array_equal(done["boxes"], BOXES[[2, 1]])
    assert done["names"] == ["c", "b"] and done["label"] == 4
    assert_array_equal(done["points"], item["points"][[2, 1]])
    assert_array_equal(done["masks"], item["masks"][[2, 1]])
    assert not np.may_share_memory(done["image"], IMAGE)
    batch = {name: [value, value] for name, value in item.items()}
    done = stage(batch, np.random.default_rng(0))
    assert done["image"].shape == (2, 20, 30, 3) and done["names"] == [["c", "b"]] * 2
    assert [boxes.shape for boxes in done["boxes"]] == [(2, 4)] * 2


@pytest.mark.parametrize("name", ["boxes", "bboxes", "bbox"])
def test_boxes_that_nobody_has_named_are_an_error_if_pixels_are_moved(name):
    item, rng = {"image": IMAGE, name: BOXES}, np.random.default_rng(0)
    message = (
        f"Stub: this stage moves pixels, but not the boxes in the field '{name}'; pass boxes='{name}' so that they are transformed, too"
    )
    with pytest.raises(ValueError, match=message):
        Stub([brighter, mirrored])(item, rng)
    assert_array_equal(Stub([brighter])(item, rng)[name], BOXES)
    assert_array_equal(Stub([mirrored])({"image": IMAGE, f"original_{name}": BOXES}, rng)["image"], IMAGE[:, ::-1])


WRONG = {
    "no array": (lambda c: c._replace(image="x"), {}, "the image as a str; expected an array: remove conversions"),
    "channels first": (
        lambda c: c._replace(image=c.image.transpose(2, 0, 1)),
        {},
        "seems to have its channels first",
    ),
    "other size": (
        lambda c: c._replace(image=c.image[:5]),
        {"mask": "masks"},
        r"the transforms returned a mask of shape \(3, 20, 30\) "
        r"for an image of shape \(5",
    ),
    "lost points": (
        lambda c: c._replace(belongs={**c.belongs, "points": c.belongs["points"][1:]}),
        {"points": "points", "with_boxes": ["points"]},
        "2 of 3 points; remove the transform that removes them",
    ),
    "lost masks": (
        lambda c: c._replace(belongs={**c.belongs, "mask": c.belongs["mask"][1:]}),
        {"mask": "masks"},
        "2 of 3 masks; remove the transform that removes them, or add their field to with_boxes",
    ),
    "lost labels": (lambda c: c._replace(rows=c.rows[1:]), {}, "2 labels and 3 boxes"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_no_longer_fits_is_an_error(name):
    transform, fields, message = WRONG[name]
    item = {"image": IMAGE, "boxes": BOXES, "points": np.zeros((3, 2)), "masks": np.zeros((3, 20, 30), np.uint8)}
    with pytest.raises(ValueError, match=message):
        Stub(transform, "boxes", **({"with_boxes": []} | fields))(item, np.random.default_rng(0))


def test_images_that_come_out_with_other_sizes_are_an_error_that_names_no_parameter_of_another_stage():
    with pytest.raises(
        ValueError, match=r"image 1 is \(9, 30, 3\) uint8; all images of a batch need the same shape .* augment before batching$"
    ):
        Stub([lambda changed: changed])(([IMAGE, IMAGE[:9]],), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("stage", "module", "command"),
    [(Albumentations, "albumentations", "pip install albumentations==2.0.8"), (TorchvisionV2, "torchvision", "pip install torchvision")],
)
def test_a_package_that_is_not_installed_is_named_with_what_installs_it(monkeypatch, stage, module, command):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setenv("NO_ALBUMENTATIONS_UPDATE", "1")  # set on the way, and set back behind this test
    with pytest.raises(ConfigError, match=f"{stage.__name__} needs {module}, which is not installed: {command}"):
        stage([abs])


def test_fields_that_go_with_boxes_need_boxes():
    with pytest.raises(ConfigError, match=r"with_boxes=\['labels'\]; expected an empty list unless boxes= is set"):
        Albumentations([abs], with_boxes=["labels"])
    with pytest.raises(ConfigError, match="TorchvisionV2: transforms=3; expected a function or a list of function"):
        TorchvisionV2(3)


@pytest.mark.slow
def test_the_packages_are_not_imported_before_they_are_used():
    code = "import sys, highway.modules as m; m.Albumentations, m.TorchvisionV2; print({'torch', 'albumentations'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
