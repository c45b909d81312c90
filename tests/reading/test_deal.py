"""The samples of each global batch are assigned to ranks so that their costs are even."""

import io
import math
from itertools import zip_longest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from highway import Pipeline, Stage
from highway.datasets import Files, MixedDataset, Tar, TFRecord
from highway.datasets.records.tfrecord import tfrecord_writer
from highway.datasets.shards import shard_writer
from highway.errors import ConfigError, ImageError, ParameterError, PipelineError
from highway.modules import Cache, Deal, ImageReader, Reader
from highway.parameters.location import Location
from highway.reading.costs import costs_of
from highway.reading.deal import assigned
from highway.topology.registry import Registry


class Numbered:
    """A dataset that counts how often a sample was read. Sample ``n`` is ``{"tokens": [n, n, ...]}``."""

    def __init__(self, lengths):
        self.lengths, self.read = lengths, 0

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, number):
        self.read += 1
        return {"number": number, "tokens": np.full(self.lengths[number], number)}


def rank_of(costs, rank, world_size, deal, batch_size=4, seed=0, epochs=2, **given):
    reader = Reader(list(range(len(costs))), batch_size, epochs=epochs, rank=rank, world_size=world_size, deal=deal, seed=seed, **given)
    return Pipeline([Stage(reader, num_workers=2)])


def batches(pipeline, most=None):
    """Return the batches as pairs of the passport's epoch and index, and the samples."""
    found = []
    with pipeline:
        for item, passport in pipeline.stamped():
            found.append(((passport.epoch, passport.index), item.tolist()))
            if len(found) == most:
                return found, pipeline.state_dict()
    return found, None


def steps(pipelines):
    """Return the samples of each global batch, by rank."""
    ranks = [[samples for _, samples in batches(pipeline)[0]] for pipeline in pipelines]
    return [list(parts) for parts in zip_longest(*ranks, fillvalue=None)]


def merged(step):
    return sorted(sample for part in step for sample in part)


COSTS = st.lists(st.integers(0, 1000), min_size=1, max_size=70)


@settings(max_examples=8, deadline=None)
@given(COSTS, st.integers(2, 5), st.integers(1, 6), st.integers(0, 3), st.booleans(), st.sampled_from(["pad", "drop"]), st.booleans())
def test_each_global_batch_keeps_its_samples_and_no_step_is_more_uneven(costs, ranks, batch_size, seed, equal, on_uneven, shuffle):
    if on_uneven == "drop" and len(costs) < ranks:
        return
    given = {"batch_size": batch_size, "seed": seed, "on_uneven": on_uneven, "shuffle": shuffle}
    dealt = steps([rank_of(costs, rank, ranks, Deal(costs, equal_counts=equal), **given) for rank in range(ranks)])
    plain = steps([rank_of(costs, rank, ranks, None, **given) for rank in range(ranks)])
    assert list(map(merged, dealt)) == list(map(merged, plain))
    for step, before in zip(dealt, plain, strict=True):
        counts = list(map(len, step))
        assert counts == list(map(len, before)) if equal else min(counts) >= 1
        if not equal:  # Graham's bound
            loads, all_costs = [sum(costs[sample] for sample in part) for part in step], [costs[sample] for sample in merged(step)]
            assert max(loads) <= sum(all_costs) / ranks + max(all_costs) * (1 - 1 / ranks) + 1e-6


@settings(max_examples=8, deadline=None)
@given(COSTS, st.integers(1, 3), st.integers(1, 3), st.integers(0, 12), st.integers(0, 3), st.booleans())
def test_a_resumed_run_deals_the_same_also_on_another_number_of_ranks(costs, before, after, taken, seed, equal):
    deal = Deal(costs, equal_counts=equal)
    whole = [batches(rank_of(costs, rank, before, deal, seed=seed))[0] for rank in range(before)]
    taken = min(taken, len(whole[0]) - 1)
    if taken == 0:
        return
    states = [batches(rank_of(costs, rank, before, deal, seed=seed), taken) for rank in range(before)]
    assert [found for found, _ in states] == [found[:taken] for found in whole]
    for rank, (_, state) in enumerate(states):
        same = rank_of(costs, rank, before, deal, seed=seed)
        same.load_state_dict(state)
        assert batches(same)[0] == whole[rank][taken:]
    resumed, plain = ([rank_of(costs, rank, after, one, seed=seed) for rank in range(after)] for one in (deal, None))
    for pipeline in resumed:
        pipeline.load_state_dict(states[0][1])
    _, undealt = batches(rank_of(costs, 0, before, None, seed=seed), taken)
    for pipeline in plain:
        pipeline.load_state_dict(undealt)
    assert list(map(merged, steps(resumed))) == list(map(merged, steps(plain)))


