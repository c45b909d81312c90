import re
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image

from highway.errors import ConfigError
from highway.modules import Identity, Rename
from highway.modules.augment import Augmentations
from highway.parameters.location import Location
from highway.topology.registry import Registry
from highway.transforms import (
    AdditiveNoise,
    Brightness,
    CenterCrop,
    FlipX,
    FlipY,
    Grayscale,
    Invert,
    Normalize,
    RandAugment,
    RandomCrop,
    RandomIoUCrop,
    RandomResizedCrop,
    Resize,
    Rotate,
    SanitizeBoxes,
    Saturation,
    Shift,
    Sometimes,
    Transform,
    Zoom,
)

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 20, 30, 3), dtype=np.uint8)
LABELS = np.arange(6, dtype=np.int32)
for array in (IMAGES, LABELS):
    array.flags.writeable = False

EVERYTHING = [
    RandomResizedCrop((16, 24)),
    FlipX(),
    Rotate(10),
    Zoom(0.1),
    Shift(2),
    Brightness(),
    Saturation(),
    AdditiveNoise(3.0),
    Normalize(),
]


def rng(seed=0):
    return np.random.default_rng(seed)


def test_each_image_of_a_batch_gets_a_draw_of_its_own_in_the_order_of_the_rows():
    transforms = [FlipX(), RandomCrop((16, 16)), Brightness()]
    images, labels = Augmentations(transforms)((IMAGES, LABELS), rng())
    generator, expected = rng(), []
    for image in IMAGES:
        for transform in transforms:
            image = transform(image, generator)
        expected.append(image)
    assert_array_equal(images, np.stack(expected), strict=True)
    assert labels is LABELS


def test_same_generator_same_batch_and_another_generator_another_batch():
    augment = Augmentations(EVERYTHING)
    first, again, other = (augment((IMAGES,), rng(seed))[0] for seed in (1, 1, 2))
    assert_array_equal(first, again, strict=True)
    assert not np.array_equal(first, other)
    assert (first.shape, first.dtype) == ((6, 16, 24, 3), np.float32)


def test_deterministic_leaves_out_all_chance_whatever_the_generator():
    augment = Augmentations([FlipX(), Rotate(10), CenterCrop((10, 20)), Brightness()], deterministic=True)
    for generator in (rng(1), rng(2), None):
        (images,) = augment((IMAGES,), generator)
        assert_array_equal(images, IMAGES[:, 5:15, 5:25], strict=True)


@pytest.mark.parametrize("transforms", [[], [FlipX()], [FlipX(0.0)], [CenterCrop((20, 30))], [CenterCrop((10, 10))], EVERYTHING], ids=len)
def test_results_are_new_and_the_input_is_never_written(transforms):
    before = IMAGES.copy()
    mask = np.zeros((6, 20, 30), np.uint8)
    item = {"image": IMAGES, "mask": mask}
    done = Augmentations(transforms, mask="mask")(item, rng())
    alone = Augmentations(transforms, mask="mask")({"image": IMAGES[0], "mask": mask[0]}, rng())
    for result in (done, alone):
        assert not np.shares_memory(result["image"], IMAGES)
        assert not np.shares_memory(result["mask"], mask)
        assert result["image"].flags.writeable
        assert result["image"].flags.c_contiguous
    assert item == {"image": IMAGES, "mask": mask}
    assert_array_equal(IMAGES, before)


@pytest.mark.parametrize("image", [IMAGES[0], IMAGES[0, ..., 0]], ids=["colour", "grey"])
def test_a_sample_is_known_by_its_two_or_three_axes(image):
    assert_array_equal(Augmentations([FlipX(1.0)])((image, 3), rng())[0], image[:, ::-1], strict=True)
    assert_array_equal(Augmentations([FlipX(1.0)])(image, rng()), image[:, ::-1], strict=True)


GREY = IMAGES[..., 0]
FIRST = IMAGES.transpose(0, 3, 1, 2)


