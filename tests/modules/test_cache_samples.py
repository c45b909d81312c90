"""A cache takes batches, whose rows are the samples, or samples, which go out as they came; where it cannot tell, it asks."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from highway import Pipeline, Stage
from highway.datasets import DecodedCache
from highway.engine.stage import Passport, Stamped
from highway.errors import ConfigError, DamagedError, ItemError
from highway.modules import Batch, Cache, ImageFileReader, Map, Processes, Reader, Repeat, Shuffle, Unbatch


def run(stages):
    """What comes out: pairs of item and passport."""
    with Pipeline(stages) as pipeline:
        return list(pipeline.stamped())


def items(stages):
    return [item for item, _ in run(stages)]


def assert_same(one, other):
    """Both are of the same types, dtypes, shapes and values."""
    assert type(one) is type(other)
    if isinstance(one, (np.ndarray, np.generic)):
        assert one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for name in one:
            assert_same(one[name], other[name])
    elif isinstance(one, (tuple, list)):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    else:
        assert repr(one) == repr(other)


@pytest.fixture(params=[None, "c"], ids=["memory", "disk"])
def path(request, tmp_path):
    return request.param and str(tmp_path / request.param)


# --- samples go out as they came ---

IMAGE = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
SAMPLES = [
    (IMAGE, 7),
    [IMAGE, 7],
    {"a": 1, "b": IMAGE},
    {"image": b"\xff\xd8", "label": np.int32(3), "name": "ümlaut", "score": 0.5, "ok": True, "z": 1 + 2j},
    {"zero": np.array(3, ">f4"), "scalar": np.float32(3), "empty": np.zeros((0, 3)), "strided": IMAGE[:, ::2].T},
    {"boxes": [[1, 2], []], "crowd": None, "about": {"name": "x", "sizes": [1, 2.0, float("inf")]}},
    IMAGE,
    np.array(1.5),
    3,
    -2.5,
    False,
    "text",
    b"bytes",
    [1, "two", 3.0],
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_a_sample_goes_out_as_it_came_in_every_epoch(sample, path):
    found = items([[sample] * 3, Cache(path, batched=False, epochs=3, key="k")])
    assert len(found) == 9
    for item in found:
        assert_same(item, sample)
    if path:
        for item in items([[], Cache(path, batched=False, epochs=1, key="k")]):
            assert_same(item, sample)


numbers = hnp.scalar_dtypes().filter(lambda dtype: dtype.kind in "biufc")
plain = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5))
values = st.one_of(
    hnp.arrays(numbers, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)),
    st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.complex_numbers(), st.binary(max_size=5)),
    st.text(st.characters(codec="utf-8"), max_size=5),
    st.recursive(st.lists(plain, max_size=3), lambda inner: st.dictionaries(st.text(max_size=3), inner, max_size=3), max_leaves=5),
)


@pytest.mark.slow
@given(
    st.one_of(
        st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), values, min_size=1, max_size=4),
        st.lists(values, min_size=1, max_size=4),
        st.lists(values, min_size=1, max_size=4).map(tuple),
    )
)
def test_any_sample_that_can_be_kept_comes_back_as_it_was(sample):
    for item in items([[sample, sample], Cache(batched=False, epochs=2)]):
        assert_same(item, sample)


def test_arrays_from_a_cache_are_read_only(path):
    found = items([[(IMAGE, np.array(1))] * 2, Cache(path, batched=False, epochs=2, key="k")])
    assert [[array.flags.writeable for array in item] for item in found[2:]] == [[False, False]] * 2


def test_shapes_may_differ_from_sample_to_sample(path):
    samples = [(np.full((n, 3), n, np.uint8), "x" * n) for n in range(5)]
    found = items([samples, Cache(path, batched=False, epochs=3, shuffle=False, key="k")])
    assert len(found) == 15
    for item, sample in zip(found, samples * 3, strict=True):
        assert_same(item, sample)


def test_each_epoch_has_an_order_of_its_own_and_passports_that_fit(path):
    source = [Stamped({"n": n, "image": np.full((3, 3), n)}, Passport(0, n, keys=(f"k{n}",))) for n in range(20)]
    found = run([source, Cache(path, epochs=3, key="k")])
    assert [(p.epoch, p.index) for _, p in found] == [(epoch, index) for epoch in range(3) for index in range(20)]
    for item, passport in found:
        assert passport.keys == (f"k{item['n']}",)
        assert (item["image"] == item["n"]).all()
    orders = [[item["n"] for item, p in found if p.epoch == epoch] for epoch in range(3)]
    assert orders[0] == list(range(20)) == sorted(orders[1]) == sorted(orders[2])
    assert orders[0] != orders[1] != orders[2]


def test_all_keys_of_a_sample_stay_with_it(path):
    source = [Stamped((n, IMAGE), Passport(0, n, keys=(f"{n} left", f"{n} right"))) for n in range(4)]
    for item, passport in run([source, Cache(path, batched=False, epochs=3, key="k")]):
        assert passport.keys == (f"{item[0]} left", f"{item[0]} right")


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"a": 1, "b": {"image": IMAGE}}, r"field 'b' is a dict that contains a ndarray: .*; put its content into separate fields"),
        ({"a": 1, "b": {1: 2}}, "field 'b' is a dict that contains the name 1"),
        ((1, object()), "field 1 is a object"),
        ((1, (2, 3)), r"field 1 is a tuple, .*np\.asarray"),
        ((1, [IMAGE]), "field 1 is a list that contains a ndarray: .*; make it an array, or put"),
        ((1, np.array(["x"])), "field 1 is an array of <U1"),
        ((1, np.ma.masked_array([1])), "field 1 is a MaskedArray"),
        ((1, np.str_("x")), "field 1 is a str_"),
        ((1, bytearray(b"x")), "field 1 is a bytearray"),
        ((1, 2**63), "field 1 contains 9223372036854775808, which does not fit into int64;"),
        ({(1, 2): 3}, r"a field is named \(1, 2\); expected a str or a whole number"),
        ({}, "the sample is an empty dict"),
        ((), "the sample is an empty tuple"),
        (Passport(), "the sample is a Passport, but would be read back as a tuple"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_field_and_a_way_out(sample, message):
    with pytest.raises(ItemError, match=f"Cache: {message}"):
        items([[sample], Cache(batched=False)])


def test_samples_that_differ_in_their_types_are_refused():
    with pytest.raises(
        ValueError, match=r"sample 1 has dict 'a': float, but sample 0 has dict 'a': int; give all samples the same fields and types"
    ):
        items([[{"a": 1}, {"a": 1.0}], Cache()])


@pytest.mark.parametrize("whole", [True, False])
def test_damaged_samples_are_made_again(tmp_path, whole):
    class Source:
        def __iter__(self):
            for n in range(30):
                yield Stamped([np.random.default_rng(n).integers(0, 256, 5000), n], Passport(0, n, keys=(f"k{n}",)))

    folder = tmp_path / "c"
    first = items([Source(), Cache(str(folder), batched=False, epochs=1, key="k")])
    (data,) = folder.glob("*.data")
    good = data.read_bytes()
    data.write_bytes(good[:100_000] + bytes(50_000) + good[150_000:])
    source = Source() if whole else first[:1]
    stages = [source, Cache(str(folder), batched=False, epochs=1, shuffle=False, key="k")]
    if not whole:
        with pytest.raises(DamagedError, match=r"damaged: samples \d+ \(k\d+\) do not match their checksums"):
            items(stages)
        return
    for item, sample in zip(items(stages), first, strict=True):
        assert_same(item, sample)
    assert data.read_bytes() == good


def test_a_sample_that_was_left_out_is_tried_again(path):
    failures = [3]

    def flaky(n):
        if n in failures:
            failures.remove(n)
            raise OSError("just now")
        return {"n": n, "name": str(n)}

    class Source:
        def __iter__(self):
            for epoch in range(3):
                for n in range(6):
                    yield Stamped(n, Passport(epoch, n, keys=(f"k{n}",)))

    found = run([Source(), Stage(flaky, on_error="skip"), Cache(path, epochs=4, key="k")])
    epochs = [sorted(item["n"] for item, p in found if p.epoch == epoch) for epoch in range(4)]
    assert epochs == [[0, 1, 2, 4, 5], *[list(range(6))] * 3]


def numbered():
    return [{"n": n, "name": str(n)} for n in range(5)]


def test_it_works_in_a_process():
    found = items([Processes([numbered(), Cache(batched=False, epochs=3)])])
    assert [sorted(item["n"] for item in found[start : start + 5]) for start in (0, 5, 10)] == [list(range(5))] * 3
    assert {(type(item["n"]), type(item["name"])) for item in found} == {(int, str)}


def test_a_reader_makes_batches_of_cached_samples(tmp_path):
    samples = [{"image": np.full((2, 2), n), "n": n, "boxes": np.full(n, n)} for n in range(3)]
    items([samples, Cache(str(tmp_path / "c"), epochs=1, key="k")])
    (batch,) = items([Reader(DecodedCache(str(tmp_path / "c")), 3, ragged="list", fields=["boxes"], shuffle=False, epochs=1)])
    assert batch["image"].tolist() == [[[n, n]] * 2 for n in range(3)]
    assert batch["n"].tolist() == [0, 1, 2] and [boxes.tolist() for boxes in batch["boxes"]] == [[], [1], [2, 2]]


# --- batches, or samples? ---

ROWS = (np.arange(8).reshape(4, 2), np.arange(4))


def samples_of(stages):
    """How many samples a cache sees in what comes out of stages."""
    with Pipeline([*stages, Cache(epochs=1)]) as pipeline:
        list(pipeline)
    return samples_in_cache(pipeline)


def samples_in_cache(pipeline):
    return pipeline.stats().stages[-2].counters["samples"]


def keyed(*keys, item=ROWS):
    return [Stamped(item, Passport(keys=keys))]


class Own:
    """A user's own stream."""

    def stream(self, items):
        yield from items


