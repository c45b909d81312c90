import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from highway import functional as F
from highway.errors import ConfigError
from highway.modules import CutMix, MixUp

RNG = np.random.default_rng(0)
IMAGES = {
    "uint8": RNG.integers(0, 256, (5, 12, 17, 3), dtype=np.uint8),
    "float32": RNG.normal(size=(5, 12, 17, 3)).astype(np.float32),
    "float64": RNG.normal(size=(5, 12, 17, 1)),
    "float16": RNG.normal(size=(5, 12, 17, 3)).astype(np.float16),
}
LABELS = np.array([3, 0, 1, 1, 2], np.int32)
ONE_HOT = np.eye(4, dtype=np.float32)[LABELS]
for array in (*IMAGES.values(), LABELS):
    array.flags.writeable = False

BOTH = [MixUp, CutMix]


def rng(seed=0):
    return np.random.default_rng(seed)


def mixed(images, shares, partners):
    """Return the formula's result in float64."""
    own = shares.reshape(-1, *[1] * (images.ndim - 1))
    return images * own + images[partners].astype(np.float64) * (1 - own)


def drawn_for_batch(seed):
    generator = rng(seed)
    generator.random(1)
    return generator.beta(1.0, 1.0, 1), generator


def drawn_per_image(seed, count):
    generator = rng(seed)
    generator.random(count)
    shares = generator.beta(1.0, 1.0, count)
    return shares, (np.arange(count) + generator.integers(1, count, count)) % count, generator


def as_of(dtype, values):
    return np.rint(values) if dtype == "uint8" else values


@pytest.mark.parametrize("dtype", IMAGES)
def test_mixup_is_the_weighted_mean_with_the_image_before(dtype):
    images = IMAGES[dtype]
    done, labels = MixUp(4)((images, LABELS), rng(3))
    share, _ = drawn_for_batch(3)
    partners = [4, 0, 1, 2, 3]
    expected = as_of(dtype, mixed(images, np.repeat(share, 5), partners))
    assert done.dtype == images.dtype and done.shape == images.shape
    assert_allclose(done.astype(np.float64), expected, atol={"uint8": 1, "float16": 2e-3}.get(dtype, 1e-6))
    assert (labels.dtype, labels.shape) == (np.float32, (5, 4))
    assert_allclose(labels, mixed(ONE_HOT, np.repeat(share, 5), partners), atol=1e-6)


@pytest.mark.parametrize("dtype", IMAGES)
def test_mixup_per_image_has_a_share_and_a_partner_for_each(dtype):
    images = IMAGES[dtype]
    done, labels = MixUp(4, per_image=True)((images, LABELS), rng(3))
    shares, partners, _ = drawn_per_image(3, 5)
    assert len(set(shares.tolist())) == 5 and (partners != np.arange(5)).all()
    expected = as_of(dtype, mixed(images, shares, partners))
    assert_allclose(done.astype(np.float64), expected, atol={"uint8": 1, "float16": 2e-3}.get(dtype, 1e-6))
    assert_allclose(labels, mixed(ONE_HOT, shares, partners), atol=1e-6)


def cut(share, centre, size):
    """Return rows and columns of a box, and the share that is left, by the formula of the paper."""
    sides = [
        (max(at - int(0.5 * np.sqrt(1 - share) * side), 0), min(at + int(0.5 * np.sqrt(1 - share) * side), side))
        for at, side in zip(centre, size)
    ]
    (top, bottom), (left, right) = sides
    return slice(top, bottom), slice(left, right), 1 - (bottom - top) * (right - left) / (size[0] * size[1])


@pytest.mark.parametrize("dtype", IMAGES)
@pytest.mark.parametrize("per_image", [False, True])
def test_cutmix_takes_a_box_of_the_partner_and_labels_by_its_area(dtype, per_image):
    images = IMAGES[dtype]
    done, labels = CutMix(4, per_image=per_image)((images, LABELS), rng(1))
    if per_image:
        shares, partners, generator = drawn_per_image(1, 5)
    else:
        shares, generator = drawn_for_batch(1)
        partners = np.roll(np.arange(5), 1)
    centres = generator.integers([12, 17], size=(len(shares), 2))
    expected, soft = images.copy(), ONE_HOT.copy()
    for row, partner in enumerate(partners):
        draw = row if per_image else 0
        rows, columns, left = cut(shares[draw], centres[draw], (12, 17))
        expected[row, rows, columns] = images[partner, rows, columns]
        soft[row] = left * ONE_HOT[row] + (1 - left) * ONE_HOT[partner]
    assert_array_equal(done, expected, strict=True)
    assert_allclose(labels, soft, atol=1e-6)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("per_image", [False, True])
def test_labels_sum_to_one_and_nothing_is_written_into_the_input(kind, per_image):
    for seed in range(30):
        images, labels = kind(4, alpha=0.3, per_image=per_image)((IMAGES["uint8"], LABELS), rng(seed))
        assert_allclose(labels.sum(axis=1), 1, atol=1e-6)
        assert not np.shares_memory(images, IMAGES["uint8"])


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("per_image", [False, True])
def test_with_p_0_images_stay_and_labels_become_one_hot(kind, per_image):
    images, labels = kind(4, p=0.0, per_image=per_image)((IMAGES["float32"], LABELS), rng())
    assert_array_equal(images, IMAGES["float32"], strict=True)
    assert_array_equal(labels, ONE_HOT, strict=True)


