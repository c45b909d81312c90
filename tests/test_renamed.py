"""Old names of Highway's, tensorcom's and tensorpack's are errors that name the new ones."""

import importlib
import importlib.util
import inspect
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import highway
import highway.tenbin
from highway import datasets, functional, modules, transforms
from highway import old_names as renamed
from highway.errors import ConfigError
from highway.parameters.location import Location
from highway.topology.registry import Registry
from highway.topology.schema import schema


@pytest.mark.parametrize("module", [*renamed.MODULES, "highway.augmentations.img", "highway.augmentations.base"])
def test_a_module_that_is_gone_names_where_its_names_are(module):
    with pytest.raises(ImportError, match=r"there is no module highway\..* any more; use highway") as caught:
        importlib.import_module(module)
    known = max((name for name in renamed.MODULES if module.startswith(name)), key=len)
    assert renamed.MODULES[known] in str(caught.value)
    assert importlib.util.find_spec(renamed.MODULES[known].split(" ")[0].rstrip(";")) is not None


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


def test_a_class_that_is_gone_names_what_to_use():
    for name in renamed.CLASSES:
        for module in ("highway", "highway.modules", "highway.transforms", "highway.engine", "highway.adapters"):
            with pytest.raises(ImportError, match=f"there is no {name} in {module}; use highway") as caught:
                exec(f"from {module} import {name}")
            with pytest.raises(ImportError, match=f"there is no {name}"):
                getattr(importlib.import_module(module), name)
        where, _, new = renamed.CLASSES[name].partition(" ")[0].rstrip(",;").rpartition(".")
        if where.startswith("highway.adapters"):  # whose frameworks may be absent
            assert importlib.util.find_spec(where) is not None
        else:
            assert hasattr(importlib.import_module(where), new), caught.value


def test_a_class_that_is_gone_names_what_to_use_in_yaml_too():
    for name in renamed.CLASSES:
        with pytest.raises(ConfigError, match=f"unknown component '{name}'; use highway"):
            Registry().build({name: 1}, Location())


OLD = json.loads(Path(__file__).with_name("data").joinpath("older_systems", "names.json").read_text())
"""The public names of tensorpack 0.11 and tensorcom 0.1.0, and the parameters of tensorpack's augmentors."""

PAGE = Path(__file__).parents[1].joinpath("docs/howto/from-tensorpack.md").read_text()


@pytest.mark.parametrize(("package", "keys"), [("tensorpack", ["names", "parameters"]), ("tensorcom", ["tensorcom"])])
def test_the_names_of_older_systems_are_those_of_their_packages(package, keys):
    script = runpy.run_path(str(Path(__file__).with_name("data").joinpath("older_systems", "names.py")))
    if not script["installed"](package):
        pytest.skip(f"{package} is not installed: tox -e adapters-others and tox -e interop have the packages")
    found = script["names"]()
    assert {key: found[key] for key in keys} == {key: OLD[key] for key in keys}


def test_every_name_of_tensorpack_is_a_name_here_or_an_error_that_says_the_new_one_and_on_its_page():
    for name in {name for names in OLD["names"].values() for name in names} - {"dataset", "imgaug"}:
        assert (name in (*dir(transforms), *dir(modules), *dir(datasets))) != (name in renamed.CLASSES), name
        if not re.search(rf"(Prefetch|Multi|Base$|Transform|Input|Terminated$|Factory$|{'|'.join(INNER)})", name):
            assert re.search(rf"\b{name}\b", PAGE), f"from-tensorpack.md does not say what {name} is called"


INNER = ["Augmentor$", "ProxyDataFlow", "RNGDataFlow", "remap_input_source", "DataPoint", "LMDBDataDecoder", "BackgroundFiller", "ILSVRC12"]


def test_every_name_of_tensorcom_is_a_name_here_or_an_error_that_says_the_new_one():
    for name in OLD["tensorcom"]:
        assert (name in (*dir(highway.tenbin), *highway.__all__)) != (name in renamed.CLASSES), name


@pytest.mark.parametrize("module", ["highway.dataflow", "highway.imgaug", "highway.dataflow.imgaug", "highway.input_source"])
def test_the_modules_of_tensorpack_name_where_their_names_are(module):
    with pytest.raises(ImportError, match=r"there is no module highway\.\w+ any more; use highway"):
        importlib.import_module(module)


def augmentors():
    """Yield each augmentor of tensorpack with each transform that takes its place, but for classes to derive from."""
    for old in OLD["parameters"]:
        new = re.findall(
            r"\w+", renamed.CLASSES.get(old, f"highway.transforms.{old}").removeprefix("highway.transforms.").partition(",")[0]
        )
        yield from ((old, name) for name in new if name in transforms.__all__ and name not in ("Transform", "Geometric", "Crop"))


