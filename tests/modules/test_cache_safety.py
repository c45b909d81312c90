"""A cache never serves what its source would not give, and touches no files but its own."""

import errno
import functools
import json
import os
import re
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from highway import Pipeline, Stage, Traits
from highway.datasets import DecodedCache
from highway.datasets.cache_files.claim import MANIFEST
from highway.datasets.cache_files.file import checksum
from highway.engine.stage import Passport, Stamped, expand
from highway.errors import ConfigError, DamagedError
from highway.modules import Augmentations, ImageFileReader, Reader
from highway.modules.cache import Cache
from highway.modules.caching.epoch import Progress
from highway.modules.caching.fingerprint import chance, fingerprint
from highway.transforms import FlipX


@dataclass
class Numbers:
    """A source: epochs of numbers, in the same order, with keys."""

    count: int = 20
    epochs: int = 3

    def __iter__(self):
        for epoch in range(self.epochs):
            for n in range(self.count):
                yield Stamped(n, Passport(epoch, n, keys=(f"k{n}",)))

    def __highway__(self):
        return Traits(epochs=self.epochs, fingerprint=lambda: f"{self.count} numbers")


DECODED = Counter()


@dataclass
class Decode:
    """A map: from a number to an image of many values, and its label."""

    side: int = 40

    def __call__(self, n):
        DECODED[n] += 1
        return np.random.default_rng(n).integers(0, 256, (self.side, self.side, 3), np.uint8), np.int32(n), f"name {n}"


def expected(n, side=40):
    return np.random.default_rng(n).integers(0, 256, (side, side, 3), np.uint8)


def epochs_of(stamped):
    """The labels of each epoch; every image must be that of its label."""
    found = {}
    for (images, labels, names), passport in stamped:
        for image, label, name in zip(images, labels.tolist(), names, strict=True):
            np.testing.assert_array_equal(image, expected(label))
            assert name == f"name {label}"
            found.setdefault(passport.epoch, []).append(label)
        assert passport.keys == tuple(f"k{n}" for n in labels.tolist())
    return [sorted(found[epoch]) for epoch in sorted(found)]


def run(path, epochs=3, **kwargs):
    with Pipeline([Numbers(epochs=1), Decode(), Cache(str(path), batch_size=6, epochs=epochs, **kwargs)]) as pipeline:
        return epochs_of(pipeline.stamped())


ALL = list(range(20))


# --- whose files they are ---


def contents(folder):
    return {name: (folder / name).read_bytes() for name in sorted(os.listdir(folder))}


@pytest.mark.parametrize(
    "names",
    [
        ["data-0000.tar", "data-0001.tar", "manifest.json"],
        ["manifest.json"],
        ["lock"],
        ["data-0123456789abcdef", "lock", "manifest.json"],
        ["highway-cache-0123456789abcdef.data"],
        ["highway-cache.lock", "highway-cache-of-mine.tar"],
    ],
)
def test_a_folder_that_holds_other_files_is_refused_and_left_as_it_is(tmp_path, names):
    folder = tmp_path / "shards"
    folder.mkdir()
    for name in names:
        (folder / name).write_text(json.dumps({"format": 1, "of": "mine"}))
    before = contents(folder)
    with pytest.raises(
        ConfigError, match=r"path='.*shards': the folder contains '.*', which do not belong to a cache; use an empty or new folder for"
    ):
        run(folder)
    assert contents(folder) == before


def test_a_finished_cache_leaves_files_of_others_alone(tmp_path):
    folder = tmp_path / "c"
    run(folder)
    (folder / "data-0000.tar").write_text("mine")
    assert run(folder) == [ALL] * 3  # reading does not mind
    before = contents(folder)
    with pytest.raises(ConfigError, match=r"contains 'data-0000.tar', which do not belong to a cache; use an empty or new folder for"):
        run(folder, key="another")
    assert contents(folder) == before


def test_hidden_files_are_no_reason_to_refuse(tmp_path):
    (tmp_path / ".DS_Store").write_text("")
    assert run(tmp_path) == [ALL] * 3
    assert (tmp_path / ".DS_Store").exists()


