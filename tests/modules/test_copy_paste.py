import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from highway.errors import ConfigError
from highway.modules import CopyPaste

H, W = 20, 30


def box_mask(x1, y1, x2, y2):
    mask = np.zeros((H, W), np.uint8)
    mask[y1:y2, x1:x2] = 1
    return mask


def target(number, *boxes):
    """Return an image of one value, and objects that fill their boxes."""
    masks = np.stack([box_mask(*box) for box in boxes]) if boxes else np.zeros((0, H, W), np.uint8)
    labels = np.arange(len(boxes), dtype=np.int64) + 10 * number
    image = np.full((H, W, 3), number, np.uint8)
    return {
        "image": image,
        "boxes": np.float32(boxes).reshape(-1, 4),
        "masks": masks,
        "labels": labels,
        "points": np.full((len(boxes), 2, 2), number, np.float32),
    }


def batch(*targets):
    item = {name: [one[name] for one in targets] for name in targets[0]}
    for values in item.values():
        for value in values:
            value.flags.writeable = False
    return item


def paste(**parameters):
    return CopyPaste("boxes", "masks", ["labels", "points"], **parameters)


def rng(seed=0):
    return np.random.default_rng(seed)


ONE = target(1, (0, 0, 10, 10), (20, 0, 30, 10))
TWO = target(2, (5, 5, 15, 15))


def test_pixels_masks_boxes_and_labels_of_an_object_come_along_and_what_it_covers_shrinks():
    done = paste(p_object=1.0)(batch(ONE, TWO), rng())
    image, boxes, masks = (done[name][0] for name in ("image", "boxes", "masks"))
    assert_array_equal(image, np.where(TWO["masks"][0][..., None], np.uint8(2), np.uint8(1)) * np.ones(3, np.uint8), strict=True)
    assert done["labels"][0].tolist() == [10, 11, 20] and done["labels"][0].dtype == np.int64
    assert_array_equal(done["points"][0], np.repeat(np.float32([1, 1, 2]), 4).reshape(3, 2, 2))
    own = box_mask(0, 0, 10, 10)
    own[5:10, 5:10] = 0
    assert_array_equal(masks, np.stack([own, ONE["masks"][1], TWO["masks"][0]]), strict=True)
    assert_array_equal(boxes, np.float32([[0, 0, 10, 10], [20, 0, 30, 10], [5, 5, 15, 15]]), strict=True)


CASES = [  # an object, what is pasted over it, the box of what is left
    ((4, 4, 12, 12), (0, 0, 8, 20), (8, 4, 12, 12)),
    ((4, 4, 12, 12), (0, 0, 30, 10), (4, 10, 12, 12)),
    ((4, 4, 12, 12), (10, 0, 30, 20), (4, 4, 10, 12)),
    ((4, 4, 12, 12), (0, 6, 30, 20), (4, 4, 12, 6)),
    ((4, 4, 12, 12), (4, 4, 12, 11), (4, 11, 12, 12)),
    ((4, 4, 12, 12), (4, 4, 12, 12), None),
    ((4, 4, 12, 12), (20, 0, 25, 5), (4, 4, 12, 12)),
]


@pytest.mark.parametrize(("under", "over", "left"), CASES)
def test_the_box_of_a_covered_object_is_that_of_its_mask(under, over, left):
    done = paste(p_object=1.0, min_visibility=0.0)(batch(target(1, under), target(2, over)), rng())
    assert_array_equal(done["boxes"][0], np.float32([*([left] if left else []), over]), strict=True)
    assert done["labels"][0].tolist() == [*([10] if left else []), 20]


@pytest.mark.parametrize(("least", "stays"), [(0.124, True), (0.125, True), (0.126, False), (1.0, False)])
def test_objects_of_which_too_little_is_left_are_removed(least, stays):
    done = paste(p_object=1.0, min_visibility=least)(batch(target(1, (4, 4, 12, 12)), target(2, (4, 4, 12, 11))), rng())
    assert done["labels"][0].tolist() == [*([10] if stays else []), 20]
    assert (done["image"][0][4:11, 4:12] == 2).all()


def test_boxes_that_are_not_covered_stay_as_they_are_given():
    one = target(1, (0, 0, 10, 10)) | {"boxes": np.float32([[0.25, 0.5, 9.75, 9.5]])}
    done = paste(p_object=1.0)(batch(one, target(2, (15, 15, 18, 18))), rng())
    assert_array_equal(done["boxes"][0][0], one["boxes"][0])


