"""Transforms of Albumentations and of torchvision as stages: what belongs to an image follows, and the bits are the same wherever they run.

Run by ``tox -e oracles-transforms``.
"""

import copy
import inspect
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from transform_oracles import A, torch, tv_tensors, v2
from without_operators import WithoutOperators

import highway.transforms as T
from highway import Pipeline, Stage
from highway.errors import ConfigError
from highway.modules import Albumentations, Augmentations, Processes, Reader, TorchvisionV2, ZMQSink, ZMQSource
from highway.modules.other_transforms.albumentations import NumpyRandom

# of CoarseDropout, by boxes that are smaller than a pixel
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in divide")
FIELDS = {"boxes": "boxes", "points": "points", "mask": "masks", "with_boxes": ["labels", "masks"]}
HEIGHT, WIDTH = 48, 64


def sample(number=0):
    rng = np.random.default_rng(number)
    low = rng.integers(0, 30, (4, 2))
    boxes = np.hstack([low, low + rng.integers(4, 18, (4, 2))]).astype(np.float32)
    boxes[3] *= number % 2  # padding
    down, right = np.mgrid[:HEIGHT, :WIDTH]
    x1, y1, x2, y2 = (boxes[:, side, None, None] for side in range(4))
    made = {
        "image": rng.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8),
        "boxes": boxes,
        "labels": np.arange(4, dtype=np.int32) + 10 * number,
        "points": (rng.random((5, 2), np.float32) * [WIDTH, HEIGHT]).astype(np.float32),
        "masks": ((x1 <= right) & (right < x2) & (y1 <= down) & (down < y2)).astype(np.uint8),
    }
    for value in made.values():
        value.flags.writeable = False
    return made


def with_boxes_only(made):
    return {name: made[name] for name in ("image", "boxes", "labels")}


SAMPLES = [sample(number) for number in range(8)]
STAGES = {
    "Albumentations": Albumentations(
        [
            A.RandomResizedCrop((32, 40), scale=(0.4, 1.0)),
            A.OneOf([A.HorizontalFlip(p=1), A.VerticalFlip(p=1)]),
            A.SomeOf([A.GaussNoise(p=1), A.RandomBrightnessContrast(p=1), A.Affine(rotate=(-20, 20), p=1)], n=2),
            A.CoarseDropout(fill="random"),
        ],
        **FIELDS,
        min_visibility=0.1,
    ),
    "TorchvisionV2": TorchvisionV2(
        [
            v2.RandomResizedCrop((32, 40), scale=(0.4, 1.0)),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
            v2.RandomAffine(20),
            v2.SanitizeBoundingBoxes(),
        ],
        **FIELDS,
    ),
}


def values(item):
    """Return what tells items apart to the bit."""
    return {name: (value.dtype.str, value.shape, value.tobytes()) for name, value in item.items()}


@pytest.mark.parametrize("name", STAGES)
def test_the_same_bits_come_of_any_number_of_workers_in_processes_and_behind_a_link(name, ipc):
    before, stage = [values(item) for item in SAMPLES], STAGES[name]

    def pipeline(source, *stages):
        return Pipeline([source, *stages], seed=7)

    def run(source, *stages):
        with pipeline(source, *stages) as running:
            return [values(item) for item in running]

    alone = run(SAMPLES, Stage(stage, name="there"))
    assert run(SAMPLES, Stage(stage, name="there", num_workers=4)) == alone != before
    assert run(SAMPLES, Processes([WithoutOperators(), Stage(stage, name="there")], 1)) == alone
    place = ipc()
    sender = Pipeline([SAMPLES, ZMQSink(f"ipc://{place}")])
    with (
        pipeline(ZMQSource(f"ipc://{place}"), Stage(stage, name="there", num_workers=2)) as receiver,
        ThreadPoolExecutor(1) as pool,
    ):
        sent = pool.submit(sender.run)
        sent.add_done_callback(lambda done: done.exception() and receiver.stop())  # so that it waits for nobody
        behind = [values(item) for item in receiver]
        sent.result()
    assert behind == alone
    assert [values(item) for item in SAMPLES] == before  # nothing is written into what comes in
    same = run([SAMPLES[0]] * 2, Stage(stage, name="there"))
    assert same[0] == alone[0] != same[1]


