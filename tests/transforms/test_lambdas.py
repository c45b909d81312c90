import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from transform_instances import shaded

from highway import Pipeline
from highway.errors import ConfigError
from highway.modules import Augmentations
from highway.transforms import Chain, FlipX, Lambda

IMAGE = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
IMAGE.flags.writeable = False
BOXES = np.float32([[1, 2, 10, 12]])


def inverted(image):
    return 255 - image


def noisy(image, rng):
    return image if rng is None else image ^ rng.integers(0, 256, image.shape, dtype=np.uint8)


def test_a_function_changes_the_image_among_other_transforms_and_what_belongs_to_it_goes_along():
    augment = Augmentations([Lambda(inverted), FlipX(1.0)], boxes="boxes", mask="mask")
    done = augment({"image": IMAGE, "boxes": BOXES, "mask": IMAGE[..., 0]}, np.random.default_rng(0))
    assert_array_equal(done["image"], 255 - IMAGE[:, ::-1])
    assert_array_equal(done["mask"], IMAGE[:, ::-1, 0])
    assert_array_equal(done["boxes"], [[20, 2, 29, 12]])


def test_a_function_that_takes_rng_draws_for_each_image_and_the_same_parameters_give_the_same_image():
    images = np.stack([IMAGE] * 4)
    (done,) = Augmentations([Lambda(noisy)])((images,), np.random.default_rng(1))
    (again,) = Augmentations([Lambda(noisy)])((images,), np.random.default_rng(1))
    assert_array_equal(done, again)
    assert len({image.tobytes() for image in done}) == 4
    chain = Chain([Lambda(noisy), Lambda(noisy)])
    params = chain.draw(IMAGE.shape[:2], np.random.default_rng(2))
    assert_array_equal(chain.image(IMAGE, params), chain.image(IMAGE, params))
    assert not np.array_equal(chain.image(IMAGE, params), IMAGE)  # the second has a draw of its own


def test_without_chance_a_function_gets_no_generator():
    assert Lambda(noisy)(IMAGE) is IMAGE
    (images,) = Augmentations([Lambda(noisy)], deterministic=True)((IMAGE[None],), np.random.default_rng(0))
    assert_array_equal(images, IMAGE[None])


def test_what_a_function_must_not_return_is_said():
    with pytest.raises(
        ValueError,
        match=r"returned an image of shape .30, 20, 3. for an image of shape .20, 30, 3.; the function must "
        r"keep height and width.*derive a transform from Geometric",
    ):
        Lambda(lambda image: image.swapaxes(0, 1))(IMAGE)
    with pytest.raises(TypeError, match="returned NoneType; expected an image"):
        Lambda(lambda image: None)(IMAGE)
    with pytest.raises(TypeError, match=r"returned an array of shape \(\); expected an image"):
        Lambda(lambda image: np.array(image.mean()))(IMAGE)
    with pytest.raises(ConfigError, match="Lambda: fn=3; expected a function"):
        Lambda(3)
    with pytest.raises(ConfigError, match=r"TransformLike; wrap a function: Lambda\(function\)"):
        Augmentations([inverted])


def test_it_is_pickled_with_its_function_and_named_in_a_file(tmp_path):
    assert pickle.loads(pickle.dumps(Lambda(shaded))) == Lambda(shaded)
    (tmp_path / "t.yaml").write_text(
        "roles:\n  r:\n    stages:\n"
        "      - ImageFileReader: {data_dir: 'highway:photos/val', batch_size: 4, shape: [8, 8], epochs: 1}\n"
        "      - Augmentations: [{Lambda: 'transform_instances:shaded'}]\n"
    )
    with Pipeline.from_yaml(str(tmp_path / "t.yaml"), "r", plugins=["transform_instances"]) as pipeline:
        images, _ = next(iter(pipeline))
    assert images.shape == (4, 8, 8, 3)