@pytest.mark.parametrize("images", [GREY, FIRST[0], GREY[:3], np.zeros((20, 30, 5), np.float32)], ids=["grey", "CHW", "three grey", "5"])
def test_an_array_of_three_axes_that_may_be_several_things_is_refused_with_the_ways_out(images):
    with pytest.raises(ValueError, match=r"grey images \(B, H, W\) with .*, an image with the channels first with") as caught:
        Augmentations([FlipX(1.0)])((images,), rng())
    assert f"contains an array of the ambiguous shape {images.shape}" in str(caught.value)
    assert "images[..., None]" in str(caught.value) and "image.transpose(1, 2, 0)" in str(caught.value)


@pytest.mark.parametrize("images", [FIRST, list(FIRST), FIRST[:, :1]], ids=["array", "list", "grey"])
def test_a_batch_with_its_channels_first_is_refused_with_the_way_out(images):
    with pytest.raises(ValueError, match=r"seems to have its channels first; .* or images.transpose\(0, 2, 3, 1\) for a batch"):
        Augmentations([FlipX(1.0)])((images,), rng())
    with pytest.raises(ValueError, match=r"channels first"):
        Augmentations([])((images,), rng())


def test_the_ways_out_work():
    flipped = [
        Augmentations([FlipX(1.0)])((images,), rng())[0]
        for images in (GREY[..., None], FIRST[0].transpose(1, 2, 0), FIRST.transpose(0, 2, 3, 1), np.zeros((20, 30, 5))[None])
    ]
    assert [images.shape for images in flipped] == [(6, 20, 30, 1), (20, 30, 3), (6, 20, 30, 3), (1, 20, 30, 5)]
    assert_array_equal(flipped[0], GREY[:, :, ::-1, None], strict=True)


def test_grey_images_keep_their_channel_axis():
    (images,) = Augmentations([FlipX(1.0), Resize((10, 10))])((IMAGES[..., :1],), rng())
    assert images.shape == (6, 10, 10, 1)


@pytest.mark.parametrize(
    ("item", "field", "changed"),
    [
        ((IMAGES, LABELS), None, 0),
        ((LABELS, IMAGES), 1, 1),
        ({"label": LABELS, "image": IMAGES}, None, "image"),
        ({"label": LABELS, "images": IMAGES}, None, "images"),
        ({"left": IMAGES, "image_id": LABELS}, None, "left"),
        ({"image": IMAGES, "right": IMAGES}, "right", "right"),
    ],
)
def test_the_field_of_the_images_is_given_or_found(item, field, changed):
    done = Augmentations([FlipX(1.0)], field=field)(item, rng())
    for name in item if isinstance(item, dict) else range(len(item)):
        expected = IMAGES[:, :, ::-1] if name == changed else item[name]
        assert_array_equal(done[name], expected, strict=True)
    assert list(done) == list(item) if isinstance(item, dict) else type(done) is tuple


def test_a_list_of_images_of_different_sizes_becomes_one_batch():
    given = [IMAGES[0], IMAGES[1, :15], IMAGES[2, :, :18]]
    (images,) = Augmentations([Resize((8, 8))])((given,), rng())
    assert_array_equal(images, np.stack([Resize((8, 8))(image) for image in given]), strict=True)


def scene(count=5):
    """Images with one bright rectangle each, its box, its mask, and its centre."""
    generator = rng(8)
    images, boxes = np.zeros((count, 60, 80, 3), np.uint8), np.zeros((count, 2, 4), np.float32)
    for image, (box, _) in zip(images, boxes):
        left, top = generator.integers(20, 40), generator.integers(15, 30)
        box[:] = left, top, left + 20, top + 14
        image[top : top + 14, left : left + 20] = 255
    points = (boxes[:, :1, :2] + boxes[:, :1, 2:]) / 2
    return {"image": images, "boxes": boxes, "points": points, "mask": (images[..., 0] > 0).astype(np.int64)}


