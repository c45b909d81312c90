"""The declarations of a component: one member, read once; and the attributes by which version 0.1.0 declared them."""

import json
import warnings
from dataclasses import dataclass
from typing import ClassVar

import pytest

from highway import DROP, Passport, Pipeline, Stage, Stamped, Traits
from highway.errors import PipelineError
from highway.modules import Batch, Cache, Concat, Identity, Repeat, Shuffle

reads = []


class Source:
    """A source that declares its length and epochs."""

    def __highway__(self):
        reads.append("source")
        return Traits(length=lambda: 6, numbers_epochs=True, epochs=2, ranks=list, remake=lambda epoch, index, part: index)

    def __iter__(self):
        for epoch in range(2):
            for index in range(6):
                yield Stamped(index, Passport(epoch, index))


class Map:
    """A map that drops items."""

    def __highway__(self):
        reads.append("map")
        return Traits(drops=True)

    def __call__(self, item):
        return DROP if item % 2 else item


class Pairs:
    """A stream that begins anew with each epoch."""

    def __highway__(self):
        reads.append("stream")
        return Traits(per_epoch=True, length=lambda items: items // 2)

    def stream(self, items):
        yield from zip(items, items, strict=False)


class Print:
    """A sink."""

    def __highway__(self):
        reads.append("sink")
        return Traits()

    def consume(self, items):
        for _ in items:
            pass


def test_a_component_declares_its_traits_in_one_member_that_is_read_once():
    reads.clear()
    with Pipeline([Source(), Stage(Map(), num_workers=2, name="each"), Pairs()]) as pipeline:
        assert reads == ["source", "map", "stream"]
        assert [list(pipeline) for _ in range(2)] == [[(0, 2)]] * 2
        pipeline.stats()
        with pytest.raises(TypeError, match=r"each declares to drop items"):
            len(pipeline)
    Pipeline([Source(), Print()], start=False).run()
    assert reads == ["source", "map", "stream", "source", "sink"]


def test_a_state_reads_the_declarations_no_second_time():
    reads.clear()
    with Pipeline([Source(), Batch(2)]) as pipeline:
        pipeline.dequeue()
        pipeline.stats()
        with pytest.raises(PipelineError, match="Source does not report its position"):
            pipeline.state_dict()
    assert reads == ["source"]


def test_what_is_no_record_is_an_error_that_shows_the_record():
    class Wrong:
        def __highway__(self):
            return {"length": 3}

        def __call__(self, item):
            return item

    with pytest.raises(PipelineError, match=r"Wrong.__highway__\(\) returned \{'length': 3\}; expected highway.Traits\(...\)"):
        Pipeline([[1], Wrong()])


def test_a_record_can_not_be_changed_and_takes_names_alone():
    with pytest.raises(AttributeError):
        Traits().length = len
    with pytest.raises(TypeError):
        Traits("batches")


class OwnWords:
    """A component with helpers and properties of its own, which have the names of declarations."""

    touched: ClassVar = []
    stands_for = "peace"
    makes = "cars"
    finishes = None
    parallel = "yes"

    def after(self, t):
        self.touched.append("after")

    def ahead(self, steps):
        self.touched.append("ahead")

    def fingerprint(self, finger):
        self.touched.append("fingerprint")

    def start_threads(self, count):
        self.touched.append("start_threads")

    def remake(self):
        self.touched.append("remake")

    @property
    def identity(self):
        raise RuntimeError("this object has no identity yet")

    @property
    def length(self):
        self.touched.append("length")
        return 7

    @property
    def epochs(self):
        self.touched.append("epochs")
        return 9

    @property
    def numbers_epochs(self):
        self.touched.append("numbers_epochs")
        return True

    @property
    def seed(self):
        raise RuntimeError("this object has no seed yet")


class OwnSource(OwnWords):
    """A source."""

    def __iter__(self):
        yield from range(3)


class OwnMap(OwnWords):
    """A map."""

    def __call__(self, item):
        return item + 1


class OwnStream(OwnWords):
    """A stream."""

    def stream(self, items):
        yield from items


class OwnSink(OwnWords):
    """A sink."""

    def consume(self, items):
        self.items = list(items)


def test_members_of_the_users_own_with_the_names_of_declarations_are_left_alone(tmp_path):
    OwnWords.touched.clear()
    with Pipeline([OwnSource(), OwnMap(), OwnStream()]) as pipeline:
        assert list(pipeline) == [1, 2, 3]
        with pytest.raises(PipelineError, match="does not report its position"):
            pipeline.state_dict()
    sink = OwnSink()
    Pipeline([Repeat(Concat([OwnSource()]), 2), OwnMap(), sink], start=False).run()
    assert sink.items == [1, 2, 3] * 2
    with Pipeline([range(3), OwnMap(), Cache(str(tmp_path), key="own", epochs=2, shuffle=False, batched=False)]) as pipeline:
        assert [int(item) for item in pipeline] == [1, 2, 3]
    assert OwnWords.touched == []


def test_a_state_of_a_pipeline_with_such_a_map_is_exact():
    def items():
        return Pipeline([list(range(20)), OwnMap(), Shuffle(5)])

    with items() as first:
        begin = [first.dequeue() for _ in range(7)]
        state = json.loads(json.dumps(first.state_dict()))
        rest = list(first)
    with items() as second:
        second.load_state_dict(state)
        assert list(second) == rest and sorted(begin + rest) == list(range(1, 21))
    assert OwnWords.touched == []


@dataclass
class OldSource:
    """A source as version 0.1.0 declares it."""

    numbers_epochs = True
    skips_epochs = True  # which is the default

    epochs: int = 2

    def length(self):
        return 3

    def identity(self):
        return "numbers"

    def __iter__(self):
        for epoch in range(self.epochs):
            for index in range(3):
                yield Stamped(index, Passport(epoch, index))


def test_the_attributes_of_version_0_1_0_work_with_one_warning_that_names_both_forms():
    with pytest.warns(FutureWarning) as caught:
        pipelines = [Pipeline([OldSource()]) for _ in range(2)]
    assert [str(one.message) for one in caught] == [
        "OldSource declares numbers_epochs, epochs, length, identity by an attribute, which highway reads until version 0.3; return "
        "Traits(numbers_epochs=...), Traits(epochs=...), Traits(length=...), Traits(identity=...) from its method __highway__(self)"
    ]
    for pipeline in pipelines:
        with pipeline:
            assert len(pipeline) == 3 and pipeline.epochs == 2
            assert [list(pipeline) for _ in range(2)] == [[0, 1, 2]] * 2


def test_each_old_attribute_of_the_right_type_and_shape_is_read():
    class OldStream:
        per_epoch = whole_epochs = repeats = True
        makes, one_to_one = "batches", "reordered"
        parallel = drops = True  # of maps

        def length(self, items):
            return items

        def remake(self, inputs, part):
            return inputs[0]

        def after(self, stages):
            return [*stages, Stage(self)]

        def stream(self, items):
            yield from items

    class OldMap:
        parallel = drops = True
        draws = False
        per_epoch = True  # of streams

        def ahead(self):
            return None

        def __call__(self, item):
            return item

    class Sunk:
        def __init__(self):
            self.makes = "samples"

        def start_threads(self):
            pass

        def consume(self, items):
            pass

    for op, names in [
        (OldStream(), "makes per_epoch one_to_one whole_epochs repeats length remake after"),
        (OldMap(), "drops parallel draws ahead"),
        (Sunk(), "makes start_threads"),
    ]:
        with pytest.warns(FutureWarning, match=f"declares {', '.join(names.split())} by"):
            traits = Traits.of(op)
        declared = {name: getattr(op, name) for name in names.split()}
        if "ahead" in declared:
            assert traits.ahead(None) is declared["ahead"]()
            declared["ahead"] = traits.ahead  # which receives a context now
        assert traits == Traits(**declared)


def test_a_class_that_declares_its_traits_may_have_old_attributes_for_other_uses():
    class Both:
        numbers_epochs = True

        def __highway__(self):
            return Traits(makes="samples")

        def __iter__(self):
            yield from range(3)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Traits.of(Both()) == Traits(makes="samples")


def test_old_attributes_of_a_class_that_extends_one_of_highways_count_too():
    class Slow(Identity):
        draws = False

    with pytest.warns(FutureWarning, match=r"Slow declares draws by an attribute"):
        assert Traits.of(Slow()) == Traits(parallel=True, draws=False)