@pytest.mark.parametrize("name", STAGES)
def test_each_epoch_has_draws_of_its_own_and_a_run_goes_on_in_the_middle_of_one(name):
    def pipeline():
        return Pipeline([Reader(SAMPLES, shuffle=False, epochs=3), Stage(STAGES[name], num_workers=2)], seed=1)

    with pipeline() as whole:
        epochs = [[values(item) for item in whole] for _ in range(3)]
    images = {item["image"] for epoch in epochs for item in epoch}
    assert len(images) == 3 * len(SAMPLES)
    with pipeline() as begun:
        assert [values(item) for item in begun] == epochs[0]
        items = iter(begun)
        assert [values(next(items)) for _ in range(3)] == epochs[1][:3]
        state = json.loads(json.dumps(begun.state_dict()))
    with pipeline() as rest:
        rest.load_state_dict(state)
        assert [values(item) for item in rest] == epochs[1][3:]
        assert [values(item) for item in rest] == epochs[2]


OWN = [
    (A.HorizontalFlip(p=1), v2.RandomHorizontalFlip(1.0), T.FlipX(1.0)),
    (A.VerticalFlip(p=1), v2.RandomVerticalFlip(1.0), T.FlipY(1.0)),
    (A.CenterCrop(30, 40), v2.Compose([v2.CenterCrop((30, 40)), v2.SanitizeBoundingBoxes()]), T.CenterCrop((30, 40))),
    (A.Transpose(p=1), None, T.Transpose(1.0)),
    (A.Compose([A.VerticalFlip(p=1), A.Sequential([A.HorizontalFlip(p=1)], p=1)]), None, T.Chain([T.FlipX(1.0), T.FlipY(1.0)])),
]


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("by_albumentations, by_torchvision, own", OWN, ids=lambda each: type(each).__name__)
def test_boxes_masks_points_and_labels_follow_as_they_do_by_our_own(by_albumentations, by_torchvision, own, number):
    item, rng = sample(number), np.random.default_rng(0)
    expected = Augmentations([own], **FIELDS, keep="drop")(item, rng)
    if own != T.CenterCrop((30, 40)):
        assert len(expected["labels"]) == 3 + number % 2
    stages = [Albumentations(by_albumentations, **FIELDS)]
    if by_torchvision is not None:
        stages.append(TorchvisionV2([by_torchvision, v2.SanitizeBoundingBoxes()], **FIELDS))
    for stage in stages:
        done = stage(item, rng)
        for field in ("image", "labels", "masks"):
            assert_array_equal(done[field], expected[field], strict=True)
        assert done["boxes"].dtype == done["points"].dtype == np.float32
        assert_allclose(done["boxes"], expected["boxes"], atol=1e-4)
        if type(own) is not T.CenterCrop:  # which drops points that are outside
            assert_allclose(done["points"], expected["points"], atol=1e-4)
        else:
            assert_allclose(done["points"], item["points"] - [12, 9], atol=1e-4)


def test_what_albumentations_does_is_what_it_does_when_called_by_the_same_generators():
    transforms = [A.RandomResizedCrop((32, 40)), A.HorizontalFlip(), A.ColorJitter(), A.GaussNoise()]
    compose = A.Compose(
        copy.deepcopy(transforms), A.BboxParams("pascal_voc", ["labels"], clip=True, filter_invalid_bboxes=True, min_visibility=0.2)
    )
    stage = Albumentations(copy.deepcopy(transforms), "boxes", with_boxes=["labels"], min_visibility=0.2)
    for number in range(12):
        item, rng = with_boxes_only(sample(number)), np.random.default_rng(number)
        compose.set_random_state(rng, NumpyRandom(rng))
        expected = compose(image=item["image"], bboxes=item["boxes"], labels=item["labels"])
        done = stage(item, np.random.default_rng(number))
        assert_array_equal(done["image"], expected["image"], strict=True)
        assert_array_equal(done["labels"], expected["labels"])
        assert_allclose(done["boxes"], np.reshape(expected["bboxes"], (-1, 4)), atol=1e-5)


def test_a_seed_of_a_compose_counts_for_nothing():
    stage = Albumentations(A.Compose([A.RandomCrop(20, 20)], seed=3))
    images = [stage({"image": SAMPLES[0]["image"]}, np.random.default_rng(seed))["image"].tobytes() for seed in (0, 1, 1)]
    assert images[0] != images[1] == images[2]


