"""What a component says of itself, and what belongs to a run of it."""

import re
import weakref
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import highway
from highway import Pipeline, Stage, Traits
from highway.engine.component import layers, written
from highway.engine.context import here
from highway.errors import PipelineError
from highway.modules import Batch, Cache, Concat, Identity, ImageFileReader, Map, Repeat, WebDatasetSource, ZMQSource
from highway.modules.caching.fingerprint import fingerprint
from highway.transforms import FlipX


def test_a_component_need_not_say_anything():
    assert Traits.of(range(3)) == Traits.of(str) == Traits.of(lambda item: item) == Traits()


def test_what_components_declare_is_read():
    assert Traits.of(Identity()).parallel and Traits.of(Batch(2)).makes == "batches"
    assert Traits.of(ZMQSource("tcp://localhost:1")).finishes and Traits.of(ZMQSource("tcp://localhost:1")).on_demand
    declared = Stage(WebDatasetSource("x.tar", epochs=3)).traits
    assert declared.remake is not None and declared.identity is not None and declared.state is not None
    assert replace(declared, state=None, remake=None, identity=None, ranks=None) == Traits(
        draws=False, makes="samples", epochs=3, numbers_epochs=True
    )


class Wrapped:
    """A component that stands for another one."""

    def __init__(self, inner, **traits):
        self.inner, self.traits = inner, traits

    def __highway__(self):
        return Traits(stands_for=self.inner, **self.traits)


def test_the_layers_of_a_component_end_with_the_one_that_the_user_wrote():
    inner = Wrapped("what the user wrote")
    outer = Wrapped(inner)
    assert list(layers(outer)) == [outer, inner, "what the user wrote"] and written(outer) == "what the user wrote"


@dataclass
class Numbers:
    """A source with attributes that are called like some of highway's own."""

    reader: object = None
    source: object = None
    inner: object = None

    def __iter__(self):
        yield from (np.array([n]) for n in range(3))

    def fingerprint(self):
        return "numbers"


def test_attributes_that_are_called_like_highways_own_do_not_mislead_a_cache():
    reader = ImageFileReader("highway:photos/val", 4, (8, 8), epochs=5)
    mine = Numbers(reader=reader, source=reader, inner=Batch(3))
    with Pipeline([mine, Cache(shuffle=False, epochs=2, batched=False)]) as pipeline:
        assert [int(item[0]) for item, _ in pipeline.stamped()] == [0, 1, 2, 0, 1, 2]
    assert fingerprint([mine]) == fingerprint([Numbers()]) != fingerprint([reader])


def test_no_code_looks_for_a_trait_among_the_attributes_of_a_component():
    home, names = Path(highway.__file__).parent, "|".join(field.name for field in fields(Traits))
    sniffs = re.compile(rf"""attr\([^,()]+(\([^()]*\))?, ["']({names}|counters|bound|reader|inner)["']""")
    assert sniffs.search('callable(getattr(stage.op, "after", None))')
    found = {file.name: sniffs.findall(file.read_text()) for file in home.rglob("*.py")}
    assert {name: words for name, words in found.items() if words} == {"component.py": [("(value)", "fingerprint")]}  # of values


def test_a_cache_behind_a_cache_ends_after_as_many_epochs_as_come_in(tmp_path):
    first = Cache(shuffle=False, epochs=3, batched=False)

    def items(**second):
        with Pipeline([Numbers(), first, Cache(shuffle=False, batched=False, **second)]) as pipeline:
            return [int(item[0]) for item, _ in pipeline.stamped()]

    assert items() == items(path=str(tmp_path)) == items(path=str(tmp_path)) == [0, 1, 2] * 3


class Counting:
    """A component of each shape that counts."""

    def __iter__(self, context=None):
        for n in range(5):
            (context or here()).counters(self)["last"] = n
            yield n

    def __call__(self, item, context):
        context.count(self, "seen")
        return item

    def consume(self, items):
        items.context.counters(self)["sum"] = sum(items)


def test_two_pipelines_of_one_component_count_apart():
    class Source(Counting):
        consume = None

    class Map(Counting):
        __iter__ = consume = None

    source, each, sink = Source(), Map(), Counting()
    first, second = (Pipeline([source, *more, Stage(each, num_workers=3), sink], start=False) for more in ([], [lambda n: 10 * n]))
    assert [stage.counters for stage in first.stats().stages] == [{}, {}, {}]
    first.run()
    assert [stage.counters for stage in second.stats().stages] == [{}] * 4
    second.run()
    assert [stage.counters for stage in first.stats().stages] == [{"last": 4}, {"seen": 5}, {"sum": 10}]
    assert [stage.counters for stage in second.stats().stages] == [{"last": 4}, {}, {"seen": 5}, {"sum": 100}]


