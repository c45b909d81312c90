"""Names and plain values to components: conversion by type hints, and what is said when something is wrong."""

import contextlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import pytest

from highway.engine.stage import Stage
from highway.errors import ConfigError
from highway.modules import Augmentations, ImageFileReader, Mix, Noise, Repeat
from highway.parameters.hints import parameters_of
from highway.parameters.location import Location
from highway.topology.components import PACKAGES, Components, built_in
from highway.topology.registry import Registry
from highway.transforms import BoxCrop, CenterCrop, FlipX, RandomResizedCrop, Transform

READER = {"data_dir": "d", "batch_size": 4, "shape": [8, 8]}

PLUGIN = '''
from __future__ import annotations
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import decimal

def double(n: int) -> int:
    """Return twice n."""
    return 2 * n

@dataclass
class Add:
    """Add a number."""
    number: int = 1
    def __call__(self, n):
        return n + self.number

class Broken:
    def __init__(self):
        raise KeyError("nothing there")

class Plain:
    def __call__(self, n):
        return n

class Anything:
    def __init__(self, **parameters: int):
        self.parameters = parameters
    def __call__(self, n):
        return n

class Unreadable:
    def __init__(self, price: decimal.Decimal):
        self.price = price

SETTING = 5
'''


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    (tmp_path / "highway_test_plugin.py").write_text(PLUGIN)
    (tmp_path / "highway_test_broken.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    yield "highway_test_plugin"
    sys.modules.pop("highway_test_plugin", None)


def build(spec, *plugins):
    return Registry(Components(plugins)).build(spec, Location() / "at")


def build_stage(spec, *plugins):
    return Registry(Components(plugins)).build_stage(spec, Location() / "at")


def convert(value, hint):
    return Registry().convert(value, hint, Location() / "at")


def message_of(function, *arguments):
    with pytest.raises(ConfigError) as raised:
        function(*arguments)
    return str(raised.value)


def test_a_name_with_parameters_is_an_instance():
    reader = build({"ImageFileReader": READER})
    assert reader == ImageFileReader("d", 4, (8, 8))
    assert build("FlipX") == FlipX()
    assert build({"FlipX": None}) == FlipX()
    assert build({"FlipX": 1}) == FlipX(p=1.0)


def test_components_nest_by_name():
    assert build({"Augmentations": ["FlipX", {"CenterCrop": [4, 5]}]}) == Augmentations([FlipX(), CenterCrop((4, 5))])
    reader = build({"ImageFileReader": {"data_dir": "d", "batch_size": 4, "crop": {"RandomResizedCrop": {"shape": [8, 8]}}}})
    assert reader.crop == RandomResizedCrop((8, 8))


def test_sources_of_sources_may_be_readers_and_have_settings():
    mixed = build({"Mix": {"sources": [{"ImageFileReader": READER, "on_error": "skip"}, {"Noise": {"count": 1}}], "stop": "first"}})
    assert mixed == Mix([Stage(ImageFileReader("d", 4, (8, 8)), on_error="skip"), Stage(Noise(count=1))], stop="first")
    assert build({"Repeat": {"times": 3}}) == Repeat(times=3)
    assert message_of(build, {"Mix": [["Batch"]]}).startswith("at.Mix[0]: expected a component")
    assert message_of(build, {"Mix": [{"Batch": 4}]}).startswith(
        "at.Mix: Mix: sources[0] is not a source: the first stage must be a source"
    )


def test_settings_of_the_stage_stand_beside_the_name():
    stage = build_stage(
        {"Augmentations": ["FlipX"], "num_workers": 3, "ordered": False, "on_error": "skip", "max_errors": 5, "name": "flip"}
    )
    assert stage == Stage(Augmentations([FlipX()]), num_workers=3, ordered=False, on_error="skip", max_errors=5, name="flip")
    assert build_stage({"Augmentations": []}) == Stage(Augmentations([]))


def test_a_class_with_parameters_of_any_name_gets_them(plugin):
    assert build({f"{plugin}:Anything": {"a": 1}}, plugin).parameters == {"a": 1}
    assert message_of(build, {f"{plugin}:Anything": {"a": "x"}}, plugin).endswith(".a: expected int, got str 'x'")


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (1, float, 1.0),
        ([1, 2], tuple[int, int], (1, 2)),
        ([1, 2], tuple[float, ...], (1.0, 2.0)),
        ([1, 2], float | tuple[float, float], (1.0, 2.0)),
        ("a", Literal["a", "b"], "a"),
        (None, int | None, None),
        ({"a": 1}, Mapping[str | int, float], {"a": 1.0}),
        ({3: [1]}, Any, {3: [1]}),
        ("FlipX", Transform, FlipX()),
        (None, Transform | None, None),
        ("FlipX", Transform | None, FlipX()),
        (["FlipX"], Transform | Sequence[Transform], [FlipX()]),
        ({"FlipX": 1}, Transform | Sequence[Transform], FlipX(1.0)),
        (["FlipX"], tuple[Transform, ...], (FlipX(),)),
        ({"a": "FlipX"}, dict[str, Transform], {"a": FlipX()}),
        ({"CenterCrop": [2, 2]}, BoxCrop | None, CenterCrop((2, 2))),
        ({"Augmentations": [], "num_workers": 2}, Stage, Stage(Augmentations([]), num_workers=2)),
        ("text", str | Sequence[str], "text"),
        (["text"], str | Sequence[str], ["text"]),
    ],
)
def test_values_become_what_the_hint_says(value, hint, expected):
    found = convert(value, hint)
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    ("value", "hint", "message"),
    [
        ("a", float, "at: expected float, got str 'a'"),
        (True, int, "at: expected int, got bool True"),
        (1.5, int, "at: expected int, got float 1.5"),
        (1, bool, "at: expected bool, got int 1"),
        ("yes", bool, "at: expected bool, got str 'yes'; write true or false"),
        (5, str, "at: expected str, got int 5; put it in quotes to make it text"),
        ([1, "x"], tuple[int, int], "at[1]: expected int, got str 'x'"),
        ([1, 2, 3], tuple[int, int], "at: expected list of length 2, got a list of 3"),
        (None, int, "at: expected int, got null"),
        ("x", int | None, "at: expected int or null, got str 'x'"),
        ("skp", Literal["raise", "skip"], "at: got str 'skp'; did you mean skip?"),
        (["FlipX", "FlipXX"], list[Transform], "at[1]: unknown component 'FlipXX'; did you mean FlipX?"),
        ([{"FlipX": {"p": "a"}}], Transform | Sequence[Transform], "at[0].FlipX.p: expected float, got str 'a'"),
        ([{"FlipX": {"p": "a"}}], Sequence[Transform] | Transform, "at[0].FlipX.p: expected float, got str 'a'"),
        ({"a": "x"}, dict[str, float], "at.a: expected float, got str 'x'"),
        ({"a": {"b": ["x"]}}, Mapping[str, dict[str, list[int]]], "at.a.b[0]: expected int, got str 'x'"),
        ("FlipX", BoxCrop, "at: FlipX is not a BoxCrop; expected one of CenterCrop, "),
        (5, Callable[[int], int], "at: expected a component, as"),
        (5, Transform, "at: expected a component, as  Name  or  Name: value  or  Name: {parameter: value}; got int 5"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_place(value, hint, message):
    assert message_of(convert, value, hint).startswith(message)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("ImageFileReadr", "at: unknown component 'ImageFileReadr'; did you mean ImageFileReader?"),
        ("xyz", "at: unknown component 'xyz'; `highway list` shows all"),
        ("my.module.Class", "at: unknown component 'my.module.Class'; to name your own class, write package.module:Class"),
        (
            {"ImageFileReader": {"batchsize": 1}},
            "at.ImageFileReader.batchsize: unknown parameter 'batchsize' of ImageFileReader; did you mean",
        ),
        (
            {"ImageFileReader": "d"},
            "at.ImageFileReader: ImageFileReader: batch_size=None; expected a number of samples, or a global_batch_size",
        ),
        (
            {"Bucket": {"boundaries": [3]}},
            "at.Bucket: Bucket needs batch_sizes: list[int (at least 1)]; `highway list Bucket` shows all its parameters",
        ),
        ({"ImageFileReader": {**READER, "batch_size": 0}}, "at.ImageFileReader.batch_size: expected at least 1, or null, got int 0"),
        ({"Augmentations": [], "num_worker": 2}, "at.num_worker: unknown setting 'num_worker' of a stage; did you mean num_workers?"),
        (
            {"Augmentations": None, "transforms": []},
            "at.transforms: unknown setting 'transforms' of a stage; expected one of attempts, buffer_size, ",
        ),
        ({"Augmentations": [], "ImageFileReader": READER}, "at: Augmentations and ImageFileReader are in one item of the list; begin each"),
        ({"num_workers": 2}, "at: the item has settings of a stage (num_workers), but no component; add the component"),
        ({"Augmentations": [], "num_workers": "2"}, "at.num_workers: expected int or null, got str '2'"),
        ({"Augmentations": [], "num_workers": 0}, "at.num_workers: expected at least 1, or null, got int 0"),
        ({"Augmentations": [], "on_error": "ignore"}, "at.on_error: got str 'ignore'; expected one of raise, skip"),
        ("FlipX", "at: FlipX is not a stage, because it transforms one image; write  Augmentations: [FlipX]"),
        ([], "at: expected a component"),
        (None, "at: expected a component"),
    ],
)
def test_a_stage_that_cannot_be_built_says_why(spec, message):
    assert message_of(build_stage, spec).startswith(message)