def same(item):
    return item


@pytest.mark.parametrize(
    ("stages", "samples"),
    [
        ([[{"a": 1, "b": IMAGE}]], 1),
        ([[(np.zeros((4, 3)), 7)]], 1),
        ([["text", "text"]], 2),
        ([[b"bytes"]], 1),
        ([[(b"1234", b"5678")]], 1),
        ([keyed("one", item=(IMAGE, 3))], 1),
        ([keyed("a", "b", "c", "d")], 4),
        ([[([IMAGE, IMAGE], np.arange(2))], Unbatch(), Batch(2)], 2),
        ([range(6), Batch(2)], 6),
        ([range(6), Batch(1)], 6),
        ([range(6), Batch(2), same, Map(same), Shuffle(2)], 6),
        ([range(6), Batch(2), Repeat(times=1)], 6),
        ([[(n,) for n in range(6)], Batch(2, as_list=True), Cache(epochs=1)], 6),
        ([[ROWS, ROWS], Cache(batched=True, epochs=1)], 8),
        ([[ROWS, ROWS], Cache(batched=False, epochs=1)], 2),
        ([range(6), Cache(batch_size=3, epochs=1)], 6),
        ([[ROWS], Unbatch()], 4),
        ([[(np.zeros((2, 3, 3)),)], Unbatch(), same], 2),
        ([ImageFileReader("highway:photos/val", 1, (8, 8), epochs=1)], 32),
    ],
)
def test_it_sees_whether_batches_or_samples_come(stages, samples):
    assert samples_of(stages) == samples


