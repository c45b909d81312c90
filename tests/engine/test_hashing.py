"""The hash of all values and code of a stage, by which states and caches are compared."""

import dataclasses
import enum
import functools
import inspect
import json
import logging
import os
import random
import subprocess
import sys
import textwrap
import threading
import typing
from collections import Counter, OrderedDict, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import transform_instances
from hashed_objects import hashes, objects, other_package

from highway import Pipeline, Stage
from highway.datasets import MixedDataset
from highway.engine.hashing import Hasher, UnknownValueError
from highway.engine.hashing.code import text_of
from highway.errors import ConfigError, PipelineError
from highway.modules import (
    Augmentations,
    Batch,
    Concat,
    Deal,
    DecodeBatch,
    DecodeImage,
    ImageFileReader,
    Mix,
    Processes,
    Reader,
    Shuffle,
    Take,
    Tee,
    ZMQSink,
    ZMQSource,
)
from highway.parameters.hints import NAMED, parameters_of
from highway.parameters.ranges import HOW, Unhashed
from highway.topology.components import PACKAGES, built_in
from highway.transforms import FlipX

NUMBERS = list(range(3000))


def values(value, strict=False):
    return Hasher(strict).of(value).values


def state_after(stages, count=20, **how):
    with Pipeline(stages, **how) as pipeline:
        taken = [pipeline.dequeue() for _ in range(count)]
        return taken, json.loads(json.dumps(pipeline.state_dict()))


def rest(stages, state, allow_changed=(), **how):
    with Pipeline(stages, **how) as pipeline:
        pipeline.load_state_dict(state, allow_changed)
        return list(pipeline)


def expect_refused(stages, state, words, **how):
    with pytest.raises(PipelineError, match=words):
        rest(stages, state, **how)


# --- what is refused ---


class Plain:
    def __init__(self, budget):
        self._budget = budget

    def __call__(self, number):
        return number * self._budget


class Slots:
    __slots__ = ("budget",)

    def __init__(self, budget):
        self.budget = budget

    def __call__(self, number):
        return number * self.budget


@dataclass
class Field:
    budget: int

    def __call__(self, number):
        return number * self.budget


@dataclass
class OfInit:
    budget: dataclasses.InitVar[int]

    def __post_init__(self, budget):
        self._by = budget

    def __call__(self, number):
        return number * self._by


class Bound:
    def __init__(self, budget):
        self.budget, self.other = budget, object()

    def scaled(self, number):
        return self._by() * number

    def _by(self):
        return self.budget


def closure(budget):
    def scaled(number):
        return number * budget

    return scaled


def closure_of_a_method(budget):
    class Scaled:
        def __call__(self, number):
            return number * budget

    return Scaled()


def closure_of_another_method(budget):
    """The class derives from the local class, and one of its methods is decorated."""

    def by(function):
        return lambda *args: function(*args) * budget

    class Base:
        def __call__(self, number):
            return self.scaled(number)

        @by
        def scaled(self, number):
            return number

    class Scaled(Base):
        pass

    return Scaled()


def closure_of_a_local_class(budget):
    kind = type(closure_of_a_method(budget))
    return lambda number: kind()(number)


def closure_of_settings(budget):
    settings = Field(budget)
    return lambda number: number * settings.budget


class Getting:
    def __init__(self, budget):
        self._values = {"budget": budget}

    def __getattr__(self, name):
        return self.__dict__["_values"][name]


def closure_of_getting(budget):
    settings = Getting(budget)
    return lambda number: number * settings.budget


def default(by):
    def scaled(number, budget=by):
        return number * budget

    return scaled


def scaled(number, budget):
    return number * (budget if isinstance(budget, int) else len(str(budget)))


def test_values_that_are_deeply_nested_count():
    def chain(length, last):
        value = last
        for _ in range(length):
            value = Plain([value])
        return value

    def of(value):
        return dict(Hasher(strict=False).parameters(Plain(value)))

    assert of(chain(500, 1)) == of(chain(500, 1)) != of(chain(500, 2))


def test_an_object_that_cannot_be_hashed_is_an_error_of_the_state_and_not_of_the_run():
    class Odd:
        __slots__ = ("one",)

        def __getattribute__(self, name):
            raise RuntimeError("no attributes here")

        def __call__(self, number):
            return number

    def build():
        return Pipeline([NUMBERS, Stage(functools.partial(lambda odd, number: number, Odd()), name="odd")])

    with build() as pipeline:
        assert pipeline.dequeue() == 0
        with pytest.raises(PipelineError, match=r"the parameters of odd cannot be hashed: RuntimeError: no attributes here; .*fingerprint"):
            pipeline.state_dict()


class Color(enum.Enum):
    RED = 1
    BLUE = 2


