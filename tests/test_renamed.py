"""Old names of Highway's, tensorcom's and tensorpack's are errors that name the new ones."""

import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import highway
from highway import functional, modules, renamed, transforms
from highway.errors import ConfigError
from highway.parameters.location import Location
from highway.topology.registry import Registry
from highway.topology.schema import schema


@pytest.mark.parametrize("module", [*renamed.MODULES, "highway.augmentations.img", "highway.augmentations.base"])
def test_a_module_that_is_gone_names_where_its_names_are(module):
    with pytest.raises(ImportError, match=r"there is no module highway\..* any more; its names are in highway") as caught:
        importlib.import_module(module)
    known = max((name for name in renamed.MODULES if module.startswith(name)), key=len)
    assert renamed.MODULES[known] in str(caught.value)
    assert importlib.util.find_spec(renamed.MODULES[known].split(" ")[0]) is not None


@pytest.mark.parametrize(
    "statement",
    [
        "import highway.zcom",
        "from highway import zcom",
        "from highway.utils import clipped_zoom",
        "from highway.modules.fs import ClfImgReader",
        "from highway.modules import fs",
        "from highway.augmentations.img import FlipX, Resize",
        "from highway.transforms.img import flip_x",
    ],
)
def test_every_way_to_import_a_module_that_is_gone_says_so(statement):
    with pytest.raises(ImportError, match="there is no module"):
        exec(statement)


@pytest.mark.parametrize("module", ["highway", "highway.modules", "highway.transforms", "highway.engine", "highway.adapters"])
@pytest.mark.parametrize("name", renamed.CLASSES)
def test_a_class_that_is_gone_names_what_to_use(module, name):
    with pytest.raises(ImportError, match=f"there is no {name} in {module}; use highway") as caught:
        exec(f"from {module} import {name}")
    with pytest.raises(ImportError, match=f"there is no {name}"):
        getattr(importlib.import_module(module), name)
    where, _, new = renamed.CLASSES[name].partition(" ")[0].rstrip(",").rpartition(".")
    assert hasattr(importlib.import_module(where), new), caught.value


@pytest.mark.parametrize("name", renamed.CLASSES)
def test_a_class_that_is_gone_names_what_to_use_in_yaml_too(name):
    with pytest.raises(ConfigError, match=f"unknown component '{name}'; use highway"):
        Registry().build({name: 1}, Location())


TENSORPACK = """
    Identity RandomApplyAug RandomChooseAug RandomOrderAug MapImage AugmentorList ColorSpace Grayscale ToUint8 ToFloat32 Hue Brightness
    BrightnessScale Contrast Saturation Gamma Clip GaussianBlur Lighting MeanVarianceNormalize MinMaxNormalize RandomCrop CenterCrop
    RandomCropRandomShape GoogleNetRandomCropAndResize RandomCutout Shift Rotation RotationAndCropValid Affine Flip Resize
    ResizeShortestEdge RandomResize Transpose JpegNoise GaussianNoise SaltPepperNoise CenterPaste RandomPaste BackgroundFiller
    GaussianDeform IAAugmentor Albumentations AugmentImageComponent AugmentImageComponents AugmentImageCoordinates
"""


@pytest.mark.parametrize("name", TENSORPACK.split())
def test_every_augmentor_of_tensorpack_has_its_name_here_or_an_error_that_names_the_new_one(name):
    assert (name in (*dir(transforms), *dir(modules))) != (name in renamed.CLASSES)
    page = Path(__file__).parents[1].joinpath("docs/howto/from-tensorpack.md").read_text()
    assert re.search(rf"\b{name}\b", page), "from-tensorpack.md does not say what it is called"


@pytest.mark.parametrize("module", ["highway", "highway.modules", "highway.transforms", "highway.engine", "highway.adapters"])
def test_any_other_name_is_missing_as_usual(module):
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'Nonsense'"):
        _ = importlib.import_module(module).Nonsense
    with pytest.raises(ImportError, match="cannot import name 'Nonsense'"):
        exec(f"from {module} import Nonsense")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'highway\.nonsense'"):
        importlib.import_module("highway.nonsense")
    assert highway.Connection is not None


