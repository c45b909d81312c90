"""Tests of ``load_state_dict(..., allow_changed=["Reader.mixture"])``."""

import json
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highway import Pipeline
from highway.datasets import MixedDataset
from highway.errors import ConfigError, PipelineError
from highway.modules import Batch, Cache, Reader, Shuffle, Take
from highway.process.ranks import PeerRanks
from highway.reading.deal import Deal

SIZES = {"web": 300, "books": 70, "code": 40, "wiki": 55}
FIRST = {name: place * 1000 for place, name in enumerate(SIZES)}
MIXTURE = ["Reader.mixture"]


@dataclass
class Numbers:
    """The numbers from ``first`` on, in blocks."""

    first: int
    count: int

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        return range(self.first, self.first + self.count)[number]

    def blocks(self):
        return [range(begin, min(begin + 8, self.count)) for begin in range(0, self.count, 8)]


def part(name):
    return range(FIRST[name], FIRST[name] + SIZES[name])


def mix(weights, datasets=None, **how):
    """Return a mix of the datasets with these weights, by name."""
    values = how.pop("changing", None) or list(weights.values())
    return MixedDataset(
        [(datasets or {}).get(name, Numbers(FIRST[name], SIZES[name])) for name in weights], values, names=list(weights), **how
    )


def build(mixed, *stages, epochs=1, **how):
    return Pipeline([Reader(mixed, epochs=epochs, **how), *stages], seed=5)


def flat(item):
    return item.tolist() if hasattr(item, "tolist") else [item]


def read(pipeline, count):
    """Return the samples of the next items."""
    return [sample for _ in range(count) for sample in flat(pipeline.dequeue())]


def rest(pipeline, epochs=1):
    return [[sample for item in pipeline for sample in flat(item)] for _ in range(epochs)]


def joined(epochs):
    return [sample for epoch in epochs for sample in epoch]


def saved(pipeline):
    return json.loads(json.dumps(pipeline.state_dict()))


def of(samples, name):
    return [sample for sample in samples if sample in part(name)]


STAGES = {"none": (), "batch": (Batch(7),), "shuffle": (Shuffle(50), Batch(3))}


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("shuffle", [True, False, "blocks"])
def test_each_sample_comes_once_over_changes_of_weights_and_datasets(stages, shuffle):
    stages = STAGES[stages]
    how = {"shuffle": shuffle}
    samples = []
    with build(mix({"web": 6, "books": 3}), *stages, **how) as pipeline:
        samples += read(pipeline, 13)
        state = saved(pipeline)
    with build(mix({"code": 2, "web": 1, "books": 1}), *stages, **how) as pipeline:
        pipeline.load_state_dict(state, MIXTURE)
        samples += read(pipeline, 9)
        state = saved(pipeline)
    with build(mix({"books": 1, "web": 1, "code": 2, "wiki": 5}), *stages, **how) as pipeline:
        pipeline.load_state_dict(state, MIXTURE)
        samples += read(pipeline, 2)
        state = saved(pipeline)
    with build(mix({"books": 1, "web": 1, "code": 2, "wiki": 5}), *stages, **how) as pipeline:
        pipeline.load_state_dict(state)
        (last,) = rest(pipeline)
    assert Counter(samples + last) == Counter(sample for name in SIZES for sample in part(name))