MAPS = {
    "dataclass": (Field, "budget"),
    "init variable": (OfInit, "_by"),
    "plain class": (Plain, "_budget"),
    "slots": (Slots, "budget"),
    "bound method": (lambda budget: Bound(budget).scaled, "self._by"),
    "partial": (lambda budget: functools.partial(scaled, budget=budget), "budget"),
    "partial by position": (lambda budget: functools.partial(lambda one, other: one * other, budget), "argument 0"),
    "closure": (closure, "budget"),
    "closure of a method": (closure_of_a_method, "budget"),
    "closure of a decorator of a base class": (closure_of_another_method, "budget"),
    "closure of a method of a closed-over class": (closure_of_a_local_class, "kind"),
    "attribute of a closure": (closure_of_settings, "settings.budget"),
    "computed attribute of a closure": (closure_of_getting, "settings"),
    "default": (default, "default 0"),
    "nested": (lambda budget: functools.partial(scaled, budget=[Field(budget)]), "budget"),
}


@pytest.mark.parametrize("kind", MAPS)
def test_a_state_names_the_parameter_of_a_map_that_has_changed(kind):
    make, name = MAPS[kind]
    stages = lambda budget: [NUMBERS, Stage(make(budget), name="scale")]  # noqa: E731
    taken, state = state_after(stages(1))
    assert taken + rest(stages(1), state) == rest(stages(1), state_after(stages(1), 0)[1])
    expect_refused(stages(100), state, rf"scale had other parameters.*\(scale: {name}\).*allow_changed=\['scale'\]")
    assert len(rest(stages(100), state, ["scale"])) == 2980


def test_a_buffer_that_decides_the_order_counts():
    _, state = state_after([NUMBERS, Shuffle(200)], 900)
    expect_refused([NUMBERS, Shuffle(20)], state, r"Shuffle had other parameters.*\(Shuffle: buffer_size\)")


def test_what_says_how_to_run_does_not_count():
    def stages(workers, **how):
        reader = Reader(range(200), epochs=workers, num_workers=workers)
        return [Stage(reader, **how), Stage(Field(2), num_workers=workers, **how), Processes([abs], workers, budget_mb=workers)]

    _, state = state_after(stages(1))
    assert len(rest(stages(2, on_error="skip", max_errors=3, buffer_size=5), state)) == 180


def test_epochs_count_inside_of_another_source():
    build = lambda epochs: [Concat([Reader(range(50), epochs=epochs), Reader(range(50), epochs=1)])]  # noqa: E731
    _, state = state_after(build(1))
    expect_refused(build(2), state, "Concat: sources")


def test_a_map_that_stops_to_keep_the_order_is_another_one():
    build = lambda ordered: [NUMBERS, Stage(abs, num_workers=2, ordered=ordered)]  # noqa: E731
    expect_refused(build(False), state_after(build(True))[1], r"abs had other parameters.*\(abs: ordered\)")


VALUES = [
    *[None, True, 1, -1, 1.0, "1", b"1", 1j, 2**5000, (1,), [1], {1}, frozenset({1, 2}), {1: 2}, {2: 1}, {1: 2, 3: 4}, {3: 4, 1: 2}],
    *[Path("/a"), Path("/b"), "/a", Color.RED, Color.BLUE, range(3), range(4), slice(1), date(2020, 1, 1), Decimal("1.0"), Fraction(1, 3)],
    *[np.int32(1), np.int64(1), np.arange(4), np.arange(4.0), np.arange(4).reshape(2, 2), np.dtype("i4"), np.dtype("f4")],
    *[np.array(["a", None], object), np.array(["b", None], object), bytearray(b"1"), deque([1]), deque([2]), OrderedDict(a=1)],
    *[np.random.default_rng(1), np.random.default_rng(2), Field(1), Field(2), Plain(1), Slots(1), str, int, len, abs, "a".join, "b".join],
    *[functools.partial(scaled, budget=1), functools.partial(scaled, budget=2), functools.cache(closure(3)), functools.cache(closure(4))],
    *["x" * 1000, "x" * 999 + "y", [Field(1), Field(1)], [[]], [[], []], [(1, 2)], [[1, 2]], [1, 2], {"a": {"b": Path("/c")}}],
]


def test_values_that_differ_have_hashes_that_differ():
    hashes = Counter(map(values, VALUES))
    assert [value for value in VALUES if hashes[values(value)] > 1] == []


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_a_hash_stays_the_same_for_another_hasher_and_order(value):
    hasher = Hasher(strict=True)
    for other in reversed(VALUES):
        hasher.of(other)
    assert hasher.of(value) == Hasher(strict=True).of(value) == Hasher(strict=False).of(value)


def test_cycles_have_a_hash():
    def ring(last):
        one, other = Plain(1), Plain(last)
        one.other, other.other = other, [one]
        return one

    assert values(ring(1)) == values(ring(1)) != values(ring(2))