def test_padding_is_removed_and_objects_without_a_mask_stay_but_are_not_pasted():
    padded = target(1, (0, 0, 10, 10), (1, 1, 3, 3), (0, 0, 0, 0))
    padded["masks"][1] = 0
    done = paste(p_object=1.0)(batch(padded, target(2)), rng())
    assert done["labels"][0].tolist() == [10, 11]
    assert done["labels"][1].tolist() == [10]


@pytest.mark.parametrize("off", [{"p": 0.0}, {"p_object": 0.0}])
def test_with_a_probability_of_0_nothing_is_pasted(off):
    item = batch(ONE, TWO)
    done = paste(**{"p_object": 1.0, **off})(item, rng())
    assert_array_equal(done["image"], np.stack(item["image"]), strict=True)
    for name in ("boxes", "masks", "labels", "points"):
        for one, other in zip(done[name], item[name], strict=True):
            assert_array_equal(one, other, strict=True)
            assert not np.shares_memory(one, other)


def test_images_without_objects_take_and_give():
    done = paste(p_object=1.0)(batch(target(1), ONE), rng())
    assert done["labels"][0].tolist() == [10, 11] and done["labels"][1].tolist() == [10, 11]
    done = paste(p_object=1.0)(batch(target(1), target(2)), rng())
    assert [boxes.shape for boxes in done["boxes"]] == [(0, 4)] * 2 and [masks.shape for masks in done["masks"]] == [(0, H, W)] * 2


BOXES = st.lists(st.tuples(st.integers(0, W - 2), st.integers(0, H - 2), st.integers(1, 15), st.integers(1, 12)), max_size=4)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.lists(BOXES, min_size=2, max_size=5), st.floats(0, 1))
def test_each_mask_lies_on_pixels_of_its_image_and_boxes_are_around_masks(seed, objects, least):
    """Objects of an image lie beside each other in their own masks, or one over the other: a value tells images apart."""
    targets = [target(number + 1, *[(x, y, min(x + w, W), min(y + h, H)) for x, y, w, h in boxes]) for number, boxes in enumerate(objects)]
    done = paste(min_visibility=least)(batch(*targets), rng(seed))
    for row, image in enumerate(done["image"]):
        pixels = {
            label: int((image[mask != 0] == label // 10).all())
            for label, mask in zip(done["labels"][row].tolist(), done["masks"][row], strict=True)
        }
        assert all(pixels.values())
        for label, box, mask in zip(done["labels"][row].tolist(), done["boxes"][row], done["masks"][row], strict=True):
            rows, columns = np.nonzero(mask)
            assert box.tolist() == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            whole = targets[label // 10 - 1]["masks"][label % 10]
            assert len(rows) >= least * whole.sum() and (mask <= whole).all()
            assert label // 10 != row + 1 or (mask == (whole & (image[..., 0] == row + 1))).all()


FLAT = np.zeros((2, H, W, 3), np.uint8)
MASKS = np.zeros((2, 1, H, W), bool)
BOX = np.zeros((2, 1, 4), np.float32)
WRONG = [
    ({"image": FLAT[:1], "boxes": BOX[:1], "masks": MASKS[:1]}, "the batch has only one image"),
    ({"image": FLAT[0], "boxes": BOX, "masks": MASKS}, "the image field contains one image"),
    (
        {"image": [FLAT[0], FLAT[0, 1:]], "boxes": BOX, "masks": [MASKS[0], MASKS[0, :, 1:]]},
        r"image 1 has the shape \(19, 30, 3\); "
        r"objects",
    ),
    ({"image": FLAT, "boxes": BOX, "masks": MASKS[:, 0]}, "1 boxes, but mask has 20 rows"),
    ({"image": FLAT, "boxes": BOX, "masks": np.zeros((2, 2, H, W))}, "1 boxes, but mask has 2 rows"),
    ({"image": FLAT, "boxes": BOX, "masks": MASKS, "masks_count": [1, 1]}, "'masks_count' contains the number of rows"),
]


@pytest.mark.parametrize(("item", "words"), WRONG, ids=[words[:30] for _, words in WRONG])
def test_what_cannot_be_pasted_is_said(item, words):
    with pytest.raises(ValueError, match=f"^CopyPaste.*{words}"):
        CopyPaste("boxes", "masks")(item, rng())


def test_a_mask_of_the_whole_image_is_none_of_an_object():
    item = {"image": FLAT, "boxes": np.zeros((2, H, 4), np.float32), "masks": MASKS[:, 0]}
    with pytest.raises(ValueError, match=r"the mask of image 0 has the shape \(20, 30\); expected one mask for each object"):
        CopyPaste("boxes", "masks")(item, rng())
    with pytest.raises(ConfigError, match="p_object"):
        CopyPaste("boxes", "masks", p_object=-1.0)