# --- what a cache was made from ---


@pytest.mark.parametrize("kwargs", [{}, {"key": "mine"}])
def test_another_seed_or_name_of_a_random_map_makes_it_anew(tmp_path, kwargs):
    def noisy(item, rng):
        return item + rng.random()

    def first(path, seed, name):
        with Pipeline([Numbers(4, 1), Stage(noisy, name=name), Cache(str(path), batch_size=4, **kwargs)], seed=seed) as pipeline:
            return next(iter(pipeline)).tolist()

    for seed, name in ((1, "a"), (2, "a"), (2, "b"), (1, "a")):
        fresh = first(tmp_path / f"{seed}{name}", seed, name)
        assert first(tmp_path / "c", seed, name) == fresh
        assert first(tmp_path / "c", seed, name) == fresh


def test_the_seed_does_not_matter_where_nothing_is_drawn():
    fixed = [Numbers(), Decode(), Augmentations([FlipX()], deterministic=True)]
    assert fingerprint(fixed, 1) == fingerprint(fixed, 2)
    drawing = [Numbers(), Decode(), Augmentations([FlipX()])]
    assert fingerprint(drawing, 1) != fingerprint(drawing, 2)
    assert chance(list(map(Stage, drawing)), 7) == "seed 7: Augmentations"


CODE = {
    "function": ("def f(n): return n + 1", "def f(n): return n + 2"),
    "call": ("def f(n): return abs(n)", "def f(n): return float(n)"),
    "default": ("def f(n, by=1): return n + by", "def f(n, by=2): return n + by"),
    "keyword default": ("def f(n, *, by=1): return n + by", "def f(n, *, by=2): return n + by"),
    "inner function": ("def f(n): return (lambda: n + 1)()", "def f(n): return (lambda: n + 2)()"),
    "closure": ("def make(by): return lambda n: n + by\nf = make(1)", "def make(by): return lambda n: n + by\nf = make(2)"),
    "global value": ("BY = 1\ndef f(n): return n + BY", "BY = 2\ndef f(n): return n + BY"),
    "global function": ("def g(n): return n\ndef f(n): return g(n)", "def g(n): return -n\ndef f(n): return g(n)"),
    "deeper": (
        "def h(n): return n\ndef g(n): return h(n)\ndef f(n): return g(n)",
        "def h(n): return -n\ndef g(n): return h(n)\ndef f(n): return g(n)",
    ),
    "method": (
        "from dataclasses import dataclass\n@dataclass\nclass F:\n  by: int = 1\n  def __call__(self, n): return n + self.by\nf = F()",
        "from dataclasses import dataclass\n@dataclass\nclass F:\n  by: int = 1\n  def __call__(self, n): return n - self.by\nf = F()",
    ),
    "other method": tuple(
        "from dataclasses import dataclass\n@dataclass\nclass F:\n  def g(self, n): "
        f"return {sign}n\n  def __call__(self, n): return self.g(n)\nf = F()"
        for sign in "+-"
    ),
    "base": (
        "from dataclasses import dataclass\nclass B:\n  def __call__(self, n): return n\n@dataclass\nclass F(B): pass\nf = F()",
        "from dataclasses import dataclass\nclass B:\n  def __call__(self, n): return -n\n@dataclass\nclass F(B): pass\nf = F()",
    ),
}


def built(text, monkeypatch, tmp_path):
    """The ``f`` of a module of the user's own."""
    path = tmp_path / "users_own.py"
    path.write_text(text)
    module = type(os)("users_own")
    module.__file__ = str(path)
    monkeypatch.setitem(__import__("sys").modules, "users_own", module)
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module.f


@pytest.mark.parametrize("what", CODE)
def test_changed_code_of_a_map_makes_it_anew(what, monkeypatch, tmp_path):
    old, new = CODE[what]
    known = fingerprint([Numbers(), built(old, monkeypatch, tmp_path)])
    assert fingerprint([Numbers(), built("# a comment\n\n" + old, monkeypatch, tmp_path)]) == known
    assert fingerprint([Numbers(), built(new, monkeypatch, tmp_path)]) != known