@pytest.mark.slow
@pytest.mark.parametrize(
    "large",
    [
        [1, 2] * 5_000_000,
        ["a", "b"] * 5_000_000,
        [Field(1), Field(2)] * 10_000,
        np.zeros(2**27, np.uint8),
        np.zeros(2**27, np.uint8)[::-2],
        "x" * 2**27,
        b"x" * 2**27,
    ],
    ids=["numbers", "texts", "objects", "array", "strides", "text", "bytes"],
)
def test_of_large_values_a_sample_is_hashed_with_the_length(large):
    assert values(large) == values(large) != values(large[1:])


LARGE = {
    "a list of numbers": lambda changed: [*range(700_000), changed, *range(700_000)],
    "a list of texts": lambda changed: [f"{number}.jpg" for number in range(700_000)] + [f"{changed}"] + ["x"] * 700_000,
    "a dict of tuples": lambda changed: {number: (number, [changed if number == 7 else 0]) for number in range(40_000)},
    "a set of numbers": lambda changed: {*range(40_000)} - {20_000 + changed},
    "a set without an order": lambda changed: {(number, None) if number % 2 else (None, number) for number in range(40_000 + changed)},
    "nested dicts": lambda changed: [{"id": number, "at": {"x": [changed if number == 9_999 else 0]}} for number in range(30_000)],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LARGE)
def test_each_entry_of_a_large_container_of_numbers_and_texts_counts(kind):
    make = LARGE[kind]
    assert values(make(1)) == values(make(1)) != values(make(2))


