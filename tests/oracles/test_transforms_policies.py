"""Policies against torchvision's: the same changes of the same magnitudes, its magnitudes at each level, its table of pairs.

Run by ``tox -e oracles-transforms``.
"""

import numpy as np
import pytest
from transform_oracles import BOXES, HEIGHT, IMAGE, MASK, POINTS, WIDTH, assert_alike, by_torchvision, torch, tv_tensors, v2

from highway.modules import Augmentations
from highway.transforms import AugMix, AutoAugment, RandAugment, TrivialAugmentWide, policies

SIZE = (HEIGHT, WIDTH)
NEAREST, BILINEAR = v2.InterpolationMode.NEAREST, v2.InterpolationMode.BILINEAR
POLICIES = {
    "rand": (v2.RandAugment(), policies.RAND, 31),
    "trivial": (v2.TrivialAugmentWide(), policies.TRIVIAL, 31),
    "auto": (v2.AutoAugment(), {kind: policies.AUTO[kind] for kind in policies.AUTO if kind != "Identity"}, 10),
    "mix": (v2.AugMix(), {kind: policies.MIX[kind] for kind in policies.MIX if kind != "Identity"}, 10),
}
# How far a change may be from torchvision's, in levels: it cuts off where Pillow and highway round, and mixes before it cuts off.
LEVELS = {"Brightness": 1, "Contrast": 2, "Color": 2, "Sharpness": 2, "AutoContrast": 1, "Solarize": 0}


def changed_by_torchvision(image, kind, magnitude, interpolation=NEAREST, fill=None):
    policy = v2.RandAugment(interpolation=interpolation, fill=fill)
    return by_torchvision(lambda given: policy._apply_image_or_video_transform(given, kind, magnitude, interpolation, policy._fill), image)


@pytest.mark.parametrize("name", POLICIES)
def test_magnitudes_are_torchvisions_at_every_level(name):
    theirs, ours, bins = POLICIES[name]
    space = {**theirs._AUGMENTATION_SPACE, **({} if name != "mix" else theirs._PARTIAL_AUGMENTATION_SPACE)}
    assert set(space) == set(ours)
    for kind, (magnitudes, signed) in space.items():
        expected = magnitudes(bins, HEIGHT, WIDTH)
        if ours[kind] is None:
            assert expected is None
            continue
        expected = expected.numpy()
        assert ours[kind].signed == signed
        side = HEIGHT if kind == "TranslateY" else WIDTH
        found = [ours[kind].at(level / (bins - 1), side) for level in range(bins)]
        expected = np.trunc(expected) if kind.startswith("Translate") else expected  # they are cut off when they are applied
        if name == "trivial" and kind.startswith("Translate"):
            assert np.abs(np.subtract(found, expected)).max() <= 1, "highway rounds to whole pixels"
        else:
            np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("name", ["imagenet", "cifar10", "svhn"])
def test_the_pairs_of_auto_augment_are_torchvisions(name):
    theirs = v2.AutoAugment(v2.AutoAugmentPolicy(name))._policies
    assert [tuple(map(tuple, pair)) for pair in theirs] == [tuple(map(tuple, pair)) for pair in policies.SUB_POLICIES[name]]


@pytest.mark.parametrize("interpolation", [NEAREST, BILINEAR])
@pytest.mark.parametrize("name", POLICIES)
def test_every_change_is_torchvisions(name, interpolation):
    _, space, _ = POLICIES[name]
    operations = policies.operations_of(interpolation.value, 0.0)
    for kind, magnitudes in space.items():
        side = HEIGHT if kind == "TranslateY" else WIDTH
        levels = [0.0] if magnitudes is None else [magnitudes.at(level, side) for level in (0, 0.3, 0.7, 1)]
        for magnitude in [*levels, *(-level for level in levels if magnitudes is not None and magnitudes.signed)]:
            found = operations[kind].image(IMAGE, magnitude)
            expected = changed_by_torchvision(IMAGE, kind, magnitude, interpolation)
            if kind in ("Rotate", "ShearX", "ShearY"):
                there = changed_by_torchvision(np.full_like(IMAGE, 255), kind, magnitude, interpolation) == 255
                exact = interpolation == NEAREST
                assert_alike(np.where(there, found, 0), np.where(there, expected, 0), 0 if exact else 5, 0.004)
                assert_alike(found == 0, expected == 0, 0, 0.03)
            else:
                assert_alike(found, expected, LEVELS.get(kind, 0))


@pytest.mark.parametrize("policy", [RandAugment(magnitude=20), TrivialAugmentWide(), AutoAugment("svhn")], ids=str)
def test_a_whole_policy_does_to_the_image_and_the_mask_what_torchvision_does_with_the_same_draws(policy):
    for seed in range(40):
        steps = policy.draw(SIZE, np.random.default_rng(seed))
        image, mask = IMAGE, MASK
        for step in steps:
            image = changed_by_torchvision(image, step.transform.kind, step.params)
            if step.transform.kind in policies.MOVES:
                mask = changed_by_torchvision(mask, step.transform.kind, step.params)
        found = policy.image(IMAGE, steps)
        assert_alike(policy.mask(MASK, steps), mask, 0, 0.01)
        assert np.abs(found.astype(int) - image).mean() < 2.5, [(step.transform.kind, step.params) for step in steps]


def test_boxes_and_points_go_where_the_pixels_go_which_torchvision_refuses():
    with pytest.raises(TypeError, match="are not supported by RandAugment"):
        v2.RandAugment()(tv_tensors.BoundingBoxes(torch.from_numpy(BOXES), format="XYXY", canvas_size=SIZE))
    augment = Augmentations([RandAugment(magnitude=20)], boxes="boxes", points="points")
    for seed in range(20):
        done = augment({"image": IMAGE, "boxes": BOXES, "points": POINTS}, np.random.default_rng(seed))
        assert done["boxes"].shape == BOXES.shape and done["points"].shape == POINTS.shape


def test_augmix_mixes_as_torchvision_would_with_the_same_parts():
    mixer = AugMix(severity=6, interpolation="bilinear")
    for seed in range(15):
        params = mixer.draw(SIZE, np.random.default_rng(seed))
        total = IMAGE * params.own
        for part, chain in zip(params.parts, params.chains, strict=True):
            changed = IMAGE
            for step in chain:
                changed = changed_by_torchvision(changed, step.transform.kind, step.params, BILINEAR)
            total = total + part * changed
        assert np.abs(mixer.image(IMAGE, params) - total).mean() < 1.5
