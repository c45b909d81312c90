"""Policies: which changes are made, and how much; what belongs to the image follows."""

from collections import Counter

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from highway.modules import Augmentations
from highway.transforms import AugMix, AutoAugment, RandAugment, TrivialAugmentWide

SIZE = (120, 160)


def draws(policy, seeds=3000):
    return [policy.draw(SIZE, np.random.default_rng(seed)) for seed in range(seeds)]


def changes(policy, seeds=3000):
    """Return every change that was drawn, as its kind and magnitude."""
    return [(step.transform.kind, step.params) for steps in draws(policy, seeds) for step in steps]


def magnitudes(policy):
    found = {}
    for kind, much in changes(policy):
        found.setdefault(kind, set()).add(round(much, 6))
    return found


def test_rand_augment_makes_so_many_changes_of_14_each_alike_and_either_way():
    counted = Counter(kind for kind, _ in changes(RandAugment(num_ops=2)))
    assert len(counted) == 14
    assert max(counted.values()) < 1.25 * min(counted.values())
    assert magnitudes(RandAugment(magnitude=9)) == {  # level 9 of 30
        "Identity": {0},
        "ShearX": {-0.09, 0.09},
        "ShearY": {-0.09, 0.09},
        "TranslateX": {-21, 21},  # 0.3 of 150 / 331 of 160 pixels
        "TranslateY": {-16, 16},
        "Rotate": {-9, 9},
        "Brightness": {-0.27, 0.27},
        "Color": {-0.27, 0.27},
        "Contrast": {-0.27, 0.27},
        "Sharpness": {-0.27, 0.27},
        "Posterize": {7},  # 8 - 1.2
        "Solarize": {0.7},
        "AutoContrast": {0},
        "Equalize": {0},
    }


def test_trivial_augment_makes_one_change_of_any_level():
    assert {len(steps) for steps in draws(TrivialAugmentWide(), 50)} == {1}
    found = magnitudes(TrivialAugmentWide(num_magnitude_bins=3))
    assert found["Rotate"] == {-135, -67.5, 0, 67.5, 135}
    assert found["TranslateX"] == {-32, -16, 0, 16, 32}
    assert found["Posterize"] == {8, 5, 2}
    assert found["Solarize"] == {1, 0.5, 0}


def test_auto_augment_makes_the_pairs_of_its_table_with_their_probabilities():
    found = Counter(tuple(step.transform.kind for step in steps) for steps in draws(AutoAugment("imagenet"), 5000))
    # 2 of 25 pairs are Equalize with 0.8, Equalize with 0.6; one Equalize with 0 and 0.8
    assert found["Equalize", "Equalize"] / 5000 == pytest.approx(2 / 25 * 0.48, abs=0.01)
    assert found["Invert", "Equalize"] / 5000 == pytest.approx(2 / 25 * 0.6, abs=0.012)
    assert "TranslateX" in magnitudes(AutoAugment("cifar10"))
    assert magnitudes(AutoAugment("svhn"))["ShearX"] >= {round(0.3 * 4 / 9, 6)}


@pytest.mark.parametrize("policy", [RandAugment(magnitude=15), TrivialAugmentWide(), AutoAugment("svhn")], ids=str)
def test_boxes_points_and_mask_follow(policy):
    image = np.full((*SIZE, 3), 40, np.uint8)
    image[40:80, 60:110] = 210
    given = {"image": image, "boxes": np.float32([[60, 40, 110, 80]]), "points": np.float32([[85, 60]]), "mask": (image[..., 0] > 100) * 1}
    augment = Augmentations([policy], boxes="boxes", points="points", mask="mask")
    moved = 0
    for seed in range(150):
        done = augment(given, np.random.default_rng(seed))
        assert done["image"].dtype == np.uint8
        rows, columns = np.nonzero(done["mask"])
        if not len(rows):
            assert_array_equal(done["boxes"], np.zeros((1, 4)))
            continue
        found = np.float32([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
        assert (done["boxes"][0, :2] <= found[:2] + 1.5).all()
        assert (done["boxes"][0, 2:] >= found[2:] - 1.5).all()
        inside = (done["points"][0] > 1).all() and (done["points"][0] < (158, 118)).all()
        if inside:
            x, y = done["points"][0].astype(int)
            assert done["mask"][y, x] == 1
        moved += not np.array_equal(done["boxes"], given["boxes"])
    assert moved > 25


def test_augmix_is_a_mix_of_the_image_and_of_changed_ones(backend):
    rng = np.random.default_rng(1)
    image = rng.integers(0, 256, (*SIZE, 3), np.uint8)
    mixer = AugMix(severity=8)
    for seed in range(20):
        params = mixer.draw(SIZE, np.random.default_rng(seed))
        assert_allclose(params.own + sum(params.parts), 1)
        assert {len(chain) for chain in params.chains} <= {1, 2, 3}
        total = image * params.own
        for part, chain in zip(params.parts, params.chains):
            changed = image
            for step in chain:
                changed = step.transform.image(changed, step.params)
            total = total + part * changed.astype(np.float64)
        assert np.abs(mixer.image(image, params) - total).max() <= 2


def test_augmix_may_leave_out_what_moves_pixels_and_what_enhances():
    kinds = [
        {step.transform.kind for seed in range(200) for chain in mixer.draw(SIZE, np.random.default_rng(seed)).chains for step in chain}
        for mixer in (AugMix(), AugMix(geometric=False), AugMix(all_ops=False))
    ]
    assert kinds[0] - kinds[1] == {"ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"}
    assert kinds[0] - kinds[2] == {"Brightness", "Color", "Contrast", "Sharpness"}
    assert len(kinds[0]) == 13