def test_what_torchvision_does_is_what_it_does_with_its_seed_and_its_generator_stands_where_it_was():
    transforms = [
        v2.RandomResizedCrop((32, 40)),
        v2.ColorJitter(0.4, 0.4),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.5], [0.5]),
    ]
    stage, item = TorchvisionV2(transforms), {"image": sample()["image"]}
    torch.manual_seed(5)
    before = torch.get_rng_state()
    done = stage(item, np.random.default_rng(3))["image"]
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(int(np.random.default_rng(3).integers(2**63)))
    expected = v2.Compose(transforms)(tv_tensors.Image(np.moveaxis(item["image"], 2, 0).copy()))
    assert_array_equal(done, np.moveaxis(np.asarray(expected), 0, 2), strict=True)
    assert (done.shape, done.dtype, done.flags.c_contiguous) == ((32, 40, 3), np.float32, True)


MIRRORS = [
    Albumentations([A.HorizontalFlip(p=1), A.RandomBrightnessContrast(p=0)], **FIELDS),
    TorchvisionV2([v2.RandomHorizontalFlip(1.0)], **FIELDS),
]


@pytest.mark.parametrize("stage", MIRRORS, ids=lambda stage: type(stage).__name__)
def test_batches_come_out_with_one_array_of_images_and_lists_of_what_has_rows(stage):
    given = {name: np.stack([each[name] for each in SAMPLES]) for name in SAMPLES[0]} | {"label": np.arange(8)}
    done = stage(given, np.random.default_rng(0))
    assert_array_equal(done["image"], given["image"][:, :, ::-1], strict=True)
    assert isinstance(done["points"], np.ndarray) and done["points"].shape == (8, 5, 2)
    assert done["label"] is given["label"]
    for row, item in enumerate(SAMPLES):
        left = np.flatnonzero(item["boxes"][:, 2] > 0) if isinstance(stage, Albumentations) else np.arange(4)  # of which none is removed
        expected = np.where(item["boxes"][:, 2:3] > 0, [WIDTH, 0, WIDTH, 0] + item["boxes"][:, [2, 1, 0, 3]] * [-1, 1, -1, 1], 0)
        assert_allclose(done["boxes"][row], expected[left], atol=1e-4)
        assert_array_equal(done["labels"][row], item["labels"][left])
        assert_array_equal(done["masks"][row], item["masks"][left, :, ::-1])


IMAGES = {
    "grey": np.arange(600, dtype=np.uint8).reshape(20, 30),
    "one channel": np.arange(600, dtype=np.uint8).reshape(20, 30, 1),
    "four channels": np.arange(2400, dtype=np.uint8).reshape(20, 30, 4),
    "floats": np.random.default_rng(0).random((20, 30, 3), np.float32),
    "a view": np.arange(7200, dtype=np.uint8).reshape(40, 60, 3)[::-2, 1::2],
}


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("kind", ["bool", "uint8", "int64", "float32"])
@pytest.mark.parametrize("stage", MIRRORS, ids=lambda stage: type(stage).__name__)
def test_images_and_masks_of_any_kind_and_images_without_boxes(stage, name, kind):
    image = IMAGES[name]
    stage = type(stage)(stage.transforms, boxes="boxes", points="points", mask="mask")
    mask = (np.arange(600).reshape(20, 30) % 3).astype(kind)
    for masks in (mask, np.stack([mask, mask[::-1]]), np.empty((0, 20, 30), kind)):
        item = {"image": image, "boxes": [], "points": np.float32([[[0, 0], [30, 20]]]), "mask": masks}
        done = stage(item, np.random.default_rng(0))
        assert_array_equal(done["image"], image[:, ::-1], strict=True)
        assert_array_equal(done["mask"], masks[..., ::-1], strict=True)
        assert (done["boxes"].shape, done["boxes"].dtype) == ((0, 4), np.float32)
        assert_allclose(done["points"], [[[30, 0], [0, 20]]])
        assert not np.may_share_memory(done["image"], image) and not np.may_share_memory(done["mask"], masks)


def test_boxes_that_leave_the_image_go_and_points_are_scaled_to_half_a_pixel():
    stage = Albumentations(A.CenterCrop(20, 20), "boxes", with_boxes=["labels"], min_area=9)
    outside = np.float32([[0, 0, 10, 10], [30, 20, 80, 30], [-9, -9, -1, -1], [40, 10, 40, 40], [20, 10, 24.5, 16.5], [41, 10, 60, 34]])
    done = stage({"image": SAMPLES[0]["image"], "boxes": outside, "labels": list("abcdef")}, np.random.default_rng(0))
    assert done["labels"] == ["b", "f"]
    assert_allclose(done["boxes"], [[8, 6, 20, 16], [19, 0, 20, 20]], atol=1e-5)
    for stage in (Albumentations(A.Resize(24, 32), points="points"), TorchvisionV2(v2.Resize((24, 32)), points="points")):
        done = stage({name: SAMPLES[0][name] for name in ("image", "points")}, np.random.default_rng(0))
        assert_allclose(done["points"], SAMPLES[0]["points"] / 2, atol=0.2501)