def test_the_hash_of_a_set_depends_on_no_order_of_the_process(monkeypatch):
    code = "from highway.engine.hashing import Hasher; print(Hasher(strict=True).of({f'{n}' for n in range(20_000)}).values.hex())"
    found = set()
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        found.add(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert len(found) == 1


def test_a_list_that_holds_itself_has_a_hash():
    ring = [1]
    ring.append(ring)
    assert values(ring) == values(ring)


def test_the_last_entry_of_a_long_list_counts():
    assert values([*range(20_000), Field(1)]) != values([*range(20_000), Field(2)])


# --- what is accepted ---


class Base:
    """What a class inherits that fills an attribute by its base class."""

    def __init__(self):
        self.inherited, self.totals, self.pool = {}, Counter(), ThreadPoolExecutor(1)

    def _note(self, number):
        self.inherited[number] = number
        self.totals[number] += 1


class Counting(Base):
    """A map that changes itself while it runs, in all ways that there are."""

    def __init__(self, by=2):
        super().__init__()
        self.by, self.calls, self.seen, self.file, self.counts = by, 0, [], None, {}
        self._cache, self._lock, self._array = {}, threading.Lock(), np.zeros(3)

    def __call__(self, number):
        self.calls += 1
        self.seen.append(number)
        self.counts[number % 3] = self.calls
        self._note(number)
        return number * self.doubled

    def _note(self, number):
        super()._note(number)
        self._cache[number] = number
        self._array[number % 3] += 1
        self.file = self.file or open(__file__)  # noqa: SIM115
        self.log = logging.getLogger("x")

    @functools.cached_property
    def doubled(self):
        return self.by * 2


@pytest.mark.parametrize("reused", [False, True])
def test_what_a_map_changes_while_it_runs_does_not_count(reused):
    maps = [Counting()] * 2 if reused else [Counting(), Counting()]
    taken, state = state_after([NUMBERS, maps[0]], 500)
    found = taken + rest([NUMBERS, maps[1]], state)
    assert found == [number * 4 for number in NUMBERS]
    expect_refused([NUMBERS, Counting(3)], state, "Counting: by")
    for part in maps:
        part.file.close()


class Noting:
    """Changes its own parameters while it runs, as far as can be seen."""

    def __init__(self, budget):
        self.settings, self._by, self.calls, self.seen = {"by": budget}, budget, 0, {}

    def __call__(self, number):
        self.settings["last"] = number
        self._by = self._by + 0
        self.calls += 1
        self.seen[number] = number
        return number * self.settings["by"] * self._by


def noting(budget):
    settings = {"by": budget}

    def note(number):
        settings["last"] = number
        return number * settings["by"]

    return note


class NotingInside:
    def __init__(self, budget):
        self.inner = Noting(budget)

    def __call__(self, number):
        return self.inner(number)


CHANGING = {
    "attributes": (Noting, "Noting._by, Noting.settings"),
    "closure": (noting, "settings"),
    "attributes of an attribute": (NotingInside, "Noting._by, Noting.settings"),
    "local class": (lambda budget: type("Local", (Noting,), {})(budget), "Local._by, Local.settings"),
}


@pytest.mark.parametrize("kind", CHANGING)
def test_a_value_that_a_map_also_changes_is_named_if_it_is_not_what_it_was(kind, caplog):
    make, names = CHANGING[kind]
    stages = lambda budget: [NUMBERS, Stage(make(budget), name="note")]  # noqa: E731
    _, state = state_after(stages(1))
    with caplog.at_level("WARNING", "highway"):
        assert len(rest(stages(1), state)) == 2980 and caplog.text == ""
        assert len(rest(stages(100), state)) == 2980
    assert f"load_state_dict: {names} of note has changed since the state was saved" in caplog.text


@pytest.mark.parametrize("kind", CHANGING)
def test_a_cache_names_the_values_that_a_map_before_it_changes(kind, caplog):
    from highway.modules.caching.fingerprint import fingerprint

    make, names = CHANGING[kind]
    fingerprint([Reader(NUMBERS), make(1)])
    assert f"Cache: maps before the cache refer to {names}, whose changes the cache cannot detect" in caplog.text


def test_values_that_a_map_changes_are_hashed_in_part_and_after_its_parameters():
    def hashed(entries):
        noting, hasher = Noting(2), Hasher(strict=False)
        noting.settings.update((number, "x" * 1000) for number in range(entries))
        return dict(hasher.parameters(noting)), hasher.hashes_of_changing()

    (few, one), (many, other) = hashed(1), hashed(100_000)
    assert few == many and one.keys() == other.keys() and one != other


class Trainer:
    """What a training script often holds all of: options, the step, maps as methods."""

    def __init__(self, scale, checkpoint):
        self.options = SimpleNamespace(scale=scale, checkpoint=checkpoint)
        self.step = 7 if checkpoint else 0

    def prepare(self, number):
        self.step += 1
        return self._scaled(number)

    def _scaled(self, number):
        return number * self.options.scale

    def stages(self):
        return [NUMBERS, self.prepare, Stage(lambda number: number + self.options.scale, name="add")]


def test_of_the_object_of_a_method_or_closure_only_what_is_read_counts():
    _, state = state_after(Trainer(2, None).stages())
    assert rest(Trainer(2, "checkpoint").stages(), state)[0] == 42
    expect_refused(Trainer(3, "checkpoint").stages(), state, r"\(prepare: self._scaled; add: self.options.scale\)")


def test_what_a_function_fills_or_counts_does_not_count():
    made, counts, total = [], Counter(), 0

    def note(number):
        nonlocal total
        total += 1
        made.append(number)
        counts[number % 2] += 1
        return number

    _, state = state_after([NUMBERS, note], 500)
    assert made and len(rest([NUMBERS, note], state)) == 2500


def test_ordinary_objects_give_states_that_can_be_loaded(tmp_path):
    def build():
        lock, log, event, file = threading.Lock(), logging.getLogger("a"), threading.Event(), open(__file__)  # noqa: SIM115
        local, generator, module = threading.local(), (n for n in "ab"), json

        def change(number):
            with lock:
                log.debug("%s %s %s %s %s", event.is_set(), file.closed, local, generator, module.dumps(number))
            return number

        change.file = file
        return [NUMBERS, change, Stage(lambda number: number + 1), Tee(log.debug)]

    first, second = build(), build()
    _, state = state_after(first)
    assert len(rest(second, state)) == 2980
    for stages in (first, second):
        stages[1].file.close()


@pytest.mark.filterwarnings("ignore")  # of files and loops that are left to the garbage collector
def test_objects_of_other_packages_are_the_same_when_they_are_used_or_built_again(tmp_path):
    changed = {}
    for name, (build, use) in objects(tmp_path).items():
        one, other = build(), build()
        before = hashes(one)
        use(one)
        if not before == hashes(other) == hashes(one):
            changed[name] = before, hashes(other), hashes(one)
    assert changed == {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_objects_of_other_packages_are_the_same_in_another_process(tmp_path):
    script = [sys.executable, "-W", "ignore", Path(__file__).parent / "hashed_objects.py", tmp_path]
    one, other = (
        subprocess.run(script, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, timeout=300) for seed in "12"
    )
    assert one.returncode == 0, one.stderr
    assert one.stdout == other.stdout


def test_what_is_handed_to_objects_of_other_packages_counts(tmp_path):
    other = other_package(tmp_path)
    found = [
        *[other.Lookup({"k": 1}), other.Lookup({"k": 2}), other.Lookup({"k": 1}, 2), other.Pickled({"k": 1}), other.Pickled({"k": 2})],
        *[other.Wrapped("ab"), other.Wrapped("ac"), other.Scaler(), other.Scaler(2), other.Scaler().fit(1), other.Scaler().fit(2)],
    ]
    assert len({values(one) for one in found}) == len(found)


def test_a_state_names_what_cannot_be_compared(caplog):
    build = lambda: [NUMBERS, Stage(functools.partial(lambda rng, n: n, random.Random(1)), name="odd"), Stage(abs)]  # noqa: E731
    _, state = state_after(build())
    with caplog.at_level("WARNING", "highway"):
        assert len(rest(build(), state)) == 2980
    assert "highway cannot tell whether argument 0 (Random) of odd has changed since the state was saved" in caplog.text
    assert caplog.text.count("cannot tell whether") == 1


def test_a_model_that_is_trained_is_known_by_its_class_and_a_frozen_one_by_its_weights():
    torch = pytest.importorskip("torch")

    def build(scale, is_trained):
        model = torch.nn.Linear(1, 1)
        model.weight.data.fill_(scale)
        model.requires_grad_(is_trained)
        return [NUMBERS, Stage(lambda number: model(torch.tensor([float(number)])), name="model")]

    _, state = state_after(build(1.0, True))
    assert len(rest(build(2.0, True), state)) == 2980
    _, state = state_after(build(1.0, False))
    expect_refused(build(2.0, False), state, "model: model")


def test_buffers_of_a_model_that_is_trained_do_not_count_and_its_other_attributes_do():
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):
        def __init__(self, scale):
            super().__init__()
            self.norm, self._scale = torch.nn.BatchNorm1d(1), scale

        def forward(self, number):
            return self.norm(torch.tensor([[1.0], [float(number)]])) * self._scale

    model = Model(2)
    _, state = state_after([NUMBERS, model])
    assert len(rest([NUMBERS, model.eval()], state)) == 2980
    expect_refused([NUMBERS, Model(3)], state, "Model: _scale")


class CountsInside:
    """Counts in another object, where the hash of the map cannot see that it is a count."""

    def __init__(self):
        self.inner = SimpleNamespace(calls=0)

    def __call__(self, number):
        vars(self.inner)["calls"] = number
        return number


class ReadsInside(CountsInside):
    def __len__(self):
        return 3000

    def __getitem__(self, number):
        return self(number)


def test_stages_are_hashed_before_they_change_in_a_loop_over_a_device_loader_too():
    pytest.importorskip("torch")
    from highway.adapters.torch import DataLoader, to_device

    with Pipeline([NUMBERS, CountsInside()]) as pipeline, to_device(pipeline, "cpu") as loader:
        assert int(next(iter(loader))) == 0
        state = pipeline.state_dict()
    assert rest([NUMBERS, CountsInside()], state)[0] == 1

    def loaded():
        return DataLoader(ReadsInside(), batch_size=4)

    with loaded() as loader, to_device(loader, "cpu") as on_device:
        assert next(iter(on_device)).tolist() == [0, 1, 2, 3]
        state = loader.state_dict()
    with loaded() as loader:
        loader.load_state_dict(state)
        assert next(iter(loader)).tolist() == [4, 5, 6, 7]


def test_a_dataset_is_known_by_the_values_that_it_holds():
    class Dataset:
        def __init__(self, names, root):
            self.names, self.root, self._opened = names, root, None

        def __len__(self):
            return len(self.names)

        def __getitem__(self, number):
            self._opened = self._opened or (self.root, object())
            return len(self.names[number])

    build = lambda last, root="a": [Reader(Dataset([*"abcdefgh"] * 50 + [last], Path(root)), epochs=2)]  # noqa: E731
    _, state = state_after(build("x"))
    assert len(rest(build("x"), state)) == 381
    expect_refused(build("y"), state, r"Reader had other parameters or other data.*\(Reader: dataset\)")
    expect_refused(build("x", "b"), state, "Reader: dataset")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda by: [Pipeline([NUMBERS, Field(by)], seed=3)], "Pipeline"),
        (lambda by: [Mix([Pipeline([NUMBERS, Stage(Field(by), num_workers=2)]), range(5)])], "Mix"),
        (lambda by: [NUMBERS, Processes([Field(by)], 1)], "Processes"),
    ],
    ids=["pipeline", "mix", "processes"],
)
def test_changes_inside_of_a_component_are_refused_and_can_be_allowed(build, name):
    _, state = state_after(build(1), 10)
    expect_refused(build(2), state, f"{name}.*had other parameters")
    assert len(rest(build(2), state, [name])) == len(rest(build(1), state)) >= 2990