def test_classes_and_functions_of_an_allowed_module_can_be_named(plugin):
    assert build({f"{plugin}:Add": 4}, plugin)(1) == 5
    assert build(f"{plugin}:double", plugin)(4) == 8
    assert build(f"{plugin}:Plain", plugin)(4) == 4
    registry = Registry(Components([plugin]))
    assert registry.convert(f"{plugin}:double", Callable[[int], int], Location())(2) == 4
    assert registry.convert({f"{plugin}:Add": 5}, Callable[..., Any] | None, Location())(2) == 7
    assert registry.convert("FlipX", Callable, Location()) == FlipX()


def test_a_module_that_is_not_allowed_is_not_imported(plugin):
    message = message_of(build, f"{plugin}:Add")
    assert message.startswith(f"at: {plugin}:Add is in a module that is not allowed here; allow the module with `--plugin {plugin}`")
    assert plugin not in sys.modules
    assert "in a module that is not allowed" in message_of(build, f"{plugin}x:Add", plugin)


def test_an_entry_point_allows_a_module(plugin, tmp_path):
    (tmp_path / "mine-1.0.dist-info").mkdir()
    (tmp_path / "mine-1.0.dist-info" / "METADATA").write_text("Name: mine\nVersion: 1.0\n")
    (tmp_path / "mine-1.0.dist-info" / "entry_points.txt").write_text(f"[highway.plugins]\nmine = {plugin}\n")
    assert build({f"{plugin}:Add": 4})(1) == 5


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{}:Ad", "at: {} has no class or function 'Ad'; did you mean Add?"),
        ("{}:SETTING", "at: {} has no class or function 'SETTING'"),
        ("{}:Broken", "at: Broken: KeyError: 'nothing there'"),
        ("{}:Unreadable", "at: the type hints of Unreadable cannot be read: name 'decimal' is not defined"),
        ({"{}:double": 3}, "at.{}:double: {}:double is a function, so it accepts no parameters here"),
        ({"{}:Plain": 3}, "at.{}:Plain: Plain has no parameters; got int 3"),
        ({"{}:Plain": {"a": 1}}, "at.{}:Plain.a: unknown parameter 'a' of Plain; there are none"),
    ],
)
def test_mistakes_with_a_plugin_are_named(plugin, spec, message):
    spec = {key.format(plugin): value for key, value in spec.items()} if isinstance(spec, dict) else spec.format(plugin)
    assert message_of(build, spec, plugin).startswith(message.replace("{}", plugin))