@pytest.mark.parametrize("stage", [Albumentations(A.ToGray(p=0), **FIELDS), TorchvisionV2(v2.Identity(), **FIELDS)], ids=["A", "v2"])
def test_what_changes_nothing_gives_new_arrays_and_warns_of_nothing(stage):
    item = {name: value.copy() for name, value in SAMPLES[1].items()}
    done = stage(item, np.random.default_rng(0))
    for name, value in item.items():
        assert_allclose(done[name], value, rtol=1e-6)
        assert not np.may_share_memory(done[name], value)


@pytest.mark.parametrize("kind", ["bool", "uint8", "uint16", "int16", "int32", "int64", "uint32", "float32", "float64"])
def test_masks_of_any_kind_are_scaled_without_mixing_values(kind):
    mask = (np.arange(HEIGHT * WIDTH).reshape(HEIGHT, WIDTH) % 250 if kind != "bool" else np.eye(HEIGHT, WIDTH)).astype(kind)
    done = Albumentations(A.Resize(24, 32), mask="mask")({"image": SAMPLES[0]["image"], "mask": mask}, np.random.default_rng(0))["mask"]
    assert_array_equal(done, mask[::2, ::2], strict=True)


@pytest.mark.parametrize(
    "stage",
    [
        Albumentations(A.HorizontalFlip(p=1)),
        Albumentations([A.GaussNoise(), A.OneOf([A.RandomCrop(20, 20), A.NoOp()])]),
        Albumentations(A.Compose([A.Resize(20, 20)])),
        TorchvisionV2(v2.RandomHorizontalFlip(1)),
        TorchvisionV2([v2.ColorJitter(), v2.RandomApply([v2.RandomCrop(20)])]),
        TorchvisionV2(v2.Compose([v2.TrivialAugmentWide()])),
    ],
    ids=str,
)
def test_boxes_that_nobody_has_named_are_an_error_if_pixels_are_moved(stage):
    with pytest.raises(ValueError, match="this stage moves pixels, but not the boxes in the field 'boxes'; pass boxes='boxes' so that"):
        stage(SAMPLES[0], np.random.default_rng(0))


@pytest.mark.parametrize(
    "stage",
    [
        Albumentations([A.GaussNoise(p=1), A.CoarseDropout(p=1), A.NoOp(p=1)]),
        TorchvisionV2([v2.ColorJitter(0.1), v2.RandomErasing(1), v2.Identity()]),
    ],
    ids=str,
)
def test_boxes_that_nobody_has_named_stay_if_no_pixel_is_moved(stage):
    item = {name: SAMPLES[0][name] for name in ("image", "boxes")}
    assert_array_equal(stage(item, np.random.default_rng(0))["boxes"], item["boxes"])


def test_no_transforms_leave_all_as_it_is():
    for stage in (Albumentations([]), TorchvisionV2([])):
        assert_array_equal(stage((SAMPLES[0]["image"],), np.random.default_rng(0))[0], SAMPLES[0]["image"], strict=True)


def test_torchvision_writes_nothing_into_the_item_and_into_its_own_objects():
    given = np.full((20, 30, 3), 0.25, np.float32)
    erase = v2.RandomErasing(p=1.0, inplace=True)
    for transform in (v2.Normalize([0.5] * 3, [0.5] * 3, inplace=True), erase, v2.Compose([erase])):
        done = TorchvisionV2(transform)({"image": given}, np.random.default_rng(0))["image"]
        assert (given == 0.25).all() and not (done == 0.25).all()
    assert erase.inplace