@pytest.mark.slow
def test_the_stages_of_an_isolated_pipeline_are_compared_in_its_parent():
    _, state = state_after([NUMBERS, Scale(2)], isolated=True)
    expect_refused([NUMBERS, Scale(3)], state, "Scale: by", isolated=True)
    assert rest([NUMBERS, Scale(3)], state, ["Scale"], isolated=True)[0] == 60
    assert rest([NUMBERS, Scale(2)], state)[0] == 40


@dataclass
class Scale:
    by: int
    lock: object = field(default_factory=threading.Lock)

    def __getstate__(self):
        return {"by": self.by}

    def __setstate__(self, state):
        self.by, self.lock = state["by"], None

    def __call__(self, number):
        return number * self.by


# --- allow_changed ---


def test_changes_that_are_allowed_are_logged(caplog):
    _, state = state_after([Reader(range(300), epochs=1), Batch(3)])
    with caplog.at_level("WARNING", "highway"):
        rest([Reader(range(301), epochs=1), Batch(4)], state, ["Reader", "Batch"])
    assert "Reader.row_ranges has changed (dataset, its data" in caplog.text
    assert "Batch has changed (batch_size), which allow_changed accepts" in caplog.text


def test_only_the_stages_that_are_named_may_have_changed():
    _, state = state_after([NUMBERS, Batch(3), Shuffle(5)])
    expect_refused([NUMBERS, Batch(4), Shuffle(6)], state, r"Shuffle had other", allow_changed=["Batch"])
    expect_refused([NUMBERS, Batch(4), Shuffle(6)], state, r"Batch, Shuffle had other.*allow_changed=\['Batch', 'Shuffle'\]")
    expect_refused(
        [NUMBERS, Batch(3), Shuffle(5)], state, "contains 'Btch', .*; the stages are list, Batch, Shuffle", allow_changed=["Btch"]
    )


