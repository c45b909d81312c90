"""Several datasets as one: what stands where, for whom, and from where a run goes on."""

import json
import pickle
import re
from collections import Counter
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highway import Pipeline, Stage
from highway.data import photos
from highway.datasets import Files, ImageFolder, MixedDataset
from highway.datasets.mixing.interleave import Interleave
from highway.errors import ConfigError, DatasetError, PipelineError
from highway.modules import Cache, ImageFileReader, ImageReader, Mix, Reader

A, B, C = range(10), range(100, 104), range(200, 207)
WEIGHTS = st.lists(st.floats(0.01, 10), min_size=1, max_size=9)


def mix(*datasets, **how):
    return MixedDataset(list(datasets) or [A, B, C], **how)


def epochs(dataset, count=1, **how):
    """Return the samples of each epoch of a reader."""
    with Pipeline([Reader(dataset, epochs=count, **how)], seed=1) as pipeline:
        return [list(pipeline) for _ in range(count)]


def counts(samples):
    return [sum(sample in dataset for sample in samples) for dataset in (A, B, C)]


@settings(deadline=None, max_examples=50)
@given(WEIGHTS, st.integers(0, 10**5) | st.integers(0, 10**11))
def test_after_any_number_of_positions_each_dataset_has_had_its_share(weights, position):
    interleave, levels = Interleave([10**12] * len(weights), weights, "restart", 2 * 10**11), (len(weights) - 1).bit_length()
    which, taken = interleave(np.arange(position, position + 50))
    for dataset, weight in enumerate(weights):
        share = weight / sum(weights)
        first = taken[which == dataset][:1]
        expected = share * (position + np.flatnonzero(which == dataset)[:1])
        assert np.abs(first - expected).max(initial=0) <= (1 / 2 + (position + 50) / 2**24) * levels


@settings(deadline=None, max_examples=50)
@given(WEIGHTS, st.sampled_from([None, "steps", "function"]))
def test_each_dataset_is_read_from_the_first_sample_on_without_a_gap(weights, kind):
    given = {"steps": {0: weights, 700: weights[::-1]}, "function": lambda at: [w + at / 1000 for w in weights], None: weights}[kind]
    interleave = Interleave([10**9] * len(weights), given, "restart", 3000)
    which, taken = interleave(np.arange(3000))
    for dataset in range(len(weights)):
        assert taken[which == dataset].tolist() == list(range(interleave.drawn[dataset]))
    some = np.array([2999, 5, 1500])
    assert [part.tolist() for part in interleave(some)] == [which[some].tolist(), taken[some].tolist()]


@pytest.mark.parametrize("shuffle", [True, False])
def test_all_ends_when_each_sample_has_come_once(shuffle):
    mixed = mix(weights=[1, 1, 2])
    assert len(mixed) == 21
    for samples in epochs(mixed, 3, shuffle=shuffle):
        assert sorted(samples) == sorted(chain(A, B, C))
        if not shuffle:  # B and C have had what they have after 16 or so
            assert counts(samples[:8]) == [2, 2, 4] and samples[16:] == [5, 6, 7, 8, 9]


def test_first_ends_before_a_dataset_would_be_drawn_that_has_been_read_whole():
    mixed = mix(weights=[1, 1, 2], stop="first")
    assert len(mixed) == 15
    (samples,) = epochs(mixed, shuffle=False)
    assert counts(samples) == [4, 4, 7] and set(C) < set(samples)


def test_restart_ends_when_all_have_been_read_whole():
    mixed = mix(weights=[1, 1, 2], stop="restart")
    samples = epochs(mixed, shuffle=False)[0]
    assert set(samples) == {*A, *B, *C} and samples[-1] == 9 and samples.count(9) == 1
    assert Counter(samples)[100] == 3 and counts(samples) == [10, 9, 18]


def test_an_epoch_may_have_a_length_of_its_own():
    mixed = mix(weights=[1, 1, 2], stop="restart", length=1000)
    assert len(mixed) == 1000 and counts(epochs(mixed)[0]) == [250, 250, 500]