def test_boxes_points_and_mask_share_the_draw_of_their_image():
    transforms = [RandomResizedCrop((64, 64), scale=(0.6, 1.0)), FlipX(), FlipY(), Shift(5), Zoom(0.1), Brightness()]
    augment = Augmentations(transforms, boxes="boxes", points="points", mask="mask")
    for seed in range(5):
        done = augment(scene(), rng(seed))
        assert {name: (value.shape, value.dtype.name) for name, value in done.items()} == {
            "image": ((5, 64, 64, 3), "uint8"),
            "boxes": ((5, 2, 4), "float32"),
            "points": ((5, 1, 2), "float32"),
            "mask": ((5, 64, 64), "int64"),
        }
        for image, boxes, points, mask in zip(*done.values()):
            assert np.mean((image[..., 0] > 100) != (mask == 1)) < 0.04
            rows, columns = np.nonzero(mask)
            found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            np.testing.assert_allclose(boxes[0], found, atol=2)  # a pixel for each of the two that interpolate
            assert_array_equal(boxes[1], np.zeros(4))  # the padding
            if (np.clip(points[0], 0, 63) == points[0]).all():
                assert mask[int(points[0, 1]), int(points[0, 0])] == 1


def test_boxes_of_different_number_go_as_a_list_or_object_array_and_come_back_so():
    ragged = [np.float32([[1, 2, 3, 4]]), np.zeros((0, 4), np.float32), [[0, 0, 5, 5], [1, 1, 2, 2]]]
    expected = [np.float32([[27, 2, 29, 4]]), np.zeros((0, 4), np.float32), np.float32([[25, 0, 30, 5], [28, 1, 29, 2]])]
    objects = np.empty(3, object)
    objects[:] = ragged
    for given, kind in ((ragged, list), (objects, np.ndarray)):
        _, boxes = Augmentations([FlipX(1.0)], boxes=1)((IMAGES[:3], given), rng())
        assert type(boxes) is kind
        for got, wanted in zip(boxes, expected):
            assert_array_equal(got, wanted, strict=True)
    assert_array_equal(ragged[0], np.float32([[1, 2, 3, 4]]))


def test_a_sample_takes_its_boxes_and_mask_without_a_batch_axis():
    item = {"image": IMAGES[0], "boxes": np.float64([[1, 2, 3, 4]]), "mask": IMAGES[0, ..., 0]}
    done = Augmentations([FlipX(1.0)], boxes="boxes", mask="mask")(item, rng())
    assert_array_equal(done["boxes"], np.float32([[27, 2, 29, 4]]), strict=True)
    assert_array_equal(done["mask"], IMAGES[0, :, ::-1, 0], strict=True)


def test_an_empty_batch_stays_empty():
    empty = (IMAGES[:0], LABELS[:0])
    assert Augmentations([FlipX()])(empty, rng()) == empty


def test_images_of_different_shapes_are_an_error_that_names_transforms_shapes_and_way_out():
    given = [IMAGES[0], IMAGES[1, :15]]
    with pytest.raises(
        ValueError, match=r"after FlipX\(p=1.0\) image 0 of the batch is \(20, 30, 3\) uint8 and image 1 is \(15, 30, 3\)"
    ) as caught:
        Augmentations([FlipX(1.0)])((given,), rng())
    assert "end with a transform that makes them equal, such as Resize" in str(caught.value)
    assert str(caught.value).endswith("augment before batching; or pass as_list=True to get a list")


@dataclass(frozen=True)
class Failing(Transform):
    def image(self, image, params):
        raise ZeroDivisionError("as it may happen")