def test_a_data_loader_hands_on_which_stages_may_have_changed():
    pytest.importorskip("torch")
    from highway.adapters.torch import DataLoader, to_device

    with DataLoader(Pipeline([Reader(NUMBERS), Batch(3)])) as loader:
        loop = iter(loader)
        next(loop)
        state = loader.state_dict()
    for wrap in (lambda loader: loader, lambda loader: to_device(loader, "cpu")):
        with DataLoader(Pipeline([Reader(NUMBERS), Batch(4)])) as loader:
            wrapped = wrap(loader)
            with pytest.raises(PipelineError, match="Batch had other parameters"):
                wrapped.load_state_dict(state)
            wrapped.load_state_dict(state, allow_changed=["Batch"])
            assert len(next(iter(wrapped))) == 4
    with DataLoader(NUMBERS, batch_size=3) as loader:
        state = loader.state_dict()
    with DataLoader(NUMBERS, batch_size=4) as loader:
        with pytest.raises(PipelineError, match=r"batch_size=4, was 3; .*allow_changed=\['batch_size'\]"):
            loader.load_state_dict(state)
        with pytest.raises(
            PipelineError, match="allow_changed contains size, which is not a compared parameter; the compared parameters are samples"
        ):
            loader.load_state_dict(state, ["size"])
        loader.load_state_dict(state, ["batch_size"])


# --- code ---

HEAD = "import functools\nfrom dataclasses import dataclass\n"
CODE = {
    "body": ("def f(n): return n + 1", "def f(n): return n + 2"),
    "lambda": ("f = lambda n: n + 1", "f = lambda n: n + 2"),
    "lambda after a comment": ("f = lambda n: n + 1\n# lambda", "f = lambda n: n + 2"),
    "method": ("class F:\n  def __call__(self, n): return n + 1\nf = F()", "class F:\n  def __call__(self, n): return n + 2\nf = F()"),
    "cache": ("@functools.cache\ndef f(n): return n + 1", "@functools.cache\ndef f(n): return n + 2"),
    "helper with a cache": (
        "@functools.lru_cache\ndef g(n): return n + 1\ndef f(n): return g(n)",
        "@functools.lru_cache\ndef g(n): return n + 2\ndef f(n): return g(n)",
    ),
    "method with a cache": (
        "class F:\n  @functools.cache\n  def g(self, n): return n + 1\n  def __call__(self, n): return self.g(n)\nf = F()",
        "class F:\n  @functools.cache\n  def g(self, n): return n + 2\n  def __call__(self, n): return self.g(n)\nf = F()",
    ),
    "static method": (
        "class F:\n  @staticmethod\n  def g(n): return n + 1\n  def __call__(self, n): return self.g(n)\nf = F()",
        "class F:\n  @staticmethod\n  def g(n): return n + 2\n  def __call__(self, n): return self.g(n)\nf = F()",
    ),
    "class attribute": (
        "class F:\n  K = 1\n  def __call__(self, n): return n + self.K\nf = F()",
        "class F:\n  K = 2\n  def __call__(self, n): return n + self.K\nf = F()",
    ),
    "attribute of a base": (
        "class B:\n  K = 1\nclass F(B):\n  def __call__(self, n): return n + self.K\nf = F()",
        "class B:\n  K = 2\nclass F(B):\n  def __call__(self, n): return n + self.K\nf = F()",
    ),
    "attribute of another class": (
        "class C:\n  K = 1\ndef f(n): return n + C.K",
        "class C:\n  K = 2\ndef f(n): return n + C.K",
    ),
    "value of a module": ("import other\ndef f(n): return n + other.K", "import other\nother.K = 2\ndef f(n): return n + other.K"),
    "function of a module": (
        "import other\ndef f(n): return other.h(n)",
        "import other\ndef f(n): return other.h(n)\nother.h = lambda n: n + 2",
    ),
    "property": (
        "class F:\n  @property\n  def k(self): return 1\n  def __call__(self, n): return n + self.k\nf = F()",
        "class F:\n  @property\n  def k(self): return 2\n  def __call__(self, n): return n + self.k\nf = F()",
    ),
}


