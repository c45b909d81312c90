"""A state is refused if a parameter has changed, unless the parameter's own annotation declares that it does not change the items."""

import dataclasses
import inspect
import itertools
import json
import operator
import queue
import typing

import numpy as np
import pytest

import highway.modules
from highway import Pipeline, Stage
from highway.engine.hashing import Hasher
from highway.errors import ConfigError
from highway.modules import Batch, Deal, Processes, Reader, Repeat, Shuffle
from highway.parameters.hints import parameters_of
from highway.parameters.ranges import Unhashed
from highway.transforms import FlipX, FlipY, RandomResizedCrop

NUMBERS = list(range(40))
NUMBERED = ["ArrayRecordSink", "ArrowSink", "HDF5Sink", "NpzSink", "ParquetSink", "ShardSink", "TFRecordSink"]
NEEDED = {name: {"path": "a-%06d.x"} for name in NUMBERED} | {  # what the constructors of components need
    "Augmentations": {"transforms": [FlipX()], "boxes": "boxes", "points": "points"},
    "Batch": {"batch_size": 2},
    "BatchByShape": {"batch_size": 2},
    "Bucket": {"boundaries": [3], "batch_sizes": [2, 2]},
    "Concat": {"sources": [[1], [2]]},
    "ConcatThenSplit": {"length": 3},
    "ContactSheet": {"path": "a.png"},
    "CopyPaste": {"boxes": "boxes", "mask": "mask"},
    "Deal": {"cost": "pixels"},
    "DecodeBatch": {"shape": (8, 8)},
    "DecodeImage": {"shape": (8, 8)},
    "Duplicate": {"times": 2},
    "EncodedImageReader": {"data_dir": "a", "batch_size": 2},
    "FromQueue": {"queue": queue.Queue()},
    "HuggingFaceSource": {"dataset": "a"},
    "ImageFileReader": {"data_dir": "a", "batch_size": 2, "shape": (8, 8)},
    "ImageReader": {"data_dir": "a", "batch_size": 2, "shape": (8, 8)},
    "Map": {"fn": abs},
    "Mix": {"sources": [[1], [2]]},
    "Mosaic": {"shape": (8, 8), "boxes": "boxes"},
    "Pack": {"length": 3},
    "Processes": {"maps": [abs]},
    "Reader": {"dataset": NUMBERS, "batch_size": 2},
    "Rename": {"names": {0: "x"}},
    "Repeat": {"source": NUMBERS},
    "Select": {"fields": ["x"]},
    "Shuffle": {"buffer_size": 3},
    "FixedEpochs": {"size": 3},
    "Take": {"n": 3},
    "Tee": {"fn": abs},
    "TenSink": {"data_dir": "a"},
    "TenSource": {"paths": ["a.ten"]},
    "Unbatch": {"ragged": "pad"},
    "VOCReader": {"data_dir": "a"},
    "WebDatasetSource": {"urls": "a.tar"},
    "Zip": {"sources": [[1], [2]]},
}
ELSEWHERE = {  # components of other packages, which need not be here, and ends of links, whose states are refused whatever they hold
    *("Albumentations", "TorchvisionV2", "ZMQSource", "ZMQSink"),
}
TOGETHER = {  # what has to be given, too
    "rank": {"world_size": 3},
    "world_size": {"rank": 0},
    "crop": {"shape": None},
    "fields": {"ragged": "offsets"},
    "multiple": {"ragged": "pad"},
    "pad_to": {"ragged": "pad"},
    "fill": {"ragged": "pad"},
    "global_batch_size": {"batch_size": None},
}
CANDIDATES = [
    *(
        True,
        False,
        1,
        2,
        5,
        0,
        64,
        0.25,
        0.75,
        (16, 16),
        (0.1, 0.2),
        "label",
        "float32",
        "b.tar",
        "b.ten",
        "b-%06d.tar",
        "{epoch}-{index}.ten",
    ),
    *(["label"], [1.0, 2.0], [[3], [4]], [4], [3, 3], [(0, 1)], {"a": "b"}, {1: "y"}, {"tokens": 1.0}, [str], str, [FlipY()]),
    *({"tokens": 2}, RandomResizedCrop((8, 8)), Deal("pixels"), np.zeros(3), None),
]


def components():
    return [
        name
        for name in highway.modules.__all__
        if dataclasses.is_dataclass(kind := getattr(highway.modules, name)) and inspect.isclass(kind) and name not in ELSEWHERE
    ]


def declared(kind):
    """Return the parameters of a component whose annotations declare that they do not change the items."""

    def notes(hint):
        return [*getattr(hint, "__metadata__", ()), *(note for part in typing.get_args(hint)[:1] for note in notes(part))]

    return {name for name, one in parameters_of(kind).items() if any(isinstance(note, Unhashed) for note in notes(one.annotation))}