@pytest.mark.parametrize("stop", ["first", "all", "restart"])
def test_no_sample_comes_again_before_all_others_of_its_dataset_have_over_epochs_too(stop):
    samples = Counter(chain(*epochs(mix(weights=[1, 1, 2], stop=stop), 7)))
    for dataset in (A, B, C):
        often = {samples[sample] for sample in dataset}
        assert min(often) > 0 and max(often) - min(often) <= 1


def test_each_pass_over_a_dataset_has_an_order_of_its_own():
    samples = epochs(mix(range(100), weights=[1], stop="restart", length=300))[0]
    unshuffled = epochs(mix(range(100), weights=[1], stop="restart", length=300), shuffle=False)[0]
    assert unshuffled == list(range(100)) * 3
    assert Counter(samples) == dict.fromkeys(range(100), 3) and samples[:100] != samples[100:200]


def test_weights_in_steps_hold_from_their_positions_on():
    mixed = mix(range(1000), range(1000, 2000), weights={0: [1, 0], 128: [1, 3], 256: [0, 1]}, stop="restart", length=384)
    (samples,) = epochs(mixed)
    firsts = [sum(sample < 1000 for sample in samples[begin : begin + 128]) for begin in (0, 128, 256)]
    assert firsts == [128, 32, 0]


def test_weights_may_be_a_function_of_the_position():
    mixed = mix(range(10**5), range(10**5, 2 * 10**5), weights=lambda at: [max(0, 1 - at / 8192), at / 8192], stop="restart", length=8192)
    samples = np.array(epochs(mixed)[0])
    assert [int((part < 10**5).sum()) for part in np.split(samples, 8)] == [1024 - 128 * step for step in range(8)]


def test_small_weights_in_many_steps_are_not_forgotten():
    """Each step alone would have a tenth of a sample of the second dataset."""
    interleave = Interleave([10**9, 10**9], lambda at: [9999, 1], "restart", 1024 * 100)
    assert interleave.drawn.tolist() == [102_390, 10]


def test_mixes_are_mixed():
    inner = mix(A, B, weights=[1, 3], stop="first")
    assert len(inner) == 6
    mixed = mix(inner, C, weights=[1, 1], stop="restart", length=144)
    for shuffle in (True, False):
        assert counts(epochs(mixed, shuffle=shuffle)[0]) == [24, 48, 72]


def test_a_position_is_a_number_for_who_knows_nothing_of_mixes():
    for mixed in (mix(weights=[1, 1, 2]), mix(weights=[1, 1, 2], stop="restart"), mix(mix(A, B), C, stop="first")):
        assert [mixed[number] for number in range(len(mixed))] == epochs(mixed, shuffle=False)[0] == list(pickle.loads(pickle.dumps(mixed)))
        assert mixed[-1] == mixed[len(mixed) - 1]
        with pytest.raises(IndexError):
            mixed[len(mixed)]


class Blocks(list):
    """A dataset whose neighbours are cheap to read together, 20 of them."""

    def blocks(self):
        return [range(begin, begin + 20) for begin in range(0, len(self), 20)]


@pytest.mark.parametrize("shuffle", [True, False, "blocks"])
@pytest.mark.parametrize("world_size", [2, 3, 8])
def test_ranks_share_an_epoch(world_size, shuffle):
    mixed = mix(Blocks(range(400)), Blocks(range(1000, 1400)), weights=[1, 1])

    def read(**ranks):
        return epochs(mixed, shuffle=shuffle, **ranks)[0]

    ranks = [read(rank=rank, world_size=world_size, on_uneven="drop") for rank in range(world_size)]
    assert [sample for row in zip(*ranks, strict=True) for sample in row] == read(rank=0, world_size=1)[: world_size * len(ranks[0])]
    if shuffle:  # no rank has one dataset alone, though they alternate
        assert all(0.3 < np.mean(np.array(samples) < 1000) < 0.7 for samples in ranks)