@pytest.mark.filterwarnings("ignore::UserWarning")  # of some, that there are better ones
def test_no_transform_of_albumentations_hangs_on_its_worker_or_writes_into_what_it_gets():
    size = {"height": 24, "width": 24}
    needs = {"RandomCrop": size, "CenterCrop": size, "Resize": size, "AtLeastOneBBoxRandomCrop": size, "RandomSizedBBoxSafeCrop": size}
    needs |= {"RandomResizedCrop": {"size": (24, 24)}, "RandomSizedCrop": {"size": (24, 24), "min_max_height": (10, 20)}}
    needs |= {"CropNonEmptyMaskIfExists": size, "Crop": {"x_max": 24, "y_max": 24}, "CropAndPad": {"px": 3}, "Lambda": {"image": _inverted}}
    needs |= {"LongestMaxSize": {"max_size": 30}, "SmallestMaxSize": {"max_size": 30}}
    left_out = {"HistogramMatching", "FDA", "PixelDistributionAdaptation", "Mosaic", "OverlayElements", "RandomCropNearBBox"}  # take more
    left_out |= {"TextImage", "GridElasticDeform", "ThinPlateSpline", "PiecewiseAffine", "ToTensorV2", "ConstrainedCoarseDropout"}
    classes = {name: kind for name in dir(A) if inspect.isclass(kind := getattr(A, name)) and issubclass(kind, A.BasicTransform)}
    bases = {"BasicTransform", "DualTransform", "ImageOnlyTransform", "Transform3D"}
    names = [name for name, kind in classes.items() if name not in left_out | bases and not issubclass(kind, A.Transform3D)]
    assert len(names) == 100
    item = {**SAMPLES[0], "mask": SAMPLES[0]["masks"][0]}
    fields = {"boxes": "boxes", "points": "points", "mask": "mask", "with_boxes": []}
    with ThreadPoolExecutor(1) as another:
        for name in names:
            stage = Albumentations(classes[name](**needs.get(name, {}), p=1), **fields)
            first = values(stage(item, np.random.default_rng(4)))
            again = another.submit(lambda stage=stage: [values(stage(item, np.random.default_rng(seed))) for seed in (9, 4)])
            assert again.result()[1] == first, name
    assert values(item) == values({**sample(), "mask": sample()["masks"][0]})


def test_a_normal_draw_keeps_nothing_for_the_next_image():
    stage, rng = Albumentations(A.PlanckianJitter(sampling_method="gaussian", p=1)), np.random.default_rng(0)
    state, item = rng.bit_generator.state, {"image": SAMPLES[0]["image"]}
    first = values(stage(item, rng))
    rng.bit_generator.state = state
    assert values(stage(item, rng)) == first


def _inverted(image, **params):
    return 255 - image


def _boxed(**params):
    return A.Compose([A.HorizontalFlip()], **params)


WRONG = {
    "boxes of its own": (
        lambda: Albumentations(_boxed(bbox_params=A.BboxParams("coco"))),
        "the Compose sets bbox_params itself; create it",
    ),
    "points inside": (
        lambda: Albumentations([A.OneOf([_boxed(keypoint_params=A.KeypointParams("xy"), additional_targets={"depth": "mask"})])]),
        "the Compose sets keypoint_params and additional_targets itself; create",
    ),
    "a function": (lambda: Albumentations([_inverted]), "is not a transform of Albumentations; for a function, use A.Lambda"),
    "ours": (lambda: Albumentations([T.FlipX()]), r"FlipX\(p=0.5\) belongs to another package; use the stage Augmentations\(\[...\]\)"),
    "torchvision's": (lambda: Albumentations(v2.RandomHorizontalFlip()), r"the stage TorchvisionV2\(\[...\]\)"),
    "Albumentations'": (lambda: TorchvisionV2([A.HorizontalFlip()]), r"the stage Albumentations\(\[...\]\)"),
    "among ours": (lambda: Augmentations([A.HorizontalFlip()]), r"TransformLike; use the stage Albumentations\(\[...\]\)"),
    "a class": (lambda: TorchvisionV2([v2.RandomHorizontalFlip]), "RandomHorizontalFlip is a class; pass an instance"),
    "large numbers": (
        lambda: Albumentations(A.Resize(9, 9), mask="labels"),
        "OpenCV supports only values of int32",
    ),
    "the image alone": (
        lambda: TorchvisionV2(lambda given: given["image"]),
        "returned a Image for a dict with image; expected the same fields",
    ),
    "other fields": (lambda: TorchvisionV2(lambda given: {}), "returned a dict without image for a dict with image; expected the same"),
    "by labels": (
        lambda: Albumentations([A.ConstrainedCoarseDropout(bbox_labels=[1])]),
        "needs bbox_labels, which highway does not pass; use",
    ),
    "a tensor": (lambda: Albumentations([A.ToTensorV2()]), "the image as a Tensor; expected an array: remove conversions"),
    "a point less": (lambda: Albumentations([A.ThinPlateSpline((0.5, 0.5), p=1)], points="points"), "points"),
    "sizes of a batch": (
        lambda: Albumentations([A.RandomScale((-0.5, 0.5), p=1)]),
        "after RandomScale image 0 of the batch is .* all images of a batch need the same shape",
    ),
    "version 1": (
        lambda: TorchvisionV2([_version_1().RandomHorizontalFlip()]),
        "RandomHorizontalFlip is a transform of version 1; use the transform of",
    ),
    "a format": (
        lambda: TorchvisionV2([v2.Compose([v2.ConvertBoundingBoxFormat("CXCYWH")])], boxes="boxes", with_boxes=[]),
        "remove ConvertBoundingBoxFormat; boxes must stay x1, y1, x2, y2",
    ),
    "a picture": (lambda: TorchvisionV2([v2.ToPILImage()]), "the image as a Image; expected an array"),
    "labels stay": (
        lambda: TorchvisionV2([v2.SanitizeBoundingBoxes(labels_getter=None)], boxes="boxes", with_boxes=[]),
        "4 labels and 3 boxes; expected one label for each",
    ),
    "masks go": (
        lambda: TorchvisionV2([v2.SanitizeBoundingBoxes()], boxes="boxes", mask="masks", with_boxes=[]),
        "3 of 4 masks; remove the transform that removes them, or add their field to with_boxes",
    ),
    "points go": (
        lambda: TorchvisionV2([v2.CenterCrop((8, 8)), v2.SanitizeKeyPoints(labels_getter=None)], points="points"),
        "of 5 points; remove the transform that removes them",
    ),
}