def module_of(text, folder, monkeypatch):
    """Return the module ``users_code`` with this text, which imports a module ``other``; the files are newer than this process."""
    (folder / "other.py").write_text("K = 1\ndef h(n): return n + 1\n")
    (folder / "users_code.py").write_text(HEAD + text)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in ("users_code", "other"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import users_code

    return users_code


@pytest.mark.parametrize("kind", CODE)
def test_another_code_makes_a_cache_anew_and_warns_of_a_state(kind, tmp_path, monkeypatch, caplog):
    from highway.modules.caching.fingerprint import fingerprint

    old, new = (tmp_path / name for name in ("old", "new"))
    folders = []
    for text, folder in zip(CODE[kind], (old, new), strict=True):
        folder.mkdir()
        first = module_of(text, folder, monkeypatch).f
        known, _ = fingerprint([Reader(NUMBERS), first]), first
        assert known == fingerprint([Reader(NUMBERS), module_of("# a comment\n" + text, folder, monkeypatch).f])
        folders.append((known, [NUMBERS, Stage(first, name="f")]))
    (before, stages), (after, changed) = folders
    assert before != after
    _, state = state_after(stages)
    with caplog.at_level("WARNING", "highway"):
        assert len(rest(stages, state)) == 2980 and caplog.text == ""
        assert len(rest(changed, state)) == 2980
    assert "the code of f, or a value that this code reads from its class or module" in caplog.text


def test_what_a_cache_cannot_see_is_named(caplog, tmp_path, monkeypatch):
    from highway.modules.caching.fingerprint import fingerprint

    unseen = module_of("lines = (n for n in range(3))\ndef f(n): return n + next(lines)", tmp_path, monkeypatch).f
    fingerprint([Reader(NUMBERS), unseen])
    assert "Cache: maps before the cache refer to lines, whose changes the cache cannot detect" in caplog.text
    with pytest.raises(ConfigError, match=r"<generator .*> in <.*Plain object.*key="):
        fingerprint([Reader(NUMBERS), Plain(n for n in range(3))])
    with pytest.raises(UnknownValueError):
        values(open, strict=True) and values(iter(lambda: 1, 2), strict=True) and values(threading.local(), strict=True) and values(
            (n for n in "a"), strict=True
        )


SCRIPT = """
    import sys, json
    from pathlib import Path
    from highway import Pipeline, Stage
    from highway.modules import Reader, Shuffle
    {comment}
    class Scale:
        def __init__(self, by): self.by = {{"by", by, str(by)}}
        def __call__(self, n):
            return n, len(self.by)  {comment}
    if __name__ == "__main__":
        stages = [Reader(list(range(500)), epochs=1), Scale(2), Stage(lambda n: n, name="same"), Shuffle(9)]
        with Pipeline(stages, isolated={isolated}) as pipeline:
            if len(sys.argv) > 1:
                pipeline.load_state_dict(json.loads(Path(sys.argv[1]).read_text()))
            else:
                for _ in range(10): pipeline.dequeue()
                print(json.dumps(pipeline.state_dict()))
"""


@pytest.mark.slow
def test_a_hash_is_the_same_in_other_processes_and_under_other_names(tmp_path):
    def run(name, *args, seed, **text):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(SCRIPT).format(**text).replace("lambda n: n", "str" if text["isolated"] else "lambda n: n"))
        done = subprocess.run([sys.executable, path, *args], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and done.stderr == "", done.stderr
        return done.stdout

    state = tmp_path / "state"
    for isolated in (False, True):
        state.write_text(run("a.py", seed="1", comment="", isolated=isolated))
        assert (
            run("other/b.py", state, seed="2", comment="# new", isolated=isolated) == ""
        )  # no warning: the code is the same but for comments


def test_a_function_is_known_by_its_source_without_comments():
    assert text_of(closure.__code__) == "def closure(budget):\n\n    def scaled(number):\n        return number * budget\n    return scaled"
    assert text_of((lambda number: number + 1).__code__) == "lambda number: number + 1"


# --- all components ---


def other_than(value, hint):
    """Yield values that a parameter with this hint may have besides; not all fit the other parameters."""
    arguments = typing.get_args(hint)
    for part in (hint, *arguments, *(inner for argument in arguments for inner in typing.get_args(argument))):
        if typing.get_origin(part) is typing.Literal:
            yield from typing.get_args(part)
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, (int, float)):
        yield from (value + 1, value / 2, value * 2, value - 1)
    elif isinstance(value, str):
        yield from (value + "x", "s3://b/" + value)
    elif isinstance(value, tuple):
        yield from (tuple(part * by for part in value if isinstance(part, (int, float))) for by in (2, 0.5))
    yield from (1, 3, 0.3, "name", (7, 9), [1], ["name"], {"a": "b"}, scaled, range(5), False, True, "uint8", "pad", [(2, 3)])
    yield from ([FlipX()], (FlipX(),), Deal("pixels"), {"a": 2})