MAY_BE = r"may be a batch of 4 samples or one sample: pass batched=True if its rows are samples, or batched=False if it is one sample"


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([[ROWS]], rf"the first item, with fields 0: \(4, 2\), 1: \(4,\), {MAY_BE}"),
        ([[IMAGE]], "may be a batch of 2 samples or one sample"),
        ([[{"image": IMAGE, "box": [1, 2]}]], r"fields 'image': \(2, 4, 3\), 'box': list of 2, may be a batch of 2 samples or one sample"),
        ([keyed("one")], MAY_BE),
        ([keyed("one", "two")], r" and 2 keys, may be a batch of 4 samples or one sample"),
        ([keyed("one", item=(np.zeros((1, 3)),))], "may be a batch of 1 samples or one sample"),
        ([[(np.zeros((3, 2, 3)),)], Unbatch(), Own()], "may be a batch of 2 samples or one sample"),
        ([[1, 2, 3, 4], Batch(2), lambda batch: (batch, np.stack([batch] * 2), 5)], "comes from Batch, .* share no batch axis"),
        ([keyed("a", "b", item=(IMAGE, 3))], "has 2 keys, .* share no batch axis"),
    ],
)
def test_where_it_cannot_see_it_asks(stages, message):
    with pytest.raises(ConfigError, match=f"Cache: .*{message}"):
        items([*stages, Cache()])


@pytest.mark.parametrize("batched", [True, False])
def test_what_is_said_goes(batched):
    for source in ([ROWS], keyed("a", "b", "c", "d")):
        with Pipeline([source, Cache(epochs=1, batched=batched)]) as pipeline:
            (item,) = pipeline
        assert item is ROWS and samples_in_cache(pipeline) == (4 if batched else 1)


def test_the_first_item_of_all_decides():
    class Source:
        def __iter__(self):
            yield Stamped((IMAGE, 1), Passport(0, 0))
            yield Stamped((IMAGE, [1, 2]), Passport(1, 0))

    assert len(items([Source(), Cache(budget=1, epochs=2)])) == 2


def test_another_wish_makes_it_anew(tmp_path):
    def samples(**kwargs):
        with Pipeline([[ROWS], Cache(str(tmp_path / "c"), epochs=1, key="k", **kwargs)]) as pipeline:
            list(pipeline)
        return samples_in_cache(pipeline), len(os.listdir(tmp_path / "c"))

    assert [samples(batched=flag) for flag in (True, False, False, True)] == [(4, 4), (1, 4), (1, 4), (4, 4)]
    assert samples(batch_size=1) == (1, 4)


def test_lists_of_fields_stay_lists():
    found = items([[[*ROWS]], Cache(epochs=2, batched=True)])
    assert [type(item) for item in found] == [list, list]


def test_options_that_contradict_each_other_are_refused():
    with pytest.raises(
        ConfigError,
        match=r"Cache: batched=True means that the input is batches, but batch_size=3 is for samples; "
        r"remove one of them",
    ):
        Cache(batched=True, batch_size=3)
    with pytest.raises(ConfigError, match=r"Cache: stack=False applies to batches, but batched=False"):
        Cache(batched=False, stack=False)
    with pytest.raises(ConfigError, match=r"Cache: stack=False is for batches, but .* is one sample; .*batch_size="):
        items([[(IMAGE, 3)], Cache(stack=False)])
    assert len(items([range(4), Cache(batched=False, batch_size=2, epochs=1)])) == 2