def _version_1():
    from torchvision import transforms

    return transforms


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_right_is_said(name):
    make, message = WRONG[name]
    batch = {name: [each[name].copy() for each in SAMPLES] for name in SAMPLES[0]}
    if name == "large numbers":
        batch["labels"] = [np.full((HEIGHT, WIDTH), 2**32)] * 8
    with pytest.raises((ConfigError, ValueError), match=message):
        stage = make()
        for field, named in (("boxes", stage.boxes), ("points", stage.points), ("masks", stage.mask)):
            if named is None:  # and would stay
                del batch[field]
        stage(batch, np.random.default_rng(0))


def test_the_transforms_of_a_compose_that_had_boxes_of_its_own_will_do():
    compose = A.Compose([A.OneOf([A.HorizontalFlip(p=1)], p=1)], A.BboxParams("coco"))
    done = Albumentations(compose.transforms, "boxes", with_boxes=[])(with_boxes_only(SAMPLES[1]), np.random.default_rng(0))
    assert_allclose(done["boxes"][:, 0], WIDTH - SAMPLES[1]["boxes"][:, 2], atol=1e-4)


YAML = {
    "albumentations": """
      - Albumentations:
          transforms:
            - albumentations:RandomCrop: {height: 20, width: 24}
            - albumentations:OneOf: {transforms: [{albumentations:HorizontalFlip: {p: 1}}, {albumentations:VerticalFlip: {p: 1}}], p: 0.5}
          boxes: boxes
          with_boxes: [labels]
""",
    "torchvision": """
      - TorchvisionV2:
          transforms:
            - torchvision.transforms.v2:RandomCrop: {size: [20, 24]}
            - torchvision.transforms.v2:SanitizeBoundingBoxes
          boxes: boxes
          with_boxes: [labels]
""",
}


@pytest.mark.parametrize("package", YAML)
def test_they_are_named_in_a_file_by_their_package(package, tmp_path, monkeypatch):
    (tmp_path / "source_of_samples.py").write_text(
        "from test_transforms_adapters import SAMPLES, with_boxes_only\ndef source():\n    yield from map(with_boxes_only, SAMPLES)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "t.yaml").write_text(f"roles:\n  r:\n    stages:\n      - source_of_samples:source{YAML[package]}")
    with Pipeline.from_yaml(str(tmp_path / "t.yaml"), "r", plugins=[package, "source_of_samples"]) as pipeline:
        items = list(pipeline)
    assert {item["image"].shape for item in items} == {(20, 24, 3)}
    assert {len(item["labels"]) == len(item["boxes"]) for item in items} == {True}


def test_the_code_on_the_page_runs():
    page = (Path(__file__).parents[2] / "docs" / "howto" / "transform.md").read_text()
    (code,) = re.findall(r"^```py\n(.*?)^```", page, re.M | re.S)
    names = {}
    exec(code, names)
    done = names["augment"](with_boxes_only(SAMPLES[0]) | {"masks": SAMPLES[0]["masks"]}, np.random.default_rng(0))
    assert done["image"].shape == (224, 224, 3) and len(done["masks"]) == len(done["labels"]) == len(done["boxes"])