def test_every_parameter_of_an_augmentor_is_a_parameter_here_or_an_error_that_says_the_new_one():
    for old, name in augmentors():
        here = set(inspect.signature(getattr(transforms, name)).parameters)
        for parameter in set(OLD["parameters"][old]) - here:
            advice = renamed.KEYWORDS.get(f"{name}.{parameter}", "")
            assert (f"{name}.{parameter}" in renamed.ACCEPTED) != bool(advice), (old, parameter)
            assert set(re.findall(r"it is called (\w+) now", advice)) <= here, (old, parameter)


def test_an_empty_list_stands_for_tensorpacks_identity():
    with pytest.raises(ImportError, match=r"there is no Identity in highway\.transforms; use an empty list, \[\]"):
        exec("from highway.transforms import Identity")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "from highway import ImageFileReader",
            "no ImageFileReader in highway; write: from highway.modules import ImageFileReader",
        ),
        ("from highway.modules import FlipX", "there is no FlipX in highway.modules; write: from highway.transforms import FlipX"),
        ("from highway.modules import ImageFileReadr", r"no ImageFileReadr in highway.modules; did you mean ImageFileReader\?"),
        ("from highway.transforms import Flipx", r"there is no Flipx in highway.transforms; did you mean FlipX\?"),
        ("from highway.modules import batch", r"there is no batch in highway.modules; did you mean Batch\?"),
        ("from highway import DataLoader", r"there is no DataLoader in highway; use highway.adapters.torch.DataLoader"),
        ("from highway import Pipelin", r"there is no Pipelin in highway; did you mean Pipeline\?"),
    ],
)
def test_a_name_of_another_module_or_nearly_one_is_an_error_that_says_the_right_one(statement, message):
    with pytest.raises(ImportError, match=message):
        exec(statement)


def test_modules_whose_names_are_nearly_those_of_a_class_can_be_imported():
    code = "from highway.modules import noise, batching, cache; from highway.transforms import crop, color; from highway import columns"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert not hasattr(transforms, "ImageFileReader") and not hasattr(modules, "ImageFileReadr")


@pytest.mark.parametrize("module", ["highway", "highway.modules", "highway.transforms", "highway.engine", "highway.adapters"])
def test_any_other_name_is_missing_as_usual(module):
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'Nonsense'"):
        _ = importlib.import_module(module).Nonsense
    with pytest.raises(ImportError, match="cannot import name 'Nonsense'"):
        exec(f"from {module} import Nonsense")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'highway\.nonsense'"):
        importlib.import_module("highway.nonsense")
    assert highway.Connection is not None


def test_an_old_parameter_is_a_type_error_that_names_the_new_one_in_python_and_in_yaml():
    for old in renamed.KEYWORDS:
        component, _, parameter = old.rpartition(".")
        component = component or "Augmentations"
        advice = renamed.KEYWORDS[old].format(component=component)
        expected = f"unknown parameter {parameter!r} of {component}; {advice}"
        is_function = hasattr(functional, component)
        with pytest.raises(TypeError) as caught:
            component_of(component)(**{parameter: 1})
        assert str(caught.value) == expected
        if is_function:
            continue
        with pytest.raises(ConfigError) as caught:
            Registry().build({component: {parameter: 1}}, Location())
        assert str(caught.value).endswith(expected)


@pytest.fixture(scope="module")
def definitions():
    return schema()["$defs"]


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
def test_old_parameters_that_are_accepted_do_what_the_new_ones_do_in_python_and_in_yaml(definitions, component, old, new):
    make = getattr(modules, component, None) or getattr(transforms, component)
    assert make(**old) == make(**new) == Registry().build({component: old}, Location()) == Registry().build({component: new}, Location())
    assert jsonschema.Draft202012Validator(definitions[component] | {"$defs": definitions}).is_valid(
        {key: list(value) if isinstance(value, tuple) else value for key, value in old.items()}
    )
    first = next(iter(new.keys() - old.keys()))
    with pytest.raises(TypeError, match=f"{component}: {first} was passed twice"):
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


def component_of(name):
    homes = (home for home in (modules, transforms, functional) if (name or "Augmentations") in home.__all__)
    return getattr(next(homes), name or "Augmentations")


def test_the_parameter_that_is_named_is_there():
    for old in renamed.KEYWORDS:
        component, _, parameter = old.rpartition(".")
        named = {word for word in re.findall(r"\w+", renamed.KEYWORDS[old]) if word in NEW}
        of_component = set(inspect.signature(component_of(component)).parameters) | set(inspect.signature(highway.Stage).parameters)
        assert named <= of_component, old
        assert parameter not in of_component, old
