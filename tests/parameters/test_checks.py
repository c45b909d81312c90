"""Parameters of components in Python: what fits, what becomes of it, and what is said of what does not."""

import inspect
import os
from pathlib import Path

import numpy as np
import pytest

from highway import Stage
from highway.errors import ConfigError, ParameterError
from highway.modules import (
    Augmentations,
    Batch,
    DecodeImage,
    DumpImages,
    ImageFileReader,
    Map,
    Mix,
    Noise,
    Processes,
    Rename,
    Select,
    ZMQSink,
    ZMQSource,
)
from highway.parameters.hints import parameters_of
from highway.parameters.location import Location
from highway.topology.components import PACKAGES, built_in
from highway.topology.registry import Registry
from highway.transforms import FlipX, Normalize, Rotate

TRANSFORM = "expected a TransformLike, an object with draw, image, boxes, points, mask or a list of TransformLike"
CLASS = "FlipX is a class; pass an instance: FlipX(...)"
LIST = "Augmentations: transforms=FlipX(p=0.5); " + TRANSFORM.replace("a TransformLike", "a list of TransformLike", 1)
COMPONENTS = [Stage, *(cls for package in PACKAGES for cls in built_in(package).values())]


def test_every_component_checks_its_parameters():
    for cls in COMPONENTS:
        with pytest.raises(ParameterError, match=f"unknown parameter 'no_such_thing' of {cls.__name__}"):
            cls(no_such_thing=1)