def test_a_plugin_that_cannot_be_imported_is_named(plugin):
    assert message_of(Components(["highway_nowhere"]).import_plugins).startswith(
        "the plug-in highway_nowhere cannot be imported: ModuleNotFoundError"
    )
    assert message_of(Components(["highway_test_broken"]).import_plugins).startswith(
        "the plug-in highway_test_broken cannot be imported: ZeroDivisionError"
    )


def test_a_description_holds_signature_and_docstring(plugin):
    assert Components().describe("FlipX").startswith("FlipX(p: float (at least 0 and at most 1) = 0.5)\n\nFlip horizontally")
    assert "\nArgs:\n    data_dir: " in Components().describe("ImageFileReader")  # inherited
    assert Components([plugin]).describe(f"{plugin}:double") == f"{plugin}:double(n: int)\n\nReturn twice n."
    assert message_of(Components().describe, "FlipXX") == "unknown component 'FlipXX'; did you mean FlipX?"


COMPONENTS = [cls for package in PACKAGES for cls in built_in(package).values()]


def test_every_component_can_be_described_and_given_any_value_as_a_parameter():
    for cls in COMPONENTS:
        signature, _, docstring = Components().describe(cls.__name__).partition("\n\n")
        assert signature.startswith(f"{cls.__name__}(")
        assert docstring[:1].isupper(), cls
        assert not re.search(r":\w+:`|``", docstring), cls
        unexplained = [name for name in inspect.signature(cls).parameters if not re.search(rf"^    {name}: \S", docstring, re.M)]
        assert not unexplained, f"{cls.__name__} does not say what these parameters are"
        for parameter in parameters_of(cls).values():
            for value in ("no such thing", 0.5, [], {"no": "such thing"}, None):
                with contextlib.suppress(ConfigError):  # and nothing else: the hint is one that a value can be checked against
                    convert(value, parameter.annotation)


def test_no_two_components_have_the_same_name():
    names = Components().names()
    assert sorted(set(names)) == sorted(names)