alive = weakref.WeakSet()


@dataclass(eq=False)
class Counted:
    """A source that is made anew for each pass over it."""

    seed: int = 0

    def __iter__(self, context):
        alive.add(self)
        context.counters(self)["passes"] = 1
        yield len(alive)


def test_a_run_does_not_keep_components_for_what_they_have_counted():
    with Pipeline([Repeat(Concat([Counted()]), 20)]) as pipeline:
        assert max(pipeline) <= 3


class Pair(NamedTuple):
    """A map that nothing can refer to weakly."""

    one: int = 1
    other: int = 2

    def __call__(self, item, context):
        context.count(self, "seen")
        return item


def test_any_component_can_count():
    with Pipeline([range(3), Pair()]) as pipeline:
        list(pipeline)
    assert pipeline.stats().stages[1].counters == {"seen": 3}


def test_outside_of_a_pipeline_nobody_sees_what_is_counted():
    source = Counting()
    assert list(source) == list(range(5))
    here().count(source, "seen")
    assert here().counters(source) == {}


def test_two_pipelines_of_one_cache_count_apart():
    cache = Cache(shuffle=False, epochs=2, batched=False)
    pipelines = [Pipeline([[np.arange(2)] * count, cache]) for count in (3, 5)]
    for pipeline in pipelines:
        list(pipeline)
    assert [pipeline.stats().stages[1].counters["samples"] for pipeline in pipelines] == [3, 5]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "data/train",
            r"the text 'data/train', whose items would be its characters; pass a component that reads this path, such as "
            r"ImageFileReader",
        ),
        (Path("data/train"), r"the text 'data/train', whose items"),
        (b"data", r"the text b'data', whose items would be its characters"),
        ({"image": 1}, r"the first stage is a dict, whose items would be its keys; pass \[sample\] if it is one sample"),
    ],
)
def test_what_is_iterated_over_by_characters_or_keys_is_no_source(source, message):
    with pytest.raises(PipelineError, match=message):
        Pipeline([source, str])
    assert list(Pipeline([[source], repr])) == [repr(source)]


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (("data/train",), "the first stage is the text 'data/train', whose items would be its characters"),
        ((Path("data"),), "the first stage is the text 'data'"),
        ((ImageFileReader("data", 32),), r"Pipeline: got ImageFileReader; expected a list of stages, such as Pipeline\(\[source, map"),
        ((range(3), str), r"Pipeline: got range; expected a list of stages"),
    ],
)
def test_stages_without_their_list_are_an_error_that_shows_it(stages, message):
    with pytest.raises(PipelineError, match=message):
        Pipeline(*stages)


def test_a_list_of_transforms_among_the_stages_names_the_stage_that_applies_them():
    with pytest.raises(
        PipelineError, match=r"only the first stage can be a source; to apply a list of transforms, use Augmentations\(\[...\]\)"
    ):
        Pipeline([range(3), [FlipX()]])


@pytest.mark.parametrize("function", [lambda image, label: image, lambda image, label, rng: image])
def test_a_map_of_several_arguments_is_an_error_that_says_how_to_take_an_item_apart(function):
    with pytest.raises(PipelineError, match=r"needs 2 arguments, image, label, but a map receives one.*: unpack the item"):
        Pipeline([[(1, 2)], function])
    with pytest.raises(PipelineError, match=r"needs 2 arguments, image, label, but a map receives one.*: unpack the item"):
        Map(function)


@pytest.mark.parametrize("function", [lambda item, more=1: item, lambda *items: items[0], lambda rng, item: item, str, int])
def test_a_map_that_can_be_called_with_one_argument_is_one(function):
    assert len(list(Pipeline([[1], function]))) == 1


def test_a_misspelt_parameter_of_a_pipeline_or_stage_names_the_right_one():
    with pytest.raises(TypeError, match=r"^unknown parameter 'sead' of Pipeline; did you mean seed\?$"):
        Pipeline([[1]], sead=1)
    with pytest.raises(TypeError, match=r"unknown parameter 'num_worker' of Stage; did you mean num_workers\?"):
        Stage(str, num_worker=2)