def test_a_mixture_may_change_between_two_epochs_and_a_removed_dataset_continues_when_it_comes_back():
    first, second = mix({"web": 2, "code": 1}, stop="restart", length=30), mix({"web": 1, "wiki": 1}, stop="restart", length=20)
    with build(first, epochs=9) as pipeline:
        (epoch,) = rest(pipeline)
        state = saved(pipeline)
    with build(second, epochs=9) as pipeline:
        pipeline.load_state_dict(state, MIXTURE)
        assert pipeline.epoch == 1
        others = rest(pipeline, 2)
        state = saved(pipeline)
    assert [Counter(sample // 1000 for sample in one) for one in others] == [{0: 10, 3: 10}] * 2
    with build(first, epochs=9) as pipeline:
        pipeline.load_state_dict(state, MIXTURE)
        last = rest(pipeline, 3)
    samples = joined([epoch, *others, *last])
    for name, count in {"web": 100, "code": 40}.items():
        assert len(of(samples, name)) == len(set(of(samples, name))) == count
    assert set(of(samples, "code")) == set(part("code"))  # one pass, over both times


def test_the_order_before_and_the_passes_of_each_dataset_stay_what_they_were():
    with build(mix({"web": 1, "code": 1}, stop="restart", length=600), shuffle=False) as pipeline:
        before = read(pipeline, 100)
        state = saved(pipeline)
        (expected,) = rest(pipeline)
    with build(mix({"code": 3, "web": 1}, stop="restart", length=600), shuffle=False) as pipeline:
        pipeline.load_state_dict(state, MIXTURE)
        (after,) = rest(pipeline)
    assert len(before) + len(after) == 600
    assert Counter(sample // 1000 for sample in after[:40]) == {2: 30, 0: 10}
    for name in ("web", "code"):
        one, other = of(after, name), of(expected, name)
        assert one[: len(other)] == other[: len(one)]


@pytest.mark.parametrize(
    "changing", [{0: [1.0, 0.0], 200: [1.0, 3.0]}, lambda position: [1, 1] if position < 200 else [1, 3]], ids=["dict", "function"]
)
def test_positions_of_changing_weights_count_from_the_start_of_the_epoch(changing):
    how = {"stop": "restart", "length": 5000, "changing": changing}
    names = {"web": 0, "books": 0}
    with build(mix({"web": 5, "books": 1}, stop="restart", length=5000)) as pipeline:
        read(pipeline, 150)
        state = saved(pipeline)
    samples = []
    with build(mix(names, **how)) as pipeline:
        pipeline.load_state_dict(state, MIXTURE)
        samples = read(pipeline, 1500)
        state = saved(pipeline)
        (expected,) = rest(pipeline)
    assert abs(len(of(samples[1100:], "books")) - 300) <= 64
    with build(mix(names, **how)) as pipeline:
        pipeline.load_state_dict(state)
        assert rest(pipeline) == [expected]
    with build(mix({"books": 1, "web": 1}, stop="restart", length=5000)) as pipeline:
        pipeline.load_state_dict(state, MIXTURE)
        (after,) = rest(pipeline)
    assert 150 + len(samples) + len(after) == 5000


def test_positions_are_not_used_twice():
    with build(mix({"web": 2, "code": 1}), Shuffle(40)) as pipeline:
        items = list(islice(pipeline.stamped(), 30))
        state = saved(pipeline)
    with build(mix({"web": 2, "wiki": 1}), Shuffle(40)) as pipeline:
        pipeline.load_state_dict(state, MIXTURE)
        items += list(islice(pipeline.stamped(), 100))
    assert len({stamped.passport[:2] for stamped in items}) == 130


def noisy(sample, rng):
    return sample, rng.random()


def test_random_numbers_do_not_repeat_and_are_the_same_on_other_ranks():
    with build(mix({"web": 2, "code": 1}), noisy) as pipeline:
        before = [pipeline.dequeue() for _ in range(90)]
        state = saved(pipeline)
    after = []
    for rank, world_size in ((0, 1), (0, 2), (1, 2)):
        with build(mix({"wiki": 1, "code": 1}), noisy, rank=rank, world_size=world_size, on_uneven="drop") as pipeline:
            pipeline.load_state_dict(state, [*MIXTURE, "Reader.on_uneven"])
            after.append(list(pipeline))
    assert len({number for _, number in before + after[0]}) == len(before) + len(after[0])
    assert sorted(after[0])[:60] == sorted(after[1] + after[2])[:60]


def test_a_state_after_the_change_resumes_exactly():
    stages = (Shuffle(30), Batch(4))
    second = mix({"code": 1, "web": 4}, stop="restart")
    with build(mix({"web": 2, "code": 1}), *stages, epochs=4) as pipeline:
        read(pipeline, 20)
        state = saved(pipeline)
    with build(second, *stages, epochs=4) as pipeline:
        pipeline.load_state_dict(state, MIXTURE)
        assert saved(pipeline)["epoch"] == 0
        whole = rest(pipeline, 4)
    for count in (0, 1, 30, 90, 150, 200):
        with build(second, *stages, epochs=4) as pipeline:
            pipeline.load_state_dict(state, MIXTURE)
            samples = read(pipeline, count)
            middle = saved(pipeline)
        with build(second, *stages, epochs=4) as pipeline:
            pipeline.load_state_dict(middle)
            samples += joined(rest(pipeline, 4 - pipeline.epoch))
        assert samples == joined(whole), count


LARGE = {name: Numbers(first, 150) for name, first in FIRST.items()}  # no run below reads so many
weights = st.dictionaries(st.sampled_from(list(SIZES)), st.integers(1, 9), min_size=1)
steps = st.lists(st.tuples(weights, st.integers(1, 3), st.integers(0, 3)), min_size=1, max_size=4)


@settings(max_examples=15, deadline=None)
@given(steps=steps, kind=st.sampled_from(["samples", "batches", "shuffled"]))
def test_each_sample_comes_once_over_changes_of_mixture_and_ranks(steps, kind):
    stages = (Shuffle(20), Batch(2)) if kind == "shuffled" else ()
    batch_size = 2 if kind == "batches" else None
    samples, states = [], None
    for mixture, world_size, count in steps:
        new = []
        for rank in range(world_size):
            mixed = mix(mixture, LARGE, stop="restart", length=100_000)
            with build(mixed, *stages, batch_size=batch_size, rank=rank, world_size=world_size) as pipeline:
                if states is not None:
                    pipeline.load_state_dict(states, MIXTURE)
                samples += read(pipeline, count)
                new.append(saved(pipeline))
        states = new
    with build(mix(dict.fromkeys(SIZES, 1), LARGE), *stages, batch_size=batch_size) as pipeline:
        pipeline.load_state_dict(states, MIXTURE)
        samples += rest(pipeline)[0]
    assert Counter(samples) == Counter(number for dataset in LARGE.values() for number in dataset)


def test_one_state_is_enough_if_the_stages_hold_nothing():
    samples = []
    for rank in range(2):
        with build(mix({"web": 2, "code": 1}), rank=rank, world_size=2) as pipeline:
            samples += read(pipeline, 20)
            state = saved(pipeline)
    for rank in range(3):
        with build(mix({"web": 1, "wiki": 1}), rank=rank, world_size=3, on_uneven="drop") as pipeline:
            pipeline.load_state_dict(state, [*MIXTURE, "Reader.on_uneven"])
            samples += rest(pipeline)[0]
    assert max(Counter(samples).values()) == 1
    assert len(of(samples, "web")) + len(of(samples, "wiki")) in range(353, 356)


def test_a_batch_size_may_change_with_the_mixture():
    with build(mix({"web": 2, "code": 1}), batch_size=4) as pipeline:
        samples = read(pipeline, 9)
        state = saved(pipeline)
    with build(mix({"web": 1, "code": 3}), batch_size=5) as pipeline:
        pipeline.load_state_dict(state, [*MIXTURE, "Reader.batch_size"])
        samples += rest(pipeline)[0]
    assert Counter(samples) == Counter([*part("web"), *part("code")])


def test_a_mixture_that_has_ended_begins_with_the_next_epoch():
    with build(mix({"web": 1, "code": 1}), epochs=2) as pipeline:
        samples = read(pipeline, 338)
        state = saved(pipeline)
    assert set(part("code")) <= set(samples)
    with build(mix({"code": 1}), epochs=2) as pipeline:
        pipeline.load_state_dict(state, MIXTURE)
        assert set(rest(pipeline)[0]) == set(part("code"))
    refused(
        state,
        r"338 samples of the last epoch were read before \(epochs=1\), and the new mixture has no more samples for this "
        r"epoch",
        mix({"code": 1}),
    )


def test_mixes_of_mixes_change():
    inner = MixedDataset([part("code"), part("wiki")], stop="all")
    with build(mix({"web": 2, "books": 1}, {"books": inner})) as pipeline:
        samples = read(pipeline, 100)
        state = saved(pipeline)
    with build(mix({"books": 1, "web": 5}, {"books": inner})) as pipeline:
        pipeline.load_state_dict(state, MIXTURE)
        samples += rest(pipeline)[0]
    assert Counter(samples) == Counter(sample for name in ("web", "code", "wiki") for sample in part(name))
    other = MixedDataset([part("code"), part("wiki")], weights=[1, 2])
    refused(state, r"MixedDataset\(names=\.\.\.\): 'books' had other samples or parameters", mix({"books": 1, "web": 5}, {"books": other}))


def over_changes(**how):
    """Return the samples of a run that resumes with another mixture twice. ``how`` has a function of the number of the resume."""
    samples, state = [], None
    for number, weights in enumerate([{"web": 2, "code": 1}, {"web": 2, "wiki": 1}, {"code": 1, "web": 2, "wiki": 1}]):
        arguments = {name: value(number) for name, value in how.items()}
        with Pipeline([Reader(mix(weights), epochs=1)], seed=5, **arguments) as pipeline:
            if state is not None:
                pipeline.load_state_dict(state, MIXTURE)
            samples += read(pipeline, 50) if number < 2 else rest(pipeline)[0]
            state = saved(pipeline)
    assert Counter(samples) == Counter(sample for name in ("web", "code", "wiki") for sample in part(name))
    return samples


def test_an_isolated_pipeline_resumes_with_another_mixture():
    assert over_changes(isolated=lambda number: number == 1) == over_changes()  # from a state of this process, and back to it


def test_peers_resume_with_another_mixture():
    link = uuid.uuid4().hex

    def run(rank):
        return over_changes(peers=lambda number: PeerRanks(rank, (0, 1), f"test-{link}-{number}"))

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(run, range(2), timeout=60)) == [over_changes()] * 2


# --- refused ---

FIRST_MIX = mix({"web": 2, "code": 1})


def state_of(mixed, *stages, count=5, **how):
    with build(mixed, *stages, **how) as pipeline:
        read(pipeline, count)
        return saved(pipeline)


def refused(state, message, mixed, *stages, allow_changed=MIXTURE, **how):
    with build(mixed, *stages, **how) as pipeline, pytest.raises(PipelineError, match=message):
        pipeline.load_state_dict(state, allow_changed)


def test_a_changed_mixture_is_an_error_that_shows_how_to_accept_it():
    refused(
        state_of(FIRST_MIX), r"Reader: dataset.*names=.*allow_changed=\['Reader.mixture'\]", mix({"web": 1, "code": 1}), allow_changed=()
    )


def test_a_dataset_with_another_content_needs_another_name():
    second = mix({"web": 1, "code": 1}, {"code": range(39)})
    refused(state_of(FIRST_MIX), r"'code' had 40 samples, but now has 39; use a new name for a changed dataset, or resume with", second)
    second = mix({"web": 1, "code": 1}, {"code": Numbers(7, 40)})
    refused(state_of(FIRST_MIX), r"'code' had other samples or parameters; use a new name", second)


def test_mixtures_without_names_do_not_change():
    unnamed = MixedDataset([part("web"), part("code")])
    refused(state_of(unnamed), r"the pipeline that saved the state is not a MixedDataset with names=; resume with the same", FIRST_MIX)
    refused(state_of(FIRST_MIX), r"the dataset of this pipeline is not a MixedDataset with names=", unnamed)
    refused(state_of([1, 2] * 9), r"the dataset of this pipeline is not", [1, 2, 3])


def test_what_cannot_be_exact_is_refused():
    second = mix({"web": 1, "code": 1})
    refused(
        state_of(FIRST_MIX, Take(9)),
        r"Take keeps .* cannot resume with another mixture in the middle of an epoch.*; resume with the same mixture",
        second,
        Take(9),
    )
    refused(state_of(FIRST_MIX, Cache()), r"Cache", second, Cache())
    deal = Deal(len)
    state = state_of(FIRST_MIX)
    with (
        Pipeline([Reader(second, epochs=1)], seed=6) as pipeline,
        pytest.raises(PipelineError, match=r"the seed was 5 .* and is now 6; a changed"),
    ):
        pipeline.load_state_dict(state, [*MIXTURE, "seed"])
    refused(state, r"Reader: dataset, shuffle", second, shuffle=False)
    refused(state_of(FIRST_MIX, batch_size=4, deal=deal), "deal= assigns", second, batch_size=4, deal=deal)


def test_names_are_different_and_as_many_as_datasets():
    for names in (["a"], ["a", "a"], []):
        with pytest.raises(ConfigError, match=r"MixedDataset.*names=.*a different name for each of 2 datasets"):
            MixedDataset([[1], [2]], names=names)