def test_an_error_in_a_transform_keeps_its_type_and_notes_the_image_and_transform():
    with pytest.raises(ZeroDivisionError) as caught:
        Augmentations([FlipX(), Failing()])((IMAGES,), rng())
    assert caught.value.__notes__ == ["in transforms[1], Failing()", "image 0 of a batch of 6"]


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        (
            [FlipX(), FlipX],
            r"transforms\[1\]=<class '.*FlipX'>; expected a TransformLike, .*; FlipX is a class; pass an instance: FlipX\(...\)",
        ),
        (
            [Identity()],
            r"transforms\[0\]=Identity\(\); expected a TransformLike, .*; in a list of transforms, use an empty list, \[\],",
        ),
        ([len], r"transforms\[0\]=<built-in function len>; expected a TransformLike, an object with draw, image, boxes, points, mask"),
    ],
)
def test_what_is_no_transform_is_refused_on_construction(transforms, message):
    with pytest.raises(ConfigError, match=message):
        Augmentations(transforms)


@pytest.mark.parametrize(
    ("item", "fields", "error", "message"),
    [
        ({"image": IMAGES}, {"boxes": "bbox"}, KeyError, "no field 'bbox'; the item has 'image'"),
        ({}, {}, ValueError, "an item without fields has no images"),
        ((LABELS,), {}, ValueError, r"the image field contains an array of shape \(6,\); expected images \(B, H, W, C\)"),
        (("a.jpg",), {}, ValueError, "the image field contains 'a.jpg'; expected images"),
        ((b"\xff\xd8" * 99,), {}, ValueError, r"contains an object of type bytes; .*: put DecodeImage before this stage"),
        (([b"\xff\xd8" * 99],), {}, ValueError, r"an object of type bytes: put DecodeImage before this stage to decode the bytes"),
        ((Image.new("RGB", (3, 3)),), {}, ValueError, r"contains an object of type Image; .*: convert it with np.asarray\(\)"),
        (
            (IMAGES[:, :0],),
            {},
            ValueError,
            r"an image of shape \(0, 30, 3\) has no pixels; expected \(H, W, C\) or \(H, W\)",
        ),
        ((["a.jpg"],), {}, ValueError, r"expected an image, an array \(H, W, C\) or \(H, W\); got 'a.jpg'"),
        ((IMAGES, [[]] * 5), {"boxes": 1}, ValueError, "the batch has 6 images, but boxes has values for 5"),
        (
            (IMAGES, np.zeros((6, 3, 5))),
            {"boxes": 1},
            ValueError,
            r"boxes are numbers, \(N, 4\) for each image; got an array of shape \(3, 5\)",
        ),
        ((IMAGES[0], np.zeros((2, 3))), {"points": 1}, ValueError, r"got an array of shape \(2, 3\)"),
        ((IMAGES[0], [1, 2, 3, 4]), {"boxes": 1}, ValueError, r"boxes are numbers, \(N, 4\) for each image; got \[1, 2, 3, 4\]"),
        (
            (IMAGES[0], [[1, 2], [1]]),
            {"points": 1},
            ValueError,
            r"points are numbers, \(N, 2\) or .*; got \[\[1, 2\], \[1\]\]",
        ),
        ((IMAGES[0], [["a"] * 4]), {"boxes": 1}, ValueError, r"boxes are numbers, \(N, 4\) for each image; got \[\['a', 'a', 'a', 'a'\]\]"),
        (
            (IMAGES[0], [[1, 2, 3, 4], [9, 9, 5, 5]]),
            {"boxes": 1},
            ValueError,
            r"box 1 of the image is \[9.0, 9.0, 5.0, 5.0\]; expected x1, .* with x1 <= x2 .*\(if the boxes are x, y, width, height",
        ),
        ((IMAGES[0], [[1, np.nan, 3, 4]]), {"boxes": 1}, ValueError, r"box 0 of the image is \[1.0, nan, 3.0, 4.0\]; expected x1, y1, x2"),
        ((IMAGES[0], [[1, 2, 3, np.inf]]), {"boxes": 1}, ValueError, r"box 0 of the image is \[1.0, 2.0, 3.0, inf\]; expected"),
        ((IMAGES, 5), {"boxes": 1}, ValueError, "Augmentations: boxes is 5; expected an array or a list"),
        ((IMAGES[0], [[1, 2, 3, 4]], 7), {"boxes": 1, "with_boxes": [2]}, ValueError, "with_boxes 2 is 7; expected an array or a list"),
        (
            (IMAGES, np.zeros((6, 9, 9))),
            {"mask": 1},
            ValueError,
            r"the mask is \(9, 9\), but its image is \(20, "
            r"30, 3\)",
        ),
        (
            (IMAGES[0], IMAGES[0, :, :9, :1]),
            {"mask": 1},
            ValueError,
            r"mask is \(20, 9, 1\), .*; expected \(20, 30\), or \(N, 20, 30\)",
        ),
    ],
)
def test_fields_that_do_not_fit_are_an_error_that_says_what_was_expected(item, fields, error, message):
    with pytest.raises(error, match=message):
        Augmentations([FlipX()], **fields)(item, rng())