def test_p_is_of_the_batch_or_of_each_image():
    changed = [
        [
            (MixUp(4, p=0.5, per_image=per)((IMAGES["float32"], LABELS), rng(seed))[0] != IMAGES["float32"]).any(axis=(1, 2, 3))
            for seed in range(40)
        ]
        for per in (False, True)
    ]
    assert {int(rows.sum()) for rows in changed[0]} == {0, 5}
    assert 70 < sum(int(rows.sum()) for rows in changed[1]) < 130 and any(0 < rows.sum() < 5 for rows in changed[1])


@pytest.mark.parametrize("labels", [ONE_HOT, ONE_HOT.astype(np.int64), ONE_HOT > 0, ONE_HOT.tolist()], ids=["float", "int", "bool", "list"])
def test_labels_that_are_shares_of_classes_need_no_num_classes(labels):
    expected = MixUp(4)((IMAGES["uint8"], LABELS), rng(2))[1]
    assert_array_equal(MixUp()((IMAGES["uint8"], labels), rng(2))[1], expected, strict=True)


@pytest.mark.parametrize("kind", BOTH)
def test_fields_are_found_by_name_and_by_position(kind):
    images = IMAGES["uint8"]
    first, second = kind(4)((images, LABELS), rng())
    for item, where, mix in [
        ({"images": images, "label": LABELS, "id": [1, 2, 3, 4, 5]}, ("images", "label"), kind(4)),
        ({"x": images, "y": LABELS}, ("x", "y"), kind(4, field="x", labels="y")),
        ((LABELS, images), (1, 0), kind(4, field=1)),
        ((1, LABELS, images), (2, 1), kind(4, field=-1, labels=-2)),
        ([list(images), LABELS.tolist()], (0, 1), kind(4)),
    ]:
        done = mix(item, rng())
        assert type(done) is type(item)
        assert_array_equal(done[where[0]], first, strict=True)
        assert_array_equal(done[where[1]], second, strict=True)


IMAGE = IMAGES["uint8"]
WRONG = [
    ((IMAGE[:1], LABELS[:1]), {}, "the batch has only one image, but needs at least two; use drop_last=True"),
    ((IMAGE[0], 3), {}, r"one image, \(12, 17, 3\); .* put it after Batch"),
    (([IMAGE[0], IMAGE[1, 1:]], LABELS[:2]), {}, r"\(11, 17, 3\) uint8 and \(12, 17, 3\) uint8; make their shapes"),
    ((IMAGE, LABELS[:4]), {}, "5 images, but labels for 4"),
    ((IMAGE, LABELS), {"num_classes": 3}, "label 3 of image 0 is out of range; with num_classes=3 labels are 0 to 2"),
    ((IMAGE, LABELS - 1), {"num_classes": 4}, "label -1 of image 1 is out of range"),
    ((IMAGE, LABELS), {"num_classes": None}, "pass the number of classes as num_classes="),
    ((IMAGE, ONE_HOT), {"num_classes": 5}, r"labels have the shape \(5, 4\), so there are 4 classes, but num_classes=5"),
    ((IMAGE, LABELS.astype(np.float32)), {}, r"labels are an array of shape \(5,\) float32; expected whole numbers"),
    ((IMAGE.transpose(0, 3, 1, 2), LABELS), {}, "seems to have its channels first"),
    ((IMAGE[:, :0], LABELS), {}, "has no pixels"),
    (([b"jpeg"] * 5, LABELS), {}, "object of type bytes: put DecodeImage before"),
    (({"image": IMAGE, "label": LABELS, "boxes": []}), {}, "cannot mix 'boxes'"),
]


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(("item", "parameters", "words"), WRONG, ids=[words[:30] for *_, words in WRONG])
def test_what_cannot_be_mixed_is_said(kind, item, parameters, words):
    with pytest.raises(ValueError, match=f"^{kind.__name__}.*{words}"):
        kind(**{"num_classes": 4, **parameters})(item, rng())


def test_an_unknown_label_field_and_images_of_other_types_are_said():
    with pytest.raises(KeyError, match=r"which field contains the labels.*'image', 'y'; pass labels="):
        MixUp(4)({"image": IMAGE, "y": LABELS}, rng())
    with pytest.raises(TypeError, match="blend: the images are int32"):
        MixUp(4)((IMAGE.astype(np.int32), LABELS), rng())
    for wrong in ({"alpha": 0.0}, {"p": 1.5}, {"num_classes": 0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            MixUp(**wrong)


@pytest.mark.parametrize("kind", BOTH)
def test_an_empty_batch_has_empty_labels(kind):
    images, labels = kind(4)((IMAGE[:0], LABELS[:0]), rng())
    assert images.shape == (0, 12, 17, 3) and (labels.shape, labels.dtype) == ((0, 4), np.float32)


def test_blend_fills_out_and_a_share_of_1_is_a_copy():
    image, other = IMAGES["float32"][:2]
    out = np.empty_like(image)
    assert F.blend(image, other, 0.25, out) is out
    assert_allclose(out, image * 0.25 + other * 0.75, atol=1e-6)
    nothing = np.full_like(other, np.nan)
    assert_array_equal(F.blend(image, nothing, 1.0), image, strict=True)
    with pytest.raises(ValueError, match=r"blend: the images are \(12, 17, 3\) float32 and \(11, 17, 3\) float32"):
        F.blend(image, other[1:], 0.5)