@pytest.mark.parametrize(
    ("cls", "args", "kwargs", "message"),
    [
        (ImageFileReader, ("d", 4, 8), {}, "ImageFileReader: shape=8; expected (height, width) in pixels, at least 1 or None"),
        (ImageFileReader, ("d", 4, (8, "x")), {}, "ImageFileReader: shape[1]='x'; expected int"),
        (ImageFileReader, ("d", 4, (8,)), {}, "ImageFileReader: shape=(8,); expected (height, width) in pixels, at least 1 or None"),
        (ImageFileReader, ("d", "16"), {}, "ImageFileReader: batch_size='16'; expected int or None"),
        (ImageFileReader, ("d", 16.0), {}, "ImageFileReader: batch_size=16.0; expected int or None"),
        (ImageFileReader, ("d", True), {}, "ImageFileReader: batch_size=True; expected int or None"),
        (ImageFileReader, ("d",), {}, "ImageFileReader: batch_size=None; expected a number of samples, or a global_batch_size"),
        (ImageFileReader, (), {"batch_size": 4}, "ImageFileReader needs data_dir: str | Dataset"),
        (ImageFileReader, ("d", 4), {"shuffle": 1}, "ImageFileReader: shuffle=1; expected bool or str"),
        (ImageFileReader, ("d", 4), {"batch_size": 8}, "ImageFileReader: batch_size was passed twice, as 4 by position and as 8 by name"),
        (ImageFileReader, ("d", 4), {"batchsize": 8}, "unknown parameter 'batchsize' of ImageFileReader; did you mean batch_size?"),
        (Augmentations, ([FlipX],), {}, f"Augmentations: transforms[0]=<class 'highway.transforms.geometry.FlipX'>; {TRANSFORM}; {CLASS}"),
        (Noise, ([[4, [3]], [1]],), {}, "Noise: shape[0][1]=[3]; expected int"),
        (Noise, (), {"data_shape": (1,)}, "unknown parameter 'data_shape' of Noise; it is called shape now"),
        (Rotate, ("10",), {}, "Rotate: angle='10'; expected int or float"),
        (DecodeImage, (), {"crop": FlipX()}, "DecodeImage: crop=FlipX(p=0.5); expected a BoxCrop, an object with shape, box or None"),
        (Rotate, (10, 6), {}, "Rotate: interpolation=6; expected one of nearest, bilinear, 0, 1, 2, 3, 4, 5"),
        (Rotate, (10, 2.5), {}, "Rotate: interpolation=2.5; expected int or str"),
        (FlipX, (1, 1, True), {}, "FlipX accepts at most 1 parameters, but got 3: 1, 1, True"),
        (Batch, (4, "kep"), {}, "Batch: drop_last='kep'; expected bool"),
        (Augmentations, (FlipX(),), {}, LIST),
        (Augmentations, ([FlipX(), 3],), {}, "Augmentations: transforms[1]=3; " + TRANSFORM),
        (Map, (3,), {}, "Map: fn=3; expected a function"),
        (Processes, (3,), {}, "Processes: maps=3; expected a list of Component"),
        (Rename, (["a"],), {}, "Rename: names=['a']; expected a dict of str or int to str"),
        (Stage, (str,), {"num_workers": "2"}, "Stage: num_workers='2'; expected int or None"),
        (Stage, (str,), {"on_error": "ignore"}, "Stage: on_error='ignore'; expected 'raise' or 'skip'"),
        (ZMQSource, (5555,), {}, "ZMQSource: url=5555; expected str or a list of str"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named_with_what_was_expected(cls, args, kwargs, message):
    with pytest.raises(ParameterError) as raised:
        cls(*args, **kwargs)
    assert str(raised.value) == message
    assert isinstance(raised.value, TypeError) and isinstance(raised.value, ConfigError)


@pytest.mark.parametrize(
    ("made", "same"),
    [
        (lambda: ImageFileReader(Path("d"), np.int64(4), [8, np.int32(8)]), ImageFileReader("d", 4, (8, 8))),
        (lambda: ImageFileReader("d", 4, np.array([8, 8])), ImageFileReader("d", 4, (8, 8))),
        (lambda: Noise(np.zeros((2, 3)).shape, dtype=np.float32), Noise((2, 3), dtype="float32")),
        (lambda: Noise((2, 3), dtype=np.zeros(1).dtype, constant=np.bool_(True)), Noise((2, 3), dtype="float64", constant=True)),
        (lambda: Rotate(np.float64(10)), Rotate(10.0)),
        (lambda: Normalize([1, np.float32(2)], np.array([1.0, 2.0])), Normalize((1.0, 2.0), (1.0, 2.0))),
        (lambda: Augmentations((FlipX(),)), Augmentations([FlipX()])),
        (lambda: Select(range(2)), Select([0, 1])),
        (lambda: Select(("a", "b")), Select(["a", "b"])),
        (lambda: Rename({np.int64(0): "a"}), Rename({0: "a"})),
        (lambda: Mix(([1], [2]), weights=np.array([1, 2])), Mix([[1], [2]], weights=[1.0, 2.0])),
        (lambda: ZMQSink(("tcp://a:1", "tcp://b:1")), ZMQSink(["tcp://a:1", "tcp://b:1"])),
        (lambda: DumpImages(Path("a") / "b"), DumpImages(os.path.join("a", "b"))),
        (lambda: Stage(str, np.int64(2)), Stage(str, 2)),
    ],
)
def test_what_stands_for_the_same_is_taken_for_it(made, same):
    assert repr(made()) == repr(same)
    assert made() == same


def test_the_class_of_a_user_is_named_by_its_own_name():
    class MyReader(ImageFileReader):
        """A reader of one's own."""

    with pytest.raises(ParameterError, match=r"^MyReader: batch_size='4'; expected int or None$"):
        MyReader("d", "4")


class _Around:
    """Stands for a class whose constructor stands around another one, whose signature it shows with hints as texts."""

    def __init__(self, *args, **kwargs):
        self.given = kwargs

    __init__.__signature__ = inspect.Signature(
        [
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            inspect.Parameter("size", inspect.Parameter.KEYWORD_ONLY, annotation="tuple[int, int] | tuple[float, float]"),
            inspect.Parameter("source", inspect.Parameter.KEYWORD_ONLY, annotation="Path | None", default=None),
        ]
    )


def test_hints_that_are_texts_are_read_where_the_constructor_is_defined():
    assert {name: one.annotation for name, one in parameters_of(_Around).items()} == {
        "size": tuple[int, int] | tuple[float, float],
        "source": Path | None,
    }


def test_unions_of_two_lists_take_what_fits_one_of_them():
    registry, hint = Registry(), parameters_of(_Around)["size"].annotation
    for value, expected in (([1, 2], (1, 2)), ([0.5, 1], (0.5, 1.0))):
        assert registry.convert(value, hint, Location(("size",))) == expected
    with pytest.raises(ConfigError, match="expected float, got str 'a'"):
        registry.convert([0.5, "a"], hint, Location(("size",)))