def test_grayscale_to_one_channel_changes_the_shape_of_the_batch():
    assert Augmentations([Grayscale(keep_channels=False)])((IMAGES,), rng())[0].shape == (6, 20, 30, 1)


@pytest.mark.parametrize("beside", ["boxes_count", "labels_count", "boxes_offsets"])
def test_counts_beside_fields_of_which_rows_may_be_removed_are_refused(beside):
    item = {"image": IMAGES, "boxes": np.zeros((6, 2, 4), np.float32), "labels": np.zeros((6, 2)), beside: np.full(6, 2)}
    parameters = {"boxes": "boxes", "with_boxes": ["labels"]}
    assert Augmentations([FlipX()], **parameters)(item, rng())[beside] is item[beside]
    with pytest.raises(
        ValueError,
        match=rf"Augmentations: '{beside}' contains the number of rows of .* ragged='list'\), and pad after "
        rf"Augmentations",
    ):
        Augmentations([FlipX()], **parameters, keep="drop")(item, rng())
    with pytest.raises(ValueError, match="'at_count' contains the number of rows"):
        Augmentations([FlipX()], points="at", keep="drop")({"image": IMAGES, "at": np.ones((6, 3, 2)), "at_count": np.full(6, 2)}, rng())


def test_a_list_among_the_transforms_counts_as_one():
    nested, flat = Augmentations([FlipX(1.0), [FlipY(1.0), CenterCrop((10, 10))]]), [FlipX(1.0), FlipY(1.0), CenterCrop((10, 10))]
    assert_array_equal(nested((IMAGES,), rng())[0], Augmentations(flat)((IMAGES,), rng())[0], strict=True)
    from_yaml = Registry().build({"Augmentations": [{"FlipX": 1}, [{"FlipY": 1}, {"CenterCrop": [10, 10]}]]}, Location())
    assert from_yaml.transforms == nested.transforms
    with pytest.raises(ConfigError, match="needs the boxes of an image; set the field of the boxes:"):
        Augmentations([FlipX(), [FlipY(), RandomIoUCrop()]])