GIVEN = {
    "batch_sizes": [1, 2],
    "boundaries": [3],
    "data_dir": "d",
    "dataset": range(3),
    "datasets": [[1]],
    "fn": abs,
    "maps": [abs],
    "path": "data-%06d.tar",
    "shape": (8, 8),
    "sources": [range(3)],
}
TRIED = (2, 1, 0.5, "name", (8, 8), [1], ["name"], {"a": "b"}, abs, [])
NOT_TRIED = {"Albumentations", "ColorSpace", "HuggingFace", "OneOf", "SomeOf", "TorchvisionV2"}  # they need a package, or are in a table
INSTANCES = [  # with parameters that depend on each other
    Augmentations(boxes=1, points=2, with_boxes=["a"], with_points=["b"], swap_points=[(0, 1)]),
    Batch(4, ragged="pad", fields=["a"], multiple=2, pad_to=9, fill=1),
    Reader(range(3), 4, ragged="pad", fields=["a"], multiple=2, pad_to=9, fill=1),
    DecodeBatch((8, 8)),
    DecodeImage(shape=(8, 8)),
    MixedDataset([[1]], stop="restart", length=3),
    ZMQSink("zpush://127.0.0.1:1"),
    ZMQSource("zpull://127.0.0.1:1"),
]
for table in ("KEEPING", "SIZING", "FLOATING", "BYTES", "COLORS", "COMPOSED"):
    INSTANCES += getattr(transform_instances, table)


def instances_by_hints():
    """Yield an instance of each component with arguments that fit its hints."""
    made = {type(one).__name__ for one in INSTANCES}
    for cls in (cls for package in PACKAGES for cls in built_in(package).values()):
        needed = [name for name, one in parameters_of(cls).items() if one.default is one.empty and one.kind in NAMED]
        is_made = False
        for sizes in ({}, {"batch_size": 4}, {"batch_size": None, "global_batch_size": 4}):  # image readers need one of the two
            for tried in TRIED:
                try:
                    yield cls(**{name: GIVEN.get(name, tried) for name in needed}, **sizes)
                except (ConfigError, ValueError, TypeError):
                    continue
                is_made = True
                break
        assert is_made or cls.__name__ in NOT_TRIED | made, f"{cls.__name__}({', '.join(needed)})"


def is_unhashed(hint):
    noted = any(isinstance(note, Unhashed) for note in getattr(hint, "__metadata__", ()))
    return noted or (typing.get_origin(hint) is typing.Annotated and is_unhashed(typing.get_args(hint)[0]))


def hashed(component):
    return {name: part.values for name, part in Hasher(strict=False).parameters(component)}


def test_every_parameter_of_every_component_counts_unless_its_annotation_says_otherwise():
    left, tried, unhashed = set(), set(), set()
    for component in filter(dataclasses.is_dataclass, [*INSTANCES, *instances_by_hints()]):
        before = hashed(component)
        assert before == hashed(component)
        for name, parameter in parameters_of(type(component)).items():
            if not any(one.name == name and one.init for one in dataclasses.fields(component)):
                continue
            for value in other_than(getattr(component, name), parameter.annotation):
                try:
                    changed = dataclasses.replace(component, **{name: value})
                except (ConfigError, ValueError, TypeError):
                    continue
                if repr(getattr(changed, name)) == repr(getattr(component, name)):
                    continue
                if is_unhashed(parameter.annotation):
                    unhashed.add(name)
                    assert hashed(changed) == before, f"{component}: {name}={value!r} does not change the items"
                else:
                    assert hashed(changed) != before, f"{component}: {name}={value!r} is not seen"
                tried.add((type(component), name))
                break
            else:
                left.add((type(component), name))
    assert unhashed == {"num_workers", "epochs", "times", "rank", "world_size", "num_processes", "budget_mb"}
    assert len(tried) > 500 and len(left - tried) < 25, left - tried


def test_every_setting_of_a_stage_that_changes_items_counts():
    assert {name for name, one in inspect.signature(Stage).parameters.items() if HOW not in notes(Stage, name)} == {"op", "ordered", "name"}


def notes(cls, name):
    return getattr(parameters_of(cls)[name].annotation, "__metadata__", ())


def test_the_order_of_a_reader_counts():
    _, state = state_after([ImageFileReader("highway:photos/val", 4, (8, 8))], 2)
    expect_refused([ImageFileReader("highway:photos/val", 4, (8, 8), flip=0.5), Take(1)], state, "saved by")
    expect_refused([ImageFileReader("highway:photos/val", 4, (8, 8), flip=0.5)], state, r"\(ImageFileReader: flip\)")