def test_the_sum_of_the_slowest_ranks_falls_to_nearly_the_mean():
    costs = np.random.default_rng(0).lognormal(size=8 * 32 * 5)
    slowest = [
        sum(max(costs[part].sum() for part in step) for step in steps([rank_of(costs, rank, 8, deal, 32, epochs=1) for rank in range(8)]))
        for deal in (None, Deal(costs))
    ]
    assert costs.sum() / 8 <= slowest[1] < 1.01 * costs.sum() / 8 and slowest[0] > 1.2 * costs.sum() / 8


def test_the_largest_sample_gets_the_smallest_companions_where_counts_are_equal():
    found = assigned(np.array([9, 1, 2, 1, 3, 2], np.uint32), 2, 3)
    assert sorted(np.flatnonzero(found == found[0]).tolist()) == [0, 1, 3]
    assert assigned(np.array([9, 1, 2, 1, 3, 2], np.uint32), 2, 6).tolist() == [0, 1, 1, 1, 1, 1]


def test_costs_of_nothing_are_dealt_by_count():
    assert np.bincount(assigned(np.zeros(12, np.uint32), 4, 12)).tolist() == [3, 3, 3, 3]


def test_one_rank_reads_no_costs():
    dataset = Numbered([3] * 8)
    with Pipeline([Reader(dataset, 4, epochs=1, ragged="list", rank=0, world_size=1, deal=Deal("tokens"))]) as pipeline:
        assert len(list(pipeline)) == 2
    assert dataset.read == 8


def test_the_costs_of_all_samples_are_read_once():
    dataset = Numbered([1, 2, 3, 4, 5, 6, 7, 8])
    reader = Reader(dataset, 2, epochs=3, ragged="list", rank=0, world_size=2, deal=Deal("tokens"))
    with Pipeline([reader]) as pipeline:
        for _ in range(3):
            assert [len(batch["number"]) for batch in pipeline] == [2, 2]
    assert dataset.read == 8 + 3 * 4


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ([1, 2, -3, 4], r"Deal: cost of sample 2 of list is -3.0 \(1 of 4 .*\); expected a number of at least 0: correct"),
        ([1, math.nan, math.nan, 4], r"Deal: cost of sample 1 of list is nan \(2 of 4 are negative or not finite\)"),
        ([1, 2, 3, math.inf], "Deal: cost of sample 3 of list is inf"),
        ([1, 2, 3], r"returned an array of shape \(3,\) for list; expected one number for each of 4"),
        (lambda dataset: [1, 2, 3, 4, 5], r"returned an array of shape \(5,\) for list; expected one number for each of 4"),
        (lambda dataset: np.ones((4, 2)), r"returned an array of shape \(4, 2\) for list"),
        (lambda dataset: ["a", "b", "c", "d"], "expected one number for each of 4 samples"),
        (lambda dataset: None, "expected one number for each of 4"),
    ],
)
def test_costs_that_are_none_are_an_error_before_the_first_batch(cost, message):
    reader = Reader([10, 11, 12, 13], 2, rank=0, world_size=2, deal=Deal(cost))
    with Pipeline([reader]) as pipeline, pytest.raises(ConfigError, match=message):
        pipeline.dequeue()


@pytest.mark.parametrize(
    "samples",
    [
        [{"n": 1, "tokens": [0] * length, "mask": [1]} for length in (3, 1, 1, 1)],
        [{"n": 1, "text": np.zeros(length)} for length in (3, 1, 1, 1)],
        [(np.zeros(length), 1) for length in (3, 1, 1, 1)],
        [[0] * length for length in (3, 1, 1, 1)],
        [np.zeros(length) for length in (3, 1, 1, 1)],
    ],
)
def test_tokens_are_the_length_of_the_sequence(samples):
    assert costs_of(samples, "tokens").tolist() == [3, 1, 1, 1]


def test_a_sample_without_tokens_is_an_error_that_names_it_and_the_way_out():
    samples = [{"a": [1], "b": [2]}] * 4
    reader = Reader(samples, 2, ragged="list", rank=0, world_size=2, deal=Deal("tokens"))
    with (
        Pipeline([reader]) as pipeline,
        pytest.raises(ConfigError, match=r"has 2 sequences.*pass a function") as caught,
    ):
        pipeline.dequeue()
    assert any("sample 0 of list" in note for note in caught.value.__notes__)


def test_parameters_that_do_not_fit_are_an_error_when_the_pipeline_is_made():
    with pytest.raises(ConfigError, match="batch_size=None makes no batches; set batch_size"):
        Pipeline([Reader([1, 2], deal=Deal([1, 2]))])
    with pytest.raises(ConfigError, match=r"use shuffle=True, or remove deal"):
        Pipeline([Reader([1, 2], 1, shuffle="blocks", deal=Deal([1, 2]))])
    with pytest.raises(ParameterError, match="Deal: cost='pixel'; expected 'pixels' or 'tokens' or"):
        Deal("pixel")