SOMETIMES = {"Sometimes": {"p": 0.5, "transforms": ["FlipX", {"OneOf": [["FlipY", {"Rotate": -1}]]}]}}


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        ([SOMETIMES], r"[0].Sometimes.transforms[1].OneOf[0][1].Rotate: expected degrees, at least 0, got int -1"),
        ([{"OneOf": [["FlipY", {"Rotat": 5}]]}], r"[0].OneOf[0][1].Rotat: unknown component 'Rotat'; did you mean Rotate?"),
        (["FlipX", ["FlipY", {"Rotate": {"angel": 5}}]], "[1][1].Rotate.angel: unknown parameter 'angel' of Rotate; did you mean angle?"),
        ([{"HorizontalFlip": 0.5}], "[0].HorizontalFlip: unknown component 'HorizontalFlip'; use highway.transforms.FlipX"),
        ([{"CenterCrop": 224}], "[0].CenterCrop: expected (height, width) in pixels, at least 1, got int 224"),
        ([{"CenterCrop": [224]}], "[0].CenterCrop: expected (height, width) in pixels, at least 1, got a list of 1"),
        ([{"CenterCrop": [224, "x"]}], "[0].CenterCrop[1]: expected int, got str 'x'"),
        (
            [{"ColorJitter": {"contrast": [0.5]}}],
            "[0].ColorJitter.contrast: expected (least, greatest), factors from 0 to 10, got a list of 1",
        ),
    ],
)
def test_an_error_in_a_nested_list_of_a_file_says_where_it_stands(transforms, message):
    with pytest.raises(ConfigError, match=re.escape(f"stages[0].Augmentations{message}")):
        Registry().build({"Augmentations": transforms}, Location(("stages", 0)))


def test_a_batch_may_come_out_as_lists_whose_images_differ_in_size():
    given = {
        "image": [IMAGES[0], IMAGES[1, :15]],
        "boxes": [[[1, 2, 3, 4]], np.zeros((0, 4))],
        "mask": [IMAGES[0, ..., 0], IMAGES[1, :15, :, 0]],
    }
    done = Augmentations([FlipX(1.0)], boxes="boxes", mask="mask", as_list=True)(given, rng())
    for image, mask, expected in zip(done["image"], done["mask"], given["image"], strict=True):
        assert_array_equal(image, expected[:, ::-1], strict=True)
        assert_array_equal(mask, expected[:, ::-1, 0], strict=True)
    assert [boxes.tolist() for boxes in done["boxes"]] == [[[27, 2, 29, 4]], []]
    (images,) = Augmentations([FlipX(1.0)], as_list=True)((IMAGES,), rng())
    assert type(images) is list and len(images) == 6
    assert_array_equal(np.stack(images), IMAGES[:, :, ::-1], strict=True)
    assert Augmentations([FlipX(1.0)], as_list=True)((IMAGES[:0],), rng())[0] == []
    assert_array_equal(Augmentations([FlipX(1.0)], as_list=True)(IMAGES[0], rng()), IMAGES[0, :, ::-1], strict=True)


def detection(count=2, **more):
    boxes = np.float32([[2, 2, 12, 12], [0, 0, 1, 1], [4, 4, 14, 10]])[:count]
    return {"image": np.zeros((16, 16, 3), np.uint8), "boxes": boxes, "labels": np.arange(count, dtype=np.int32), **more}


def in_a_batch(samples):
    return {name: [sample[name] for sample in samples] for name in samples[0]}


SANITIZE = [FlipX(), SanitizeBoxes(4)]


@pytest.mark.parametrize("item", [detection(), in_a_batch([detection(), detection(3)])], ids=["sample", "batch"])
def test_rows_that_would_not_follow_boxes_that_are_removed_are_an_error_that_names_them(item):
    for augment in (Augmentations(SANITIZE, boxes="boxes"), Augmentations([FlipX()], boxes="boxes", keep="drop")):
        with pytest.raises(ValueError, match=r"the number of rows in 'labels' equals the number of boxes; pass with_boxes=\['labels'\]"):
            augment(item, np.random.default_rng(0))
    done = Augmentations(SANITIZE, boxes="boxes", with_boxes=["labels"])(item, np.random.default_rng(0))
    assert np.concatenate(done["labels"] if isinstance(item["image"], list) else [done["labels"]]).tolist() in ([0], [0, 0, 2])
    assert Augmentations(SANITIZE, boxes="boxes", with_boxes=[])(item, np.random.default_rng(0))["labels"] is item["labels"]
    kept = Augmentations([FlipX()], boxes="boxes")(item, np.random.default_rng(0))
    assert kept["labels"] is item["labels"]  # which no row is removed of