@pytest.mark.parametrize("old", renamed.KEYWORDS)
def test_an_old_parameter_is_a_type_error_that_names_the_new_one_in_python_and_in_yaml(old):
    component, _, parameter = old.rpartition(".")
    component = component or "Augmentations"
    advice = renamed.KEYWORDS[old].format(component=component)
    expected = f"unknown parameter {parameter!r} of {component}; {advice}"
    is_function = hasattr(functional, component)
    with pytest.raises(TypeError) as caught:
        getattr(functional if is_function else modules, component)(**{parameter: 1})
    assert str(caught.value) == expected
    if is_function:
        return
    with pytest.raises(ConfigError) as caught:
        Registry().build({component: {parameter: 1}}, Location())
    assert str(caught.value).endswith(expected)


@pytest.mark.parametrize(
    ("component", "old", "new"),
    [
        ("Batch", {"size": 3, "last": "drop"}, {"batch_size": 3, "drop_last": True}),
        ("BatchByShape", {"size": 3, "last": "keep"}, {"batch_size": 3, "drop_last": False}),
        ("Shuffle", {"buffer": 9}, {"buffer_size": 9}),
        ("Rotate", {"angle": 9, "order": 2}, {"angle": 9, "interpolation": 2}),
        ("Zoom", {"fac": 0.5, "order": 0}, {"fac": 0.5, "interpolation": 0}),
        ("Resize", {"shape": (2, 2), "interp": "area"}, {"shape": (2, 2), "interpolation": "area"}),
    ],
)
def test_old_parameters_that_are_accepted_do_what_the_new_ones_do_in_python_and_in_yaml(component, old, new):
    make = getattr(modules, component, None) or getattr(transforms, component)
    assert make(**old) == make(**new) == Registry().build({component: old}, Location()) == Registry().build({component: new}, Location())
    assert jsonschema.Draft202012Validator(schema()["$defs"][component] | {"$defs": schema()["$defs"]}).is_valid(
        {key: list(value) if isinstance(value, tuple) else value for key, value in old.items()}
    )
    first = next(iter(new.keys() - old.keys()))
    with pytest.raises(TypeError, match=f"{component}: {first} is given twice"):
        make(**old, **{first: new[first]})
    with pytest.raises(ConfigError, match=f"{first} of {component} is given twice"):
        Registry().build({component: {**old, first: new[first]}}, Location())


def test_old_parameters_of_functions_are_accepted():
    image = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    assert_array_equal(functional.rotate(image, 30, order=1), functional.rotate(image, 30, "bilinear"), strict=True)
    assert_array_equal(functional.rotate(image, 30, 0), functional.rotate(image, 30, interpolation="nearest"), strict=True)
    assert_array_equal(functional.clipped_zoom(image, 1.5, order=3), functional.clipped_zoom(image, 1.5, 3), strict=True)


def test_all_old_parameters_are_named_at_once():
    with pytest.raises(TypeError) as caught:
        modules.Noise(data_shape=(2, 3), n_tensors=3, force_constant=True)
    assert str(caught.value).splitlines() == [
        "unknown parameter 'data_shape' of Noise; it is called shape now",
        "unknown parameter 'force_constant' of Noise; it is called constant now",
    ]


NEW = {
    "corner",
    "image",
    "num_workers",
    "buffer_size",
    "shape",
    "constant",
    "url",
    "codec",
    "path",
    "format",
    "n",
    "shuffle",
    "epochs",
    "one_hot",
    "writable",
    "drop_last",
    "interpolation",
}


@pytest.mark.parametrize("old", renamed.KEYWORDS)
def test_the_parameter_that_is_named_is_there(old):
    component, _, parameter = old.rpartition(".")
    named = {word for word in re.findall(r"\w+", renamed.KEYWORDS[old]) if word in NEW}
    of_component = set(
        inspect.signature(getattr(modules, component or "Augmentations", None) or getattr(functional, component)).parameters
    ) | set(inspect.signature(highway.Stage).parameters)
    assert named <= of_component
    assert parameter not in of_component
