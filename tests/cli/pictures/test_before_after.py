"""highway show --transforms FILE."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image

from highway.cli import main
from highway.cli.pictures.before_after import applied, stages_of
from highway.cli.pictures.examples import from_files, packaged
from highway.images.drawing import COLORS
from highway.modules import Augmentations, CopyPaste, CutMix, MixUp, Mosaic
from highway.transforms import FlipX, Resize

SIZE, LEFT, TOP = 32, 24, 40  # of the cells, and where the first of them is
FLIP = "- FlipX: {p: 1}\n"


@pytest.fixture
def show(tmp_path, capsys, monkeypatch):
    """Show the transforms of a file with this text; return the exit code, what was said, and the picture."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.yaml").write_text(FLIP)

    def run(text, *options):
        if text is not None:
            (tmp_path / "file.yaml").write_text(text)
        code = main(["show", "--transforms", "file.yaml", "-s", str(SIZE), "-o", "picture.png", *options])
        said = capsys.readouterr()
        return code, said.err or said.out, np.asarray(Image.open("picture.png")) if code == 0 else None

    return run


def columns(picture):
    """Return how many cells are in a row."""
    return (picture.shape[1] - 2 * LEFT + 14) // (SIZE + 14)


def test_a_list_of_transforms_is_shown_before_and_after(show, tmp_path):
    image = Image.new("RGB", (64, 64), (200, 0, 0))
    image.paste((0, 0, 200), (32, 0, 64, 64))
    image.save(tmp_path / "halves.png")
    code, said, picture = show(FLIP, "-c", "2", "--image", "halves.png")
    assert (code, said) == (0, f"written to {tmp_path}/picture.png\n")
    before, after, again = (picture[TOP : TOP + SIZE, LEFT + n * (SIZE + 14) :][:, :SIZE] for n in range(3))
    assert columns(picture) == 3
    assert before[0, [0, -1]].tolist() == [[200, 0, 0], [0, 0, 200]]
    assert after[0, [0, -1]].tolist() == [[0, 0, 200], [200, 0, 0]]
    assert_array_equal(after, again)
    assert_array_equal(extent_of_box(after), [SIZE - x for x in extent_of_box(before)[::-1]])


def extent_of_box(pixels):
    """Return x1 and x2 of the first object's box."""
    (there,) = np.nonzero((pixels == COLORS[0]).all(axis=-1).sum(axis=0) > 15)
    return [there.min(), there.max() + 1]


def test_the_objects_follow_and_a_seed_gives_the_same_picture_again(show):
    text = "- RandomIoUCrop\n- ColorJitter\n- SanitizeBoxes\n- Resize: {shape: [100, 120]}\n"
    first, same, other = (show(text, "--seed", seed, "-c", "1")[2] for seed in ("1", "1", "2"))
    assert_array_equal(first, same)
    assert (first != other).any()
    for _, example in applied(stages_of("file.yaml", None, {}, ()), packaged(), (1,)):
        count = len(example["boxes"])
        assert example["image"].shape == (100, 120, 3) and example["mask"].shape == (count, 100, 120)
        assert example["points"].shape == (count, 3, 2) and example["visibility"].shape == (count, 3) and len(example["labels"]) == count


@pytest.mark.parametrize(
    "text",
    [
        "- Augmentations: [{FlipX: {p: 1}}]\n",
        "Augmentations: [{FlipX: {p: 1}}]\n",
        "vars: {p: 1}\nroles: {a: [{Noise: {shape: [2, 8, 8, 3]}}, {Augmentations: [{FlipX: {p: '${p}'}}], num_workers: 2}]}\n",
        "roles: {a: [{ZMQSource: {link: x}}, {Processes: {stages: [{Augmentations: [{FlipX: {p: 1}}]}]}}], b: [{Benchmark: 1}]}\n",
        "roles: {a: [Augmentations: FlipY], b: [{my.module:Reader: 3}, {Augmentations: {boxes: gt, transforms: [{FlipX: {p: 1}}]}}]}\n",
    ],
    ids=["stages", "stage", "topology", "nested", "role"],
)
def test_stages_and_topologies_are_shown_as_their_transforms_are(show, text):
    expected = show(FLIP, "-c", "1")[2]
    code, said, picture = show(text, "-c", "1", *(["--role", "b"] if "gt" in text else []))
    assert code == 0, said
    assert_array_equal(picture[TOP:], expected[TOP:])


def test_a_variable_of_a_topology_can_be_set(show):
    text = "vars: {p: 0}\nroles: {a: [{Augmentations: [{FlipX: {p: '${p}'}}]}]}\n"
    assert (show(text, "--set", "p=1")[2] != show(text)[2]).any()


def test_images_of_the_user_get_objects(show, tmp_path):
    Image.new("RGB", (100, 50), (200, 10, 10)).save(tmp_path / "red.png")
    code, _, picture = show(FLIP, "--image", "red.png", "--image", "red.png")
    assert code == 0 and columns(picture) == 6
    (example,) = from_files([str(tmp_path / "red.png")]).values()
    for box, mask, points in zip(example["boxes"], example["mask"], example["points"], strict=True):
        y, x = np.nonzero(mask)
        np.testing.assert_allclose(box, [x.min(), y.min(), x.max() + 1, y.max() + 1], atol=1.5)
        assert (points >= box[:2]).all() and (points <= box[2:]).all()


