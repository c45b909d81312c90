"""MixUp and CutMix of a batch as torchvision's; run by `tox -e oracles`."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from highway.modules import CutMix, MixUp

torch = pytest.importorskip("torch", reason="runs by `tox -e oracles`")

IMAGES = np.random.default_rng(0).random((5, 12, 17, 3), np.float32)
LABELS = np.array([3, 0, 1, 1, 2])


@pytest.fixture(scope="module")
def theirs(torchvision):
    v2 = pytest.importorskip("torchvision.transforms.v2", reason="runs by `tox -e oracles`")
    images, labels = torch.from_numpy(IMAGES).permute(0, 3, 1, 2), torch.from_numpy(LABELS)

    def mixed(kind, **params):
        mix = getattr(v2, kind)(num_classes=4)
        done = [mix.transform(given, {"labels": labels, "batch_size": 5, **params}) for given in (images.contiguous(), labels)]
        return done[0].permute(0, 2, 3, 1).numpy(), done[1].numpy()

    return mixed


@pytest.mark.parametrize("seed", range(5))
def test_mixup_is_that_of_torchvision_for_the_share_that_was_drawn(theirs, seed):
    images, labels = MixUp(4)((IMAGES, LABELS), np.random.default_rng(seed))
    expected, soft = theirs("MixUp", lam=float(labels[0, 3]))
    assert_allclose(images, expected, atol=1e-6)
    assert_allclose(labels, soft, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_cutmix_is_that_of_torchvision_for_the_box_that_was_drawn(theirs, seed):
    images, labels = CutMix(4)((IMAGES, LABELS), np.random.default_rng(seed))
    rows, columns = np.nonzero((images != IMAGES).any(axis=(0, 3)))
    box = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) if len(rows) else (0, 0, 0, 0)
    left = 1 - (box[2] - box[0]) * (box[3] - box[1]) / (12 * 17)
    expected, soft = theirs("CutMix", box=tuple(map(int, box)), lam_adjusted=left)
    assert_array_equal(images, expected)
    assert_allclose(labels, soft, atol=1e-6)