def test_the_first_image_that_has_boxes_is_looked_at_for_rows():
    augment = Augmentations(SANITIZE, boxes="boxes")
    assert len(augment(detection(0), np.random.default_rng(0))["labels"]) == 0
    with pytest.raises(ValueError, match=r"the number of rows in .* equals the number of boxes"):
        augment(detection(1), np.random.default_rng(0))


@pytest.mark.parametrize("name", ["boxes", "bbox", "bboxes"])
def test_boxes_that_nobody_named_do_not_stay_where_the_image_is_moved(name):
    item = {"image": np.zeros((16, 16, 3), np.uint8), name: np.float32([[2, 2, 12, 12]])}
    for stage in (Augmentations([FlipX()]), Augmentations([Sometimes(0.5, [Invert(), FlipX()])]), Augmentations([RandAugment()])):
        with pytest.raises(
            ValueError,
            match=rf"the field '{name}'; pass boxes='{name}' so that they are transformed, too; .*Rename\({{'{name}': ",
        ):
            stage(item, np.random.default_rng(0))
    assert Augmentations([Invert(1.0)])(item, np.random.default_rng(0))[name] is item[name]
    renamed = Rename({name: f"original_{name}"})(item)
    assert Augmentations([FlipX()])(renamed, np.random.default_rng(0))[f"original_{name}"] is item[name]


@pytest.mark.parametrize(
    ("name", "value", "parameter"),
    [
        ("gt_boxes", np.float32([[2, 2, 12, 12]]), "boxes"),
        ("bounding_boxes", [[2, 2, 12, 12]], "boxes"),
        ("keypoints", np.zeros((3, 2), np.float32), "points"),
        ("landmarks", [[1, 2], [3, 4]], "points"),
        ("mask", np.zeros((16, 16), np.uint8), "mask"),
        ("segmentation", np.zeros((16, 16), np.int32), "mask"),
    ],
)
def test_points_and_masks_that_nobody_named_do_not_stay_where_the_image_is_moved(name, value, parameter):
    item = {"image": np.zeros((16, 16, 3), np.uint8), name: value}
    with pytest.raises(
        ValueError,
        match=rf"the {parameter} in the field '{name}'; pass {parameter}='{name}' so that they "
        rf"are transformed, too",
    ):
        Augmentations([FlipX()])(item, np.random.default_rng(0))
    assert name in Augmentations([FlipX()], **{parameter: name})(item, np.random.default_rng(0))
    with pytest.raises(ValueError, match=rf"'{name}' in the field 1, a dict; unpack the dict"):
        Augmentations([FlipX()])((item["image"], {name: value}), np.random.default_rng(0))


def stereo(count=None):
    shape = (16, 20, 3) if count is None else (count, 16, 20, 3)
    left, right = np.random.default_rng(5).integers(0, 256, (2, *shape), np.uint8)
    return left, right


COCO = [{"bbox": [2, 2, 4, 4], "category_id": 3}, {"bbox": [1, 1, 2, 2], "category_id": 1}]


@pytest.mark.parametrize(
    ("item", "place"),
    [
        ({"image": stereo()[0], "annotations": COCO}, r"\[0\]\['bbox'\] in the field 'annotations', a list"),
        ({"image": stereo()[0], "objects": {"all": COCO}}, r"'all'\[0\]\['bbox'\] in the field 'objects', a dict"),
        ((stereo()[0], COCO), r"\[0\]\['bbox'\] in the field 1, a list"),
        ((stereo(2)[0], [[], COCO]), r"\[1\]\[0\]\['bbox'\] in the field 1, a list"),
        ((stereo()[0], [{"keypoints": [[1, 2]]}]), r"\[0\]\['keypoints'\] in the field 1"),
    ],
)
def test_boxes_in_lists_of_dicts_do_not_stay_where_the_image_is_moved(item, place):
    with pytest.raises(ValueError, match=rf"{place}.*; add a map before this stage that returns"):
        Augmentations([FlipX()])(item, np.random.default_rng(0))