def test_a_cache_after_a_deal_is_an_error(tmp_path):
    reader = Reader([1, 2, 3, 4], 2, rank=0, world_size=2, deal=Deal([1, 2, 3, 4]))
    with Pipeline([reader, Cache(str(tmp_path / "cache"))]) as pipeline, pytest.raises(PipelineError, match="remove one"):
        pipeline.dequeue()


SIZES = [(40, 30), (10, 10), (80, 60), (16, 8), (5, 5), (64, 64), (20, 20), (33, 9)]


def encoded(size, format):
    file = io.BytesIO()
    Image.new("RGB", size).save(file, format)
    return file.getvalue()


def pixels_of(dataset, world_size=2, **given):
    """Return the pixels of each rank in the only step."""
    ranks = []
    for rank in range(world_size):
        reader = ImageReader(dataset, len(SIZES) // world_size, epochs=1, rank=rank, world_size=world_size, deal=Deal("pixels"), **given)
        with Pipeline([reader]) as pipeline:
            ((images,),) = list(pipeline)
        ranks.append(sum(image.shape[0] * image.shape[1] for image in images))
    return ranks


@pytest.mark.parametrize("format", ["jpeg", "png"])
def test_pixels_are_those_in_the_headers_of_files_and_of_bytes(tmp_path, format):
    data = [encoded(size, format) for size in SIZES]
    for number, content in enumerate(data):
        (tmp_path / f"{number}.{format}").write_bytes(content)
    expected = pixels_of(MixedDataset([[(one,) for one in data[:5]], [(one,) for one in data[5:]]]), shuffle=False)
    assert sorted(expected) == sorted(pixels_of(Files(str(tmp_path)))) == sorted(pixels_of([(one,) for one in data]))
    assert expected == [4800 + 297 + 400 + 25, 4096 + 1200 + 128 + 100] and SIZES[2] == (80, 60)


def test_an_image_with_a_damaged_header_is_reported_by_the_reader_alone():
    data = [(encoded(size, "jpeg"),) for size in SIZES]
    data[3] = (b"no image",)
    given = {"batch_size": 4, "epochs": 1, "world_size": 2, "deal": Deal("pixels"), "seed": 1}
    found = []
    for rank in range(2):
        with Pipeline([Stage(ImageReader(data, rank=rank, **given), on_error="skip")]) as pipeline:
            found += [len(images) for (images,) in pipeline]
    assert found == [4, 4]
    errors = 0
    for rank in range(2):
        with Pipeline([ImageReader(data, rank=rank, **given)]) as pipeline:
            try:
                pipeline.dequeue()
            except ImageError as error:
                errors += "sample 3" in str(error)
    assert errors == 1


@pytest.mark.parametrize("kind", [Tar, TFRecord])
def test_costs_are_kept_beside_the_index_and_read_again_if_the_data_changed(kind, tmp_path):
    path = str(tmp_path / ("a.tar" if kind is Tar else "a.tfrecord"))

    def write(sizes):
        with (shard_writer if kind is Tar else tfrecord_writer)(path) as writer:
            for number, size in enumerate(sizes):
                writer.add(f"{number}", {"jpg": encoded(size, "jpeg")})

    write(SIZES)
    given = {} if kind is Tar else {"example": True}
    expected = pixels_of(kind(path, **given), shuffle=False)
    assert not list(tmp_path.glob("*pixels*"))
    assert pixels_of(kind(path, index=True, **given), shuffle=False) == expected
    (kept,) = tmp_path.glob("*pixels*")
    state = kept.stat()
    assert pixels_of(kind(path, index=True, **given), shuffle=False) == expected
    assert kept.stat().st_ino == state.st_ino  # not written again
    write(SIZES[::-1])
    assert sorted(pixels_of(kind(path, index=True, **given), shuffle=False)) == sorted(expected)
    assert kept.stat().st_ino != state.st_ino


def test_a_file_names_a_deal_as_a_component():
    registry = Registry()
    spec = {"Reader": {"dataset": "a.tar", "batch_size": 2, "deal": {"Deal": {"cost": "tokens", "equal_counts": False}}}}
    deal = registry.build(spec, Location()).deal
    assert (deal.cost, deal.equal_counts) == ("tokens", False)
    assert registry.build({"Reader": {"dataset": "a.tar", "batch_size": 2, "deal": {"Deal": "pixels"}}}, Location()).deal.cost == "pixels"
    with pytest.raises(ConfigError, match="deal"):
        registry.build({"Reader": {"dataset": "a.tar", "batch_size": 2, "deal": "pixels"}}, Location())


def test_a_state_of_another_deal_is_refused():
    costs = list(range(1, 17))
    _, state = batches(rank_of(costs, 0, 2, Deal(costs)), 1)
    with rank_of(costs, 0, 2, Deal(costs[::-1])) as pipeline, pytest.raises(PipelineError, match="deal"):
        pipeline.load_state_dict(state)