def test_blocks_are_those_of_each_dataset():
    mixed = mix(Blocks(range(400)), Blocks(range(1000, 1400)))
    (samples,) = epochs(mixed, shuffle="blocks", window=40)
    near = [sample for sample in samples[:64] if sample < 1000]  # of two blocks, or three if places in a window have been shuffled
    assert sorted(samples) == [*range(400), *range(1000, 1400)] and len({sample // 20 for sample in near}) <= 3
    with pytest.raises(ConfigError, match="range has no blocks"):
        epochs(mix(A, Blocks(C)), shuffle="blocks")


@pytest.mark.parametrize("stop", ["first", "all", "restart"])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_run_goes_on_in_the_middle_on_any_number_of_ranks(stop, workers):
    mixed = mix(range(40), range(100, 130), range(200, 290), weights={0: [1, 2, 3], 100: [3, 2, 1]}, stop=stop)

    def build(rank, world_size):
        reader = Reader(mixed, 4, epochs=2, rank=rank, world_size=world_size, num_workers=workers)
        return Pipeline([reader], seed=3)

    def rest(rank, world_size, state=None, take=None):
        with build(rank, world_size) as pipeline:
            if state is not None:
                pipeline.load_state_dict(state)
            items = [batch.tolist() for _, batch in zip(range(take or 10**9), (item for item, _ in pipeline.stamped()), strict=False)]
            return items, json.loads(json.dumps(pipeline.state_dict())) if take else None

    whole = list(chain(*rest(0, 1)[0]))
    begun, state = rest(0, 2, take=7)
    other, _ = rest(1, 2, take=7)
    assert sorted(chain(*begun, *other)) == sorted(whole[:56])
    assert begun + rest(0, 2, state)[0] == rest(0, 2)[0]
    total = len(mixed)
    for world_size in (1, 4):
        ranks = [rest(rank, world_size, state)[0] for rank in range(world_size)]
        left = list(chain(*(batch for batches in ranks for batch in batches)))
        assert Counter(whole[56:]) - Counter(left) == Counter()  # nothing is missing; a few are read twice to come out even
        assert len(left) - len(whole[56:]) < 2 * world_size and len(whole) == 2 * total


def test_another_mix_is_another_run():
    def build(**how):
        return Pipeline([Reader(mix(**how), 2)], seed=3)

    with build(weights=[1, 1, 2]) as pipeline:
        pipeline.dequeue()
        state = pipeline.state_dict()
    for how in ({"weights": [1, 2, 1]}, {"weights": [1, 1, 2], "stop": "first"}):
        with build(**how) as pipeline, pytest.raises(PipelineError, match="had other parameters or other data"):
            pipeline.load_state_dict(state)


def test_images_of_a_mix_have_their_labels_and_keys():
    folder = ImageFolder("highway:photos/val")
    for stop in ("all", "restart"):
        mixed = mix(folder, ImageFolder("highway:photos/train"), weights=[1, 2], stop=stop)
        with Pipeline([ImageFileReader(mixed, 8, (32, 32), epochs=1)], seed=1) as pipeline:
            for (_, labels), passport in pipeline.stamped():
                assert [folder.classes[label] for label in labels] == [key.split("/")[0] for key in passport.keys]
    assert ImageFileReader(mixed, 8, (32, 32)).classes == folder.classes


def test_encoded_images_that_are_no_files_are_mixed_with_such():
    folder = ImageFolder("highway:photos/val")
    rows = [{"image": data, "label": label} for data, label in (folder[number] for number in range(len(folder)))]
    with Pipeline([ImageFileReader(mix(folder, rows), 8, (32, 32), epochs=1, one_hot=True)], seed=1) as pipeline:
        labels = np.concatenate([labels for _, labels in pipeline])
    assert labels.sum(axis=0).tolist() == [2 * sum(row["label"] == n for row in rows) for n in range(len(folder.classes))]
    unlabelled = Files(f"{photos()}/val/cat")
    with Pipeline([ImageReader(mix(folder, unlabelled), 8, (32, 32), epochs=1)]) as pipeline:
        assert sum(len(images) for (images,) in pipeline) == len(folder) + len(unlabelled)


def test_labels_that_mean_something_else_are_an_error():
    class Other(list):
        classes = ("dog", "cat")

    mixed = mix(ImageFolder("highway:photos/val"), Other([(b"", 0)]))
    with pytest.raises(
        ConfigError,
        match=r"datasets\[0\] has \d+ classes \('astronaut', 'brick', .*\), but datasets\[1\] has 2 classes \('dog', 'cat'\)\. A",
    ):
        len(mixed)


class Many(list):
    """A dataset that is asked for several samples at once."""

    def __getitems__(self, numbers):
        self.asked = [*getattr(self, "asked", []), list(numbers)]
        return [self[number] for number in numbers]


def test_samples_of_a_dataset_are_asked_for_together():
    many = Many(range(64))
    with Pipeline([Reader(mix(many, range(100, 164)), 32, epochs=1, num_workers=1)]) as pipeline:
        assert sorted(chain(*(batch.tolist() for batch in pipeline))) == [*range(64), *range(100, 164)]
    assert max(map(len, many.asked)) > 4 and sorted(chain(*many.asked)) == list(range(64))


def test_an_error_names_the_dataset_s_own_sample():
    class Bad(list):
        def __getitem__(self, number):
            raise ValueError("bad")

    with pytest.raises(ValueError, match="bad") as raised:
        epochs(mix(range(5), Bad([0] * 5)), shuffle=False)
    assert any("sample 0 of Bad" in note for note in raised.value.__notes__)


def test_another_sample_of_the_order_takes_the_place_of_one_that_cannot_be_read():
    class SomeBad(list):
        def __getitem__(self, number):
            if number % 5 == 2:
                raise ValueError("a bad one")
            return super().__getitem__(number)

    stage = Stage(Reader(mix(range(30), SomeBad(range(100, 130))), 6, epochs=2), on_error="skip")
    with Pipeline([stage], seed=1) as pipeline:
        samples = np.concatenate(list(pipeline) + list(pipeline))
    assert len(samples) == 120 and set(samples.tolist()) == {*range(30), *(n for n in range(100, 130) if n % 5 != 2)}


def test_a_mix_is_cached():
    with Pipeline([Reader(mix(weights=[1, 1, 2]), epochs=3), Cache(batched=False)], seed=1) as pipeline:
        assert [sorted(pipeline) for _ in range(3)] == [sorted([*A, *B, *C])] * 3


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"weights": [1, 2]}, "MixedDataset: weights are [1.0, 2.0]; expected a number for each of 3 datasets"),
        ({"weights": [1, 2, 0]}, "MixedDataset: weights=[1.0, 2.0, 0.0]; expected each above 0; remove datasets that should not be read"),
        ({"weights": {0: [1, 2, -1]}}, "weights from 0 on are [1.0, 2.0, -1.0]; expected a number"),
        ({"weights": {5: [1, 2, 1]}}, "expected positions from 0 on"),
        ({"weights": {0: [0, 0, 0]}}, "none below 0, not all 0"),
        ({"length": 5}, "MixedDataset: length=5; expected none, or stop='restart'"),
        ({"stop": "last"}, "MixedDataset: stop='last'; expected one of first, all, restart"),
    ],
)
def test_a_wrong_parameter_is_named(how, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        mix(**how)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            {"weights": {0: [1, 1, 0]}},
            "from position 14 on, weights=[1.0, 1.0, 0.0] are 0 for all datasets that still have unread samples;",
        ),
        (
            {"weights": {0: [1, 1, 1], 3: [1, 1, 0]}, "stop": "restart"},
            "an epoch would not end, because the weight of datasets[2] is too small",
        ),
        ({"weights": lambda at: [1, 1]}, "weights at position 0 are [1.0, 1.0]; expected a number for each of 3 datasets"),
    ],
)
def test_an_epoch_without_an_end_is_an_error(how, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        len(mix(**how))


def test_an_empty_dataset_is_an_error():
    with pytest.raises(DatasetError, match=r"datasets\[1\], list, is empty; remove it"):
        len(mix(A, []))
    with pytest.raises(ConfigError, match="at least one"):
        MixedDataset([])


def test_who_reads_the_other_mix_by_number_is_told_of_this_one():
    with pytest.raises(
        ConfigError, match=r"expected a Dataset, .*; a Mix is a source, not a dataset; .* use MixedDataset\(datasets, weights\)"
    ):
        Reader(Mix([A, B]))