def test_functions_that_call_themselves_or_each_other_are_known(monkeypatch, tmp_path):
    text = "def g(n): return f(n - 1)\ndef f(n): return g(n) if n else f"
    assert fingerprint([Numbers(), built(text, monkeypatch, tmp_path)])


def test_partials_methods_and_builtins_are_known_by_what_they_are_made_of():
    def scale(n, by):
        return n * by

    maps = [str, float, abs, np.flip, "text".join, functools.partial(scale, by=1), functools.partial(scale, by=2), Decode(1).__call__]
    assert len({fingerprint([Numbers(), op]) for op in [*maps, Decode(2).__call__]}) == len(maps) + 1


# --- damage ---


class Files(dict):
    """Files by name, without their contents in messages."""

    def __repr__(self):
        return f"Files({', '.join(self)})"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished cache."""
    path = tmp_path_factory.mktemp("whole") / "c"
    run(path)
    return Files(contents(path))


def restored(whole, path):
    path.mkdir(exist_ok=True)
    for name in os.listdir(path):
        os.unlink(path / name)
    for name, data in whole.items():
        (path / name).write_bytes(data)


def flip(data, place, _):
    damaged = bytearray(data)
    damaged[place % len(data)] ^= 1 << place % 8
    return bytes(damaged)


def zero(data, place, size):
    start = place % len(data)
    return data[:start] + bytes(min(size, len(data) - start)) + data[start + size :]


def cut(data, place, _):
    return data[: place % len(data)]


def swap(data, place, size):
    start = place % len(data)
    return data[:start] + data[start : start + size][::-1] + data[start + size :]


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    kind=st.sampled_from(["data", "index", "json"]),
    damage=st.sampled_from([flip, zero, cut, swap]),
    place=st.integers(0, 2**31),
    size=st.sampled_from([1, 100, 4096, 10**6]),
)
def test_a_damaged_cache_never_serves_other_pixels_and_never_fails(whole, tmp_path, kind, damage, place, size):
    path = tmp_path / "c"
    restored(whole, path)
    (name,) = (name for name in whole if name.endswith(kind))
    (path / name).write_bytes(damage(whole[name], place, size))
    assert run(path, epochs=2) == [ALL] * 2
    DECODED.clear()
    assert run(path, epochs=2) == [ALL] * 2  # whatever was made anew is whole now
    assert not DECODED


def test_a_damaged_sample_is_said_and_made_again_and_nothing_else(whole, tmp_path, caplog):
    path = tmp_path / "c"
    restored(whole, path)
    (name,) = (name for name in whole if name.endswith("data"))
    (path / name).write_bytes(zero(whole[name], 12 * 5000, 4096))
    assert run(path) == [ALL] * 3
    assert contents(path) == whole
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 2
    assert (
        "damaged: samples" in said[0] and "(k1" in said[0] and "highway checks all samples and creates the damaged samples again" in said[0]
    )
    assert re.search(r": created again: \d+ samples?$", said[1])


def test_what_one_thread_has_made_again_another_that_has_read_it_before_does_not(whole, tmp_path, caplog):
    path = tmp_path / "c"
    restored(whole, path)
    (name,) = (name for name in whole if name.endswith("data"))
    (path / name).write_bytes(zero(whole[name], 12 * 5000, 4096))
    before = [stage for stage, _ in expand([Numbers(epochs=1), Decode()])]
    cache = Traits.of(Cache(str(path), batch_size=6, epochs=3)).after(before)[-2].op
    assert cache.open(0)
    with pytest.raises(DamagedError) as caught:
        cache.file.columns(range(20))
    for _ in range(2):
        cache.repair(cache.file, caught.value)
    assert contents(path) == whole and len(caplog.messages) == 2
    (path / name).write_bytes(zero(whole[name], 12 * 5000, 4096))
    cache.file.damaged()  # which forgets what was whole before
    cache.repair(cache.file, caught.value)
    assert contents(path) == whole and len(caplog.messages) == 4


@pytest.mark.parametrize("warm", [True, False])
def test_a_file_that_is_cut_short_while_it_is_served_is_repaired(tmp_path, warm):
    path = tmp_path / "c"
    before = [Numbers(epochs=1), Decode()]
    if warm:
        with Pipeline([*before, Cache(str(path), batch_size=5, epochs=1, key="served")]) as pipeline:
            list(pipeline)
    epochs = 100  # far more than 64 workers read ahead
    with Pipeline([*before, Cache(str(path), batch_size=5, epochs=epochs, stack=False, key="served")]) as pipeline:
        coming = pipeline.stamped()
        taken = list(islice(coming, 6))
        (data,) = path.glob("*.data")
        whole = data.read_bytes()
        os.truncate(data, 3 * 4900)
        assert epochs_of([*taken, *coming]) == [ALL] * epochs
    assert data.read_bytes() == whole


def test_what_cannot_be_made_again_is_an_error_and_the_next_run_makes_all_anew(tmp_path):
    path = tmp_path / "c"
    run(path, key="mine")
    (data,) = path.glob("*.data")
    data.write_bytes(flip(data.read_bytes(), 5000, 0))
    says = r"highway-cache-.*.data: damaged: samples 1 \(k1\) do not match their checksums"
    again = Pipeline([Numbers(epochs=1), Decode(39), Cache(str(path), batch_size=6, epochs=3, key="mine")])
    with again, pytest.raises(DamagedError, match=says) as caught:
        list(again)
    assert any("highway discards the cache, and the next run creates it again" in note for note in caught.value.__notes__)
    assert not (path / MANIFEST).exists()
    assert run(path, key="mine") == [ALL] * 3


def test_a_cache_without_a_source_says_which_sample_is_damaged(tmp_path):
    def epoch(path):
        with Pipeline([Reader(DecodedCache(str(path)), 20, epochs=1)]) as pipeline:
            return list(pipeline)

    run(tmp_path / "c")
    assert len(epoch(tmp_path / "c")) == 1
    (data,) = (tmp_path / "c").glob("*.data")
    data.write_bytes(flip(data.read_bytes(), 5000, 0))
    with pytest.raises(DamagedError, match=r"damaged: samples 1 \(k1\) do not match their checksums"):
        epoch(tmp_path / "c")


def test_a_disk_that_fails_is_damage_too(tmp_path, monkeypatch):
    run(tmp_path / "c")
    read = os.preadv
    failed = []

    def failing(descriptor, buffers, offset):
        if offset > 10_000 and not failed:
            failed.append(offset)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", failing)
    assert run(tmp_path / "c") == [ALL] * 3
    assert failed


def test_each_sample_is_checked_once(tmp_path, one_worker, monkeypatch):
    run(tmp_path / "c")
    counted = []
    monkeypatch.setattr("highway.datasets.cache_files.file.checksum", lambda parts: counted.append(0) or checksum(parts))
    assert run(tmp_path / "c", epochs=5) == [ALL] * 5
    assert len(counted) == 20


# --- what was left out ---


class Flaky:
    """A map that fails at some numbers, as often as is said."""

    def __init__(self, failures):
        self.failures = Counter(failures)

    def __call__(self, n):
        if self.failures[n] > 0:
            self.failures[n] -= 1
            raise OSError(f"cannot read {n} just now")
        return n

    def fingerprint(self):
        return ""


def flaky(path, failures, epochs=4, of_source=9):
    cache = Cache(path and str(path), batch_size=6, epochs=epochs)
    with Pipeline([Numbers(epochs=of_source), Stage(Flaky(failures), on_error="skip"), Decode(), cache]) as pipeline:
        return epochs_of(pipeline.stamped())


def without(*numbers):
    return [n for n in ALL if n not in numbers]


@pytest.mark.parametrize("in_memory", [True, False])
def test_what_failed_once_is_there_from_the_next_epoch_on(tmp_path, in_memory):
    path = None if in_memory else tmp_path / "c"
    assert flaky(path, {0: 1, 7: 1, 19: 1}) == [without(0, 7, 19), ALL, ALL, ALL]
    if path:
        DECODED.clear()
        assert flaky(path, {}) == [ALL] * 4
        assert not DECODED


def test_what_failed_is_tried_again_by_the_next_run(tmp_path, caplog):
    assert flaky(tmp_path / "c", {7: 1}, epochs=1, of_source=1) == [without(7)]
    assert "samples are missing, because on_error='skip' has skipped" in caplog.text
    manifest = json.loads((tmp_path / "c" / MANIFEST).read_text())["manifest"]
    assert (manifest["samples"], manifest["left_out"], manifest["settled"]) == (19, 1, False)
    assert flaky(tmp_path / "c", {}) == [ALL] * 4
    manifest = json.loads((tmp_path / "c" / MANIFEST).read_text())["manifest"]
    assert (manifest["samples"], manifest["left_out"], manifest["settled"]) == (20, 0, True)
    DECODED.clear()
    assert flaky(tmp_path / "c", {}) == [ALL] * 4
    assert not DECODED


def test_what_fails_twice_stays_out_and_is_not_decoded_for_ever(tmp_path, caplog):
    DECODED.clear()
    assert flaky(tmp_path / "c", {7: 99}, epochs=6) == [without(7)] * 6
    assert "remove the cache to decode them again" in caplog.text
    assert max(DECODED.values()) <= 3  # two epochs, and what was on its way
    DECODED.clear()
    assert flaky(tmp_path / "c", {}) == [without(7)] * 4
    assert not DECODED


def test_a_try_that_brings_others_is_not_the_last(tmp_path):
    found = flaky(tmp_path / "c", {3: 1, 7: 99}, epochs=6)
    assert found == [without(3, 7), *[without(7)] * 5]


def test_another_image_takes_the_place_of_a_bad_one_in_every_epoch_as_without_a_cache(photos, tmp_path):
    bad = photos / "a" / "04.png"
    good = bad.read_bytes()
    times = bad.stat()
    bad.write_bytes(b"x" * len(good))
    os.utime(bad, ns=(times.st_atime_ns, times.st_mtime_ns))  # so that only a try can tell

    def found():
        reader = Stage(ImageFileReader(str(photos), 4, (7, 9), epochs=1), on_error="skip")
        with Pipeline([reader, Cache(str(tmp_path / "c"), epochs=2)]) as pipeline:
            return [sorted(n for images, _ in pipeline for n in images[:, 0, 0, 0].tolist()) for _ in range(2)]

    first, second = found()
    assert len(first) == 12 and len(set(first)) == 11  # as without a cache: the row of the bad file holds its neighbour
    assert len(second) == 12 and set(second) == set(first)
    bad.write_bytes(good)
    os.utime(bad, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert found() == [list(range(12))] * 2
    assert found() == [list(range(12))] * 2


# --- how far it is ---


def test_the_first_epoch_says_how_far_it_is(caplog, monkeypatch):
    caplog.set_level("INFO", "highway")
    monkeypatch.setattr("highway.modules.caching.epoch.time", SimpleNamespace(monotonic=iter([1000.0, 1030.0, 1030.0, 1060.0]).__next__))
    progress = Progress("cache out/c", 2000)
    assert progress.at(500) == "500 of 2,000 samples written (25%), 1:30 left"
    assert caplog.messages == ["cache out/c: 500 of 2,000 samples written (25%), 1:30 left; later epochs read the cache"]
    assert Progress("cache in memory", None).at(1500) == "1,500 samples written"


def test_progress_is_in_the_statistics_while_the_first_epoch_lasts(tmp_path, one_worker):
    for number in range(100):  # more than fit into the queues
        path = tmp_path / "photos" / "a" / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 7)).save(path)
    reader = ImageFileReader(str(tmp_path / "photos"), 1, (7, 9), epochs=2)
    with Pipeline([reader, Cache(str(tmp_path / "c"))]) as pipeline:
        pipeline.dequeue()
        assert "of 100 samples written" in str(pipeline.stats())
        for _ in pipeline.stamped():
            pass
        assert "samples written" not in str(pipeline.stats())
