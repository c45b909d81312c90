"""Old names of Highway's, tensorcom's and tensorpack's are errors that name the new ones."""

import importlib
import importlib.util
import inspect
import re

import pytest

import highway
from highway import functional, modules, renamed
from highway.errors import ConfigError
from highway.parameters.location import Location
from highway.topology.registry import Registry


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
    "last",
    "writable",
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
