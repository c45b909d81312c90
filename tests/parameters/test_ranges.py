"""Ranges and predicates beside types: one table for Python, YAML, ``highway list`` and the JSON schema."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import jsonschema
import pytest

from highway.errors import ConfigError, ParameterError
from highway.modules import Batch, Cache, ImageFileReader, Noise
from highway.parameters.checks import checked
from highway.parameters.hints import written
from highway.parameters.location import Location
from highway.parameters.ranges import Count, Predicate, Probability, Range, Seed, Shape, unmet
from highway.topology.registry import Registry
from highway.topology.schema import schema


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (1, Count, ""),
        (0, Count, "at least 1"),
        (0, Count | None, "at least 1, or None"),
        (None, Count | None, ""),
        (0.0, Annotated[float, Range(gt=0)], "above 0"),
        (1.0, Annotated[float, Range(ge=0, lt=1)], "at least 0 and below 1"),
        (1.1, Annotated[float, Range(le=1)], "at most 1"),
        (math.nan, Probability, "a probability from 0 to 1"),
        ((3, 0), Shape, "(height, width) in pixels, at least 1"),
        ((3, 1), Shape | None, ""),
        (((3, -1), (2,)), Annotated[tuple[tuple[int, ...], ...], Range(ge=0, words="lengths")], "lengths"),
        (2**63, Seed, "a whole number, at least 0"),
        (2**63 - 1, Seed, ""),
        ("", Annotated[str, Predicate(bool, "a name")], "a name"),
        (3, int, ""),
        ([1, 0], list[Count], "at least 1"),
        ([1, 2], list[Count] | None, ""),
        ((1, 0), tuple[int, Count], "at least 1"),
        ({"a": 0}, dict[str, Count], "at least 1"),
        (0, str | Count | Probability, "at least 1"),
        (1.5, str | Count | Probability, "a probability from 0 to 1"),
        (len, Callable[[Count], Count], ""),
        ("any", str | Count | Probability | None, ""),
    ],
)
def test_what_a_value_does_not_meet_is_said(value, hint, expected):
    assert unmet(value, hint) == expected


def test_a_range_is_shown_beside_its_type():
    assert written(Count | None) == "int (at least 1) | None"
    assert written(Annotated[float, Range(gt=0, le=1)]) == "float (above 0 and at most 1)"
    assert written(Seed | None) == "int (at least 0) | None"


@pytest.mark.parametrize(
    ("component", "parameters"),
    [
        (Batch, {"batch_size": 0}),
        (Noise, {"shape": [2, -1]}),
        (Noise, {"seed": -1}),
        (Cache, {"budget": 0}),
        (ImageFileReader, {"data_dir": "d", "batch_size": 1, "flip": 1.5}),
        (ImageFileReader, {"data_dir": "d", "batch_size": 1, "shape": [0, 4]}),
    ],
)
def test_python_yaml_and_the_schema_refuse_the_same(component, parameters):
    name, wrong = component.__name__, list(parameters)[-1]
    with pytest.raises(ParameterError, match=rf"^{name}: {wrong}=.*; expected .*(at least|probability)"):
        component(**parameters)
    with pytest.raises(ConfigError, match=rf"^at\.{name}\.{wrong}: expected .*(at least|probability).*, got "):
        Registry().build({name: parameters}, Location() / "at")
    whole = schema()
    component_schema = jsonschema.Draft202012Validator({**whole["$defs"][name], "$defs": whole["$defs"]})
    assert not component_schema.is_valid(parameters)
    assert component_schema.is_valid({**parameters, wrong: {"shape": [3, 4], "flip": 0.5}.get(wrong, 1)})


def test_a_subclass_in_another_module_keeps_the_ranges():
    @checked
    @dataclass
    class Mine(Batch):
        extra: int = 0

    assert Mine(3, extra=1).extra == 1
    with pytest.raises(ParameterError, match=r"^Mine: batch_size=0; expected at least 1$"):
        Mine(0)