def parameters(op):
    return {name: found.values + found.code for name, found in Hasher(strict=False).parameters(op)}


def choices(hint):
    for part in typing.get_args(hint):
        yield from choices(part)
        if typing.get_origin(hint) is typing.Literal:
            yield part


def changed(kind, given, name, hint):
    """Yield components with another value of one parameter."""
    for value in [*choices(hint), *CANDIDATES]:
        try:
            op = kind(
                **given | {other: one for other, one in TOGETHER.get(name, {}).items() if other in parameters_of(kind)} | {name: value}
            )
        except (ConfigError, TypeError, ValueError, KeyError, AttributeError):
            continue
        if repr(getattr(op, name)) != repr(getattr(kind(**given), name)):
            yield op


@pytest.mark.parametrize("name", components())
def test_each_parameter_counts_for_the_hash_unless_its_annotation_declares_that_it_does_not(name):
    kind = getattr(highway.modules, name)
    given = NEEDED.get(name, {"path": "a.x"} if "path" in parameters_of(kind) else {})
    before, apart = parameters(kind(**given)), declared(kind)
    for parameter, one in parameters_of(kind).items():
        op = next(changed(kind, given, parameter, one.annotation), None)
        assert op is not None, f"CANDIDATES has no other value of {name}({parameter}=...)"
        after = parameters(op)
        differ = {key for key in {*before, *after} if before.get(key) != after.get(key)} - {*TOGETHER.get(parameter, ())}
        assert bool(differ) == (parameter not in apart), (parameter, differ)


def times_ten(item):
    return 10 * item


class Times:
    """A map that can be copied for each worker."""

    def __init__(self):
        self.by = [10]

    def __call__(self, item):
        return self.by[0] * item


def reader(**given):
    return Reader(NUMBERS, **{"batch_size": 4, "seed": 1, "epochs": 2} | given)


APART = {  # pipelines in which a parameter that is declared not to change the items has two values
    "Reader.num_workers": lambda n: [reader(num_workers=n)],
    "Reader.epochs": lambda n: [reader(epochs=n)],
    "Repeat.times": lambda n: [Repeat(NUMBERS, times=n)],
    "Processes.num_processes": lambda n: [reader(), Processes([operator.neg], n - 1)],  # for which a child imports nothing
    "Processes.budget_mb": lambda n: [reader(), Processes([operator.neg], 1, budget_mb=10.0 * n)],
    "Stage.num_workers": lambda n: [reader(), Stage(times_ten, num_workers=n)],
    "Stage.buffer_size": lambda n: [reader(), Stage(times_ten, buffer_size=n)],
    "Stage.on_error": lambda n: [reader(), Stage(times_ten, on_error=["raise", "skip"][n % 2])],
    "Stage.max_errors": lambda n: [reader(), Stage(times_ten, on_error="skip", max_errors=n)],
    "Stage.per_worker": lambda n: [reader(), Stage(Times(), per_worker=n == 3)],
    "Stage.drops": lambda n: [reader(), Stage(times_ten, drops=n == 3)],
    "Stage.timeout": lambda n: [Stage(reader(), timeout=600 * n), Stage(times_ten, timeout=[None, 600][n % 2])],
    "Stage.attempts": lambda n: [reader(), Stage(times_ten, timeout=600, attempts=n)],
}


@pytest.mark.parametrize("name", APART)
def test_a_parameter_that_is_declared_not_to_change_the_items_does_not(name):
    component, parameter = name.split(".")
    assert parameter in declared(Stage if component == "Stage" else getattr(highway.modules, component))
    for stages in ([], [Shuffle(7, seed=2), Batch(2)]):
        first, second = (Pipeline([*APART[name](n), *stages]) for n in (2, 3))
        with first, second:
            for _ in range(3):
                first.dequeue()
            second.load_state_dict(json.loads(json.dumps(first.state_dict())))
            rest = [[np.asarray(item).tolist() for item, _ in pipeline.stamped()] for pipeline in (first, second)]
        if parameter in ("epochs", "times"):  # which change where the items end
            rest = list(zip(*itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*rest, strict=False)), strict=True))
            assert len(rest[0]) >= 3
        assert rest[0] == rest[1]


def test_the_settings_of_a_stage_that_change_its_items_are_compared():
    apart = declared(Stage)
    assert {field.name for field in dataclasses.fields(Stage)} - apart == {"op", "ordered", "name"}
    assert {name.partition(".")[2] for name in APART if name.startswith("Stage.")} == apart


def test_each_parameter_that_is_declared_not_to_change_the_items_is_tried():
    apart = {name for component in components() for name in declared(getattr(highway.modules, component))}
    tried = {name.partition(".")[2] for name in APART if not name.startswith("Stage.")}
    assert apart == tried | {"num_workers", "rank", "world_size"}  # the engine compares the ranks: tests/engine/test_resume_ranks.py
    assert {*NEEDED} <= {*components()}