def test_stages_that_mix_images_are_shown_with_what_they_mix():
    examples = packaged()
    same = Augmentations([Resize((64, 64))])
    for (text, example), name in zip(applied([same, CutMix(per_image=True)], examples, (0,)), examples, strict=True):
        assert set(example) == {"image"} and name in text and len(text.split(", ")) <= 2
    for stage in (Mosaic((48, 48)), CopyPaste("boxes", "masks")):
        done = applied([same, stage], examples, (0,))
        assert len(done) == 4 and sum(len(example["boxes"]) for _, example in done) > sum(len(one["boxes"]) for one in examples.values())
        assert all(len(example["mask"]) == len(example["boxes"]) == len(example["points"]) for _, example in done)


def test_what_follows_a_mix_is_shown_without_objects_and_shares_add_up():
    stages = [
        Augmentations([Resize((64, 64))]),
        MixUp(),
        CutMix(per_image=True),
        Augmentations([FlipX()], swap_points=[(0, 1)], points="points"),
    ]
    for text, example in applied(stages, packaged(), (1,)):
        assert set(example) == {"image"} and example["image"].shape == (64, 64, 3)
        parts = [float(part.rpartition(" ")[2]) for part in text.split(", ")]
        assert 1 < len(parts) <= 4 and abs(sum(parts) - 1) < 0.03


def test_what_the_stages_of_a_topology_say_of_its_own_fields_does_not_matter(show):
    fields = "boxes: gt, points: joints, mask: seg, with_boxes: [cls], with_points: [seen], swap_points: [[5, 9]]"
    expected = show(FLIP, "-c", "1")[2]
    for text in (fields, "field: jpg, boxes: gt", "keep: cut"):
        picture = show("- Augmentations: {transforms: [{FlipX: {p: 1}}], " + text + "}\n", "-c", "1")[2]
        assert_array_equal(picture[TOP:], expected[TOP:])


def test_a_given_image_is_mixed_with_photographs_of_the_package(show, tmp_path):
    Image.new("RGB", (100, 50), (200, 10, 10)).save(tmp_path / "red.png")
    code, said, picture = show("- Mosaic: {shape: [64, 64]}\n", "--image", "red.png", "-c", "2")
    assert code == 0, said
    assert columns(picture) == 3 and picture.shape[0] < 150, "one row"


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("- FlipX\n- Rotat: 20\n", [], "file.yaml:2: [1].Rotat: unknown component 'Rotat'; did you mean Rotate?"),
        ("- FlipX\n- FlipY: {p: 3}\n", [], "file.yaml:2: [1].FlipY.p: expected a probability from 0 to 1, got"),
        (
            "roles:\n  a:\n    - Augmentations:\n      - Rotate: x\n",
            [],
            "file.yaml:4: roles.a[0].Augmentations[0].Rotate: expected int or float",
        ),
        ("- my.module:Mine\n", [], "allow the module with `--plugin my.module`"),
        ("text", [], "file.yaml:1: expected a list of transforms, as in  Augmentations: [...],  or a topology; got"),
        (
            "roles: {a: [Augmentations], b: [Augmentations]}",
            [],
            "the roles a and b have transforms; select one role, such as --role a",
        ),
        ("roles: {a: [Benchmark]}", [], "no role has one of the stages Augmentations, "),
        ("roles: {a: [Augmentations], b: []}", ["--role", "b"], "the role b has none of the stages Augmentations"),
        ("roles: {a: [Augmentations]}", ["--role", "c"], "no role 'c'"),
        (FLIP, ["--role", "c"], "not a topology, because it has no key roles; remove --role"),
        (FLIP, ["--image", "none.jpg"], "--image none.jpg: No such file or directory"),
        (FLIP, ["--image", "file.yaml"], "--image file.yaml: not an image"),
        (FLIP, ["--boxes", "boxes"], "--boxes is only for a stream: remove it, or remove --transforms"),
        (FLIP, ["-m", "img2img"], "--mode is only for a stream"),
        (FLIP, ["zsub://127.0.0.1:1"], "'zsub://127.0.0.1:1' is the URL of a stream, but --transforms draws files"),
    ],
)
def test_what_cannot_be_shown_is_said_with_the_line(show, text, options, message):
    code, said, _ = show(text, *options)
    assert code == 2 and message in said


def test_a_transform_that_fails_is_said_with_the_image(show):
    code, said, _ = show("- CenterCrop: [900, 900]\n")
    assert code == 1 and "needs an image of at least 900x900" in said and "of the image astronaut_00, which has 256x333" in said


def test_options_of_transforms_need_transforms(capsys):
    assert main(["show", "--seed", "3"]) == 2
    assert "--seed needs --transforms FILE" in capsys.readouterr().err