def test_the_first_image_with_annotations_is_looked_at():
    augment, image = Augmentations([FlipX()]), stereo()[0]
    assert augment((image, []), np.random.default_rng(0))[1] == []
    with pytest.raises(ValueError, match="x1, y1, x2, y2 in pixels per box"):
        augment((image, COCO), np.random.default_rng(0))


def test_annotations_may_stay_if_their_field_says_so():
    item = {"image": stereo()[0], "original_annotations": COCO, "classes": [{"names": ["cat"]}]}
    assert Augmentations([FlipX()])(item, np.random.default_rng(0))["original_annotations"] is COCO


def test_labels_in_a_dict_that_would_not_follow_boxes_that_are_removed_are_an_error():
    item = {"image": stereo()[0], "boxes": np.float32([[2, 2, 12, 12], [1, 1, 1, 1]]), "target": {"labels": [3, 4]}}
    with pytest.raises(ValueError, match=r"the number of rows in 'labels' in 'target' equals the number of boxes; .*with_boxes"):
        Augmentations(SANITIZE, boxes="boxes")(item, np.random.default_rng(0))
    assert Augmentations(SANITIZE, boxes="boxes", with_boxes=[])(item, np.random.default_rng(0))["target"] is item["target"]


@pytest.mark.parametrize(("name", "value"), [("mask", np.ones(7, np.bool_)), ("points", 3), ("box", "cardboard"), ("joints", np.arange(5))])
def test_what_is_called_as_a_mask_or_points_but_is_none_may_stay(name, value):
    item = {"image": np.zeros((16, 16, 3), np.uint8), name: value}
    assert Augmentations([FlipX()])(item, np.random.default_rng(0))[name] is value


@pytest.mark.parametrize("count", [None, 3], ids=["sample", "batch"])
def test_several_images_masks_and_points_share_one_draw(count):
    left, right = stereo(count)
    masks, points = right[..., :1].copy(), np.full((*left.shape[:-3], 4, 2), 3.0, np.float32)
    augment = Augmentations([FlipX(), CenterCrop((8, 10)), Brightness(0.5)], field=[0, 1], mask=[2, 3], points=[4, 5])
    for seed in range(4):
        one, two, grey, channels, first, second = augment((left, left, left[..., 0], left, points, points), np.random.default_rng(seed))
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(channels[..., 0], grey)
        both = augment((left, right, masks[..., 0], masks, points, points), np.random.default_rng(seed))
        alone = Augmentations(augment.transforms, field=0)((right, 0), np.random.default_rng(seed))
        np.testing.assert_array_equal(both[1], alone[0], strict=True)
        assert both[0].shape == both[1].shape and both[3].shape == (*both[2].shape, 1)


def test_images_that_share_a_draw_have_one_size():
    with pytest.raises(
        ValueError,
        match=r"image 1 is \(9, 20, 3\), but the first image \(16, 20, 3\); "
        r"expected equal height and width",
    ):
        Augmentations([FlipX()], field=[0, 1])((stereo()[0], stereo()[1][:9]), np.random.default_rng(0))


def test_a_tuple_of_several_images_is_not_changed_in_its_first_alone_unless_that_is_meant():
    for item in (stereo(), stereo(2)):
        with pytest.raises(
            ValueError, match=r"the fields \[0, 1\] contain images of shape.*pass field=0 to confirm.*or field=\[0, 1\] to transform all"
        ):
            Augmentations([FlipX(1.0)])(item, np.random.default_rng(0))
        assert Augmentations([FlipX(1.0)], field=0)(item, np.random.default_rng(0))[1] is item[1]
        changed = Augmentations([FlipX(1.0)], field=[0, 1])(item, np.random.default_rng(0))
        np.testing.assert_array_equal(changed[1], item[1][..., ::-1, :])
