"""The seed of a pipeline reaches all in it that has none of its own, wherever it stands."""

import numpy as np
import pytest

from highway import Pipeline
from highway.datasets import DecodedCache
from highway.modules import (
    Cache,
    Concat,
    EncodedImageReader,
    ImageFileReader,
    Mix,
    Noise,
    Processes,
    Reader,
    Repeat,
    ShardSink,
    Shuffle,
    TenSink,
    TenSource,
    WebDatasetSource,
)
from highway.modules.caching.fingerprint import fingerprint
from highway.topology import load
from highway.transforms import RandomCrop

VAL = "highway:photos/val"


def content(stages, seed=None):
    """What comes out, as plain values that can be compared, with its passports."""
    with Pipeline(stages, seed) as pipeline:
        return [(_plain(item), passport._replace(origin=None, times=(), made_of=None)) for item, passport in pipeline.stamped()]


def _plain(value):
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, (tuple, list)) else np.asarray(value).tolist()


def drawn(item, rng):
    return item, int(rng.integers(1_000_000))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three shards, five ``.ten`` files and a cache."""
    folder = tmp_path_factory.mktemp("seeds")
    Pipeline([[{"cls": n} for n in range(30)], ShardSink(f"{folder}/%d.tar", max_samples=5)]).run()
    Pipeline([range(8), lambda n: (np.array([n]),), TenSink(str(folder / "ten"))]).run()
    with Pipeline([ImageFileReader(VAL, 4, (8, 8), 1), Cache(str(folder / "cache"), key="all")]) as pipeline:
        list(pipeline)
    return folder


COMPONENTS = {
    "reader": lambda files, **seed: [ImageFileReader(VAL, 4, None, 2, crop=RandomCrop((8, 8)), flip=0.5, **seed)],
    "encoded": lambda files, **seed: [EncodedImageReader(VAL, 4, 2, **seed)],
    "shards": lambda files, **seed: [WebDatasetSource(f"{files}/{{0..5}}.tar", None, 3, **seed)],
    "ten": lambda files, **seed: [TenSource(str(files / "ten"), 3, shuffle=True, **seed)],
    "cached": lambda files, **seed: [Reader(DecodedCache(str(files / "cache")), 4, epochs=3, **seed)],
    "cache": lambda files, **seed: [range(12), lambda n: (np.array(n),), Cache(epochs=4, **seed)],
    "noise": lambda files, **seed: [Noise((3,), count=3, **seed)],
    "mix": lambda files, **seed: [Mix([range(9), range(10, 19)], **seed)],
    "shuffle": lambda files, **seed: [range(20), Shuffle(5, **seed)],
    "parts": lambda files, **seed: [Concat([Mix([range(9), Noise((1,), count=9, **seed)], **seed), Noise((2,), count=2, **seed)])],
    "reader in a source": lambda files, **seed: [Concat([ImageFileReader(VAL, 4, (8, 8), 1, **seed)])],
    "passes": lambda files, **seed: [Repeat(Mix([range(9), range(10, 19)], **seed), 3)],
    "passes over stages": lambda files, **seed: [range(20), Shuffle(5, **seed), Repeat(times=3)],
    "passes over a pipeline": lambda files, **seed: [Repeat(Concat([Pipeline([range(20), Shuffle(5, **seed)])]), 3)],
    "pipeline": lambda files, **seed: [Pipeline([range(20), Shuffle(5, **seed)])],
    "processes": lambda files, **seed: [Processes([Noise((2,), count=6, **seed), Shuffle(3, **seed)])],
}


@pytest.mark.parametrize("stages", COMPONENTS.values(), ids=COMPONENTS)
def test_the_seed_of_a_pipeline_is_that_of_all_that_has_none(files, stages):
    without = content(stages(files))
    assert content(stages(files), 0) == content(stages(files, seed=0), 7) == without
    assert content(stages(files), 7) == content(stages(files, seed=7)) != without
    assert content(stages(files, seed=5), 7) == content(stages(files, seed=5)) != without


def test_a_pipeline_in_another_has_its_seed_unless_it_has_one():
    def inner(**seed):
        return Pipeline([range(9), drawn], **seed)

    alone = content([inner(seed=7)])
    for outer in (lambda source: source, lambda source: Concat([source]), lambda source: Mix([source])):
        assert [item for item, _ in content([outer(inner())], 7)] == [item for item, _ in alone]
        assert [item for item, _ in content([outer(inner(seed=7))], 9)] == [item for item, _ in alone]


@pytest.mark.parametrize("seed", [-1, 2**63, 2**200])
def test_any_whole_number_is_a_seed(seed):
    one, same = (content([range(30), Shuffle(9), drawn], seed) for _ in range(2))
    assert one == same != content([range(30), Shuffle(9), drawn])


def test_the_seed_of_a_file_reaches_its_components(tmp_path):
    text = "seed: {}\nroles: {{r: [Noise: {{shape: [3], count: 2{}}}]}}"
    found = []
    for number, values in enumerate([(0, ""), (7, ""), (0, ", seed: 7"), (9, ", seed: 7")]):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text.format(*values))
        with load(path).pipeline("r") as pipeline:
            found.append([_plain(item) for item in pipeline])
    assert found[0] != found[1] == found[2] == found[3]


def test_a_cache_is_known_by_the_seed_that_is_in_effect():
    def known(of_pipeline, **own):
        return fingerprint([ImageFileReader(VAL, 4, (8, 8), **own)], of_pipeline)

    assert known(0) == known(7, seed=0) == known(0, seed=0) != known(7)
    assert known(7) == known(0, seed=7) == known(9, seed=7)


def test_a_cache_with_a_key_is_made_anew_for_another_seed_if_that_has_a_part_in_it(tmp_path):
    def first_epoch(seed, **how):
        with Pipeline([ImageFileReader(VAL, 4, epochs=1, **how), Cache(str(tmp_path), key="photos")], seed) as pipeline:
            return [images.tolist() for images, _ in pipeline]

    crops = {"crop": RandomCrop((8, 8))}
    assert first_epoch(1, **crops) != first_epoch(2, **crops) == first_epoch(2, **crops)
    whole = {"shape": (8, 8)}
    assert first_epoch(3, **whole) == first_epoch(4, **whole)  # the order alone is another
