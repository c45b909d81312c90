import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from highway import Pipeline, Stage, Traits
from highway.datasets.cache_files.claim import MANIFEST
from highway.datasets.cache_files.folder import CacheFolder
from highway.engine.cancel import wait
from highway.engine.stage import Passport, Stamped, expand
from highway.errors import CacheFullError, ConfigError
from highway.modules import Augmentations, ImageFileReader
from highway.modules.cache import Cache
from highway.modules.caching.fingerprint import fingerprint
from highway.process.memory import free_disk
from highway.transforms import CenterCrop, RandomResizedCrop


def reader(photos, epochs=3, **kwargs):
    return ImageFileReader(str(photos), 5, (6, 8), epochs=epochs, **kwargs)


def after(cache, *before):
    """The stages of a pipeline in which ``cache`` stands after ``before`` and knows it."""
    return Traits.of(cache).after([stage for stage, _ in expand(before)])


def run(stages):
    """What comes out: pairs of item and passport."""
    with Pipeline(stages) as pipeline:
        return list(pipeline.stamped())


def counters_of_cache(pipeline):
    (counters,) = (stage.counters for stage in pipeline.stats().stages if stage.name == "Cache.epochs")
    return counters


def content(found):
    return [(*(np.asarray(value).tobytes() for value in item), p.epoch, p.index, p.keys) for item, p in found]


class Numbers:
    """A source: epochs of numbers."""

    def __init__(self, count=10, epochs=4, shapes=((4, 3, 3),)):
        self.count, self.epochs = count, epochs
        self.decode = Decode(shapes)

    def __iter__(self):
        for epoch in range(self.epochs):
            for n in range(self.count):
                yield Stamped(n, Passport(epoch, n, keys=(f"k{n}",)))

    def __highway__(self):
        return Traits(epochs=self.epochs, fingerprint=lambda: f"{self.count} numbers")


@dataclass
class Decode:
    """A map: from numbers to images of these shapes; counts."""

    shapes: tuple[tuple[int, ...], ...]
    counts: Counter = field(default_factory=Counter, init=False)

    def __call__(self, n):
        self.counts[n] += 1
        return {"image": np.full(self.shapes[n % len(self.shapes)], n, np.uint8), "label": n, "name": f"name {n}"}


# --- what comes out ---


def test_the_first_epoch_is_what_it_is_without_a_cache(photos, tmp_path):
    without = content(run([reader(photos, 1)]))
    assert content(run(after(Cache(str(tmp_path / "c")), reader(photos, 3))))[:3] == without
    assert content(run(after(Cache(str(tmp_path / "c")), reader(photos, 3))))[:3] == without


def test_every_epoch_has_every_sample_once_with_its_own_pixels_label_and_key(photos, tmp_path):
    found = run(after(Cache(str(tmp_path / "c")), reader(photos, 4)))
    assert [(p.epoch, p.index) for _, p in found] == [(epoch, index) for epoch in range(4) for index in range(3)]
    orders = []
    for epoch in range(4):
        order = [n for (images, _), p in found if p.epoch == epoch for n in images[:, 0, 0, 0].tolist()]
        assert sorted(order) == list(range(12))
        orders.append(order)
    assert all(one != other for one, other in pairwise(orders))
    for (images, labels), passport in found:
        assert images.dtype == np.uint8 and images.shape[1:] == (6, 8, 3) and labels.dtype == np.int32
        assert (images == images[:, :1, :1, :1]).all()
        assert labels.tolist() == (images[:, 0, 0, 0] % 2).tolist()
        assert passport.keys == tuple(f"{'ab'[n % 2]}/{n:02}.png" for n in images[:, 0, 0, 0].tolist())


def test_runs_that_make_the_cache_and_that_find_it_give_the_same_bytes(photos, tmp_path):
    cold = content(run(after(Cache(str(tmp_path / "c"), seed=3), reader(photos, 4))))
    warm = content(run(after(Cache(str(tmp_path / "c"), seed=3), reader(photos, 4))))
    in_memory = content(run(after(Cache(seed=3), reader(photos, 4))))
    other = content(run(after(Cache(str(tmp_path / "c"), seed=4), reader(photos, 4))))
    assert cold == warm == in_memory
    assert other[:3] == cold[:3] and other[3:] != cold[3:]


def test_without_shuffle_every_epoch_has_the_order_of_the_first(photos):
    found = run(after(Cache(shuffle=False), reader(photos, 3)))
    orders = [[(item[0].tobytes(), p.keys) for item, p in found if p.epoch == epoch] for epoch in range(3)]
    assert orders[0] == orders[1] == orders[2]


def test_epochs_after_the_first_do_not_decode(tmp_path):
    numbers = Numbers(100, epochs=50)
    found = run(after(Cache(str(tmp_path / "c"), batch_size=10), numbers, numbers.decode))
    assert len(found) == 500
    assert 100 <= numbers.decode.counts.total() <= 100 + 80  # what was on its way when the first epoch ended
    numbers.decode.counts.clear()
    found = run(after(Cache(str(tmp_path / "c"), batch_size=10), numbers, numbers.decode))
    assert len(found) == 500
    assert numbers.decode.counts.total() == 0


@pytest.mark.parametrize("path", [None, "c"])
def test_samples_of_one_shape_go_out_as_batches(tmp_path, path):
    numbers = Numbers(5, epochs=2)
    cache = Cache(path and str(tmp_path / path), batch_size=2, shuffle=False)
    with Pipeline(after(cache, numbers, numbers.decode)) as pipeline:
        found = list(pipeline.stamped())
    assert [(p.epoch, p.index, p.keys) for _, p in found[:3]] == [(0, 0, ("k0", "k1")), (0, 1, ("k2", "k3")), (0, 2, ("k4",))]
    assert [p[1:2] + p[3:4] for _, p in found[3:]] == [p[1:2] + p[3:4] for _, p in found[:3]]
    for one, other in zip(found[:3], found[3:], strict=True):
        assert list(one[0]) == ["image", "label", "name"]
        for name in ("image", "label"):
            np.testing.assert_array_equal(one[0][name], other[0][name])
            assert one[0][name].dtype == other[0][name].dtype
        assert one[0]["name"] == other[0]["name"]
    assert found[5][0]["name"] == ["name 4"] and found[5][0]["label"].tolist() == [4]


def test_samples_of_many_shapes_go_out_as_lists_which_can_be_cropped(tmp_path):
    numbers = Numbers(6, epochs=3, shapes=((4, 3, 3), (9, 20, 3), (30, 5, 3)))
    cache = Cache(str(tmp_path / "c"), batch_size=4, stack=False)
    with Pipeline(after(cache, numbers, numbers.decode)) as pipeline:
        found = list(pipeline.stamped())
    for item, passport in found:
        assert [image.shape for image in item["image"]] == [numbers.decode.shapes[n % 3] for n in item["label"].tolist()]
        assert [image[0, 0, 0] for image in item["image"]] == item["label"].tolist()
        assert passport.keys == tuple(f"k{n}" for n in item["label"].tolist())
    assert not found[-1][0]["image"][0].flags.writeable
    crops = run([*after(cache, numbers, numbers.decode), Augmentations([RandomResizedCrop((5, 5))])])
    for item, _ in crops:
        assert item["image"].shape == (len(item["label"]), 5, 5, 3)
        assert (item["image"] == item["label"][:, None, None, None]).all()


def test_batches_can_go_out_as_lists_too(photos):
    found = run(after(Cache(stack=False), reader(photos, 2)))
    assert [type(images) for (images, _), _ in found] == [list] * 6
    stacked = run(after(Cache(), reader(photos, 2)))
    assert content(found) == content(stacked)


def test_the_number_of_epochs_is_the_readers_or_its_own(photos, tmp_path):
    for path in (None, str(tmp_path / "c"), str(tmp_path / "c")):
        assert len(run(after(Cache(path), reader(photos, 1)))) == 3
        assert len(run(after(Cache(path, epochs=4), reader(photos, 1)))) == 12
        assert len(run(after(Cache(path, epochs=2), reader(photos, None)))) == 6
        with Pipeline(after(Cache(path), reader(photos, None))) as pipeline:
            assert len([pipeline.dequeue() for _ in range(20)]) == 20


def test_a_cache_that_does_not_know_what_stands_before_it_goes_by_its_key(photos, tmp_path):
    cache = Cache(str(tmp_path / "c"), epochs=3, key="photos, 6x8")
    cold = content(run([reader(photos), cache]))
    assert content(run([reader(photos, None), cache])) == cold
    assert content(run(after(Cache(), reader(photos)))) == cold
    with Pipeline([reader(photos), cache]) as pipeline:
        list(pipeline)
    counters = counters_of_cache(pipeline)
    assert counters["state"] == "serving" and counters["samples"] == 12


def test_batches_that_are_kept_are_never_written_again(photos):
    found = run(after(Cache(), reader(photos, 30)))
    assert [item[0][0, 0, 0, 0] for item, _ in found] == [int(p.keys[0][2:4]) for _, p in found]


# --- what a cache is made from ---


def made_anew(photos, tmp_path, change, **kwargs):
    path = tmp_path / "c"
    run(after(Cache(str(path)), reader(photos)))
    before = (path / MANIFEST).read_text()
    change()
    found = run(after(Cache(str(path)), reader(photos, **kwargs)))
    assert [item[0].shape[0] for item, _ in found[:2]] == [5, 5]
    assert len(list(path.glob("*.data"))) == 1
    return before != (path / MANIFEST).read_text()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda photos: None, False),
        (lambda photos: os.utime(photos / "a" / "04.png", (1, 1)), True),
        (lambda photos: (photos / "a" / "04.png").rename(photos / "a" / "24.png"), True),
        (lambda photos: (photos / "b" / "05.png").unlink(), True),
        (lambda photos: Image.new("RGB", (9, 7), 1).save(photos / "b" / "new.png"), True),
    ],
)
def test_a_changed_file_makes_it_anew(photos, tmp_path, change, expected):
    assert made_anew(photos, tmp_path, lambda: change(photos)) is expected


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [({"epochs": 9}, False), ({"num_workers": 1}, False), ({"antialias": True}, True), ({"seed": 1}, True), ({"flip": 1.0}, True)],
)
def test_a_changed_parameter_makes_it_anew_if_it_changes_the_samples(photos, tmp_path, parameters, expected):
    assert made_anew(photos, tmp_path, lambda: None, **parameters) is expected


def test_maps_before_it_count():
    source = Numbers()
    known = [fingerprint([source, Augmentations([CenterCrop((n, 2))], field=name)]) for n in (1, 2) for name in (None, 0)]
    assert len({*known, fingerprint([source])}) == 5
    assert known[0] == fingerprint([Numbers(), Augmentations([CenterCrop((1, 2))])])


class Unknown:
    """A map that holds something of which nobody can say what it is."""

    def __init__(self):
        self.numbers = (n for n in range(3))

    def __call__(self, n):
        return n


@pytest.mark.parametrize("before", [[Numbers(), Unknown()], [range(3)]])
def test_what_cannot_be_known_needs_a_key(tmp_path, before):
    with pytest.raises(ConfigError, match=r"whether .* still makes the same items: pass"):
        run(after(Cache(str(tmp_path / "c")), *before))
    with pytest.raises(ConfigError, match=r"whether .* still makes the same items: pass"):
        run([*before, Cache(str(tmp_path / "c"))])


# --- what was not finished ---

SCRIPT = """
import os, signal, sys, resource
import numpy as np
from highway import Pipeline
from highway.modules.cache import Cache
from highway.engine.stage import Passport, Stamped

class Source:
    def __iter__(self):
        for epoch in range(3):
            for n in range(40):
                if (epoch, n) == DIE_AT:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield Stamped({"image": np.full((64, 64, 3), n, np.uint8), "label": n}, Passport(epoch, n, keys=(str(n),)))

DIE_AT = eval(sys.argv[2])
if len(sys.argv) > 3:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
with Pipeline([Source(), Cache(sys.argv[1], batch_size=8, epochs=3, key="k")]) as pipeline:
    for epoch in range(3):
        for batch in pipeline:
            assert (batch["image"] == batch["label"][:, None, None, None]).all()
            print(*batch["label"], flush=True)
"""


def script(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-B", "-c", SCRIPT, *map(str, arguments)]  # -B: a limit would cut files of bytecode, too
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def labels(output):
    return [int(n) for line in output.splitlines() for n in line.split()]


@pytest.mark.slow
@pytest.mark.parametrize("die_at", [(0, 30), (0, 39), (1, 1)])
def test_a_cache_whose_writer_was_killed_is_discarded_and_made_anew(tmp_path, die_at):
    path = tmp_path / "c"
    with script(path, die_at) as killed:
        killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    if die_at[0] == 0:
        assert len(list(path.glob("*.data"))) == 1 and not (path / MANIFEST).exists()
    with script(path, None) as process:
        output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert labels(output)[:40] == list(range(40))
    assert [sorted(labels(output)[start : start + 40]) for start in (0, 40, 80)] == [list(range(40))] * 3
    assert len(list(path.glob("*.data"))) == 1


def test_a_run_that_stops_early_leaves_no_cache(tmp_path):
    def stuck_at_5(n):
        if n == 5:
            wait(600)  # until the pipeline is stopped
        return {"n": n}

    path = tmp_path / "c"
    with Pipeline([Numbers(), stuck_at_5, Cache(str(path), batch_size=2, key="k")]) as pipeline:
        assert pipeline.dequeue()["n"].tolist() == [0, 1]
        assert len(list(path.glob("*.data"))) == 1
    assert [file.name for file in path.iterdir()] == ["highway-cache.lock"]


def test_a_source_that_fails_leaves_no_cache(photos, tmp_path):
    (photos / "b" / "zz.png").write_text("no image")
    with pytest.raises(ValueError, match=r"zz.png"):
        run(after(Cache(str(tmp_path / "c")), ImageFileReader(str(photos), 1, (6, 8), shuffle=False, num_workers=1)))
    assert list((tmp_path / "c").glob("*[!k]")) == []  # at most the lock


@pytest.mark.parametrize(
    "damage",
    [
        lambda path, data: data.write_bytes(data.read_bytes()[:-1]),
        lambda path, data: data.unlink(),
        lambda path, data: (path / MANIFEST).write_text('{"manifest": 1'),
        lambda path, data: (path / MANIFEST).write_text("[]"),
        lambda path, data: (path / MANIFEST).unlink(),
        lambda path, data: (path / MANIFEST).rename(path / f"{MANIFEST}.new"),
        lambda path, data: (path / MANIFEST).write_text(re.sub(r'"format": \d+', '"format": 0', (path / MANIFEST).read_text())),
    ],
)
def test_a_damaged_cache_is_not_served_but_made_anew(photos, tmp_path, damage):
    path = tmp_path / "c"
    whole = content(run(after(Cache(str(path)), reader(photos))))
    (data,) = path.glob("*.data")
    damage(path, data)
    assert content(run(after(Cache(str(path)), reader(photos)))) == whole
    (new,) = path.glob("*.data")
    assert new != data and json.loads((path / MANIFEST).read_text())["manifest"]["name"] == new.stem


# --- several processes ---


def test_while_another_writes_epochs_pass_and_the_next_comes_from_its_cache(photos, tmp_path):
    sealed = threading.Event()

    class TwoEpochsUntilSealed:  # else as many come as fit into the queues, which are longer the more cores there are
        def stream(self, items):
            for item in items:
                assert items.passport.epoch < 2 or sealed.wait(60)
                yield Stamped(item, items.passport)

    folder = CacheFolder(str(tmp_path / "c"), "k batches")
    cache = Cache(folder.path, epochs=9, key="k", batched=True)
    with Pipeline([reader(photos, None), TwoEpochsUntilSealed(), cache]) as pipeline, folder.writer(10**9) as other:
        coming = pipeline.stamped()
        found = list(islice(coming, 4))
        assert counters_of_cache(pipeline)["state"] == "another process writes"
        for n in range(12):
            other.add((np.full((6, 8, 3), n + 100, np.uint8), np.int32(n)), [f"k{n}"])
        other.seal(5)
        sealed.set()
        found += coming
    assert [(p.epoch, p.index) for _, p in found] == [(epoch, index) for epoch in range(9) for index in range(3)]
    epochs = [sorted(n for item, p in found if p.epoch == epoch for n in item[0][:, 0, 0, 0].tolist()) for epoch in range(9)]
    assert epochs == [list(range(12))] * 2 + [list(range(100, 112))] * 7


def test_two_processes_at_once_both_get_every_sample_and_leave_one_cache(tmp_path):
    path = tmp_path / "c"
    processes = [script(path, None) for _ in range(3)]
    for process in processes:
        with process:
            output, errors = process.communicate()
        assert process.returncode == 0, errors
        assert [sorted(labels(output)[start : start + 40]) for start in (0, 40, 80)] == [list(range(40))] * 3
    assert len(list(path.glob("*.data"))) == 1
    assert CacheFolder(str(path), "k samples").open() is not None


def test_a_cache_that_is_replaced_is_still_whole_for_those_who_read_it(photos, tmp_path):
    path = tmp_path / "c"
    with Pipeline(after(Cache(str(path), shuffle=False), reader(photos, None))) as pipeline:
        first = [pipeline.dequeue() for _ in range(6)][:3]
        os.utime(photos / "a" / "00.png", (1, 1))
        run(after(Cache(str(path)), reader(photos, 2)))
        later = [pipeline.dequeue() for _ in range(12)][-3:]
    assert [images.tobytes() for images, _ in first] == [images.tobytes() for images, _ in later]


# --- what does not fit ---


def test_samples_over_the_budget_are_decoded_in_every_epoch_and_it_is_said_once(tmp_path, caplog):
    numbers = Numbers(10, epochs=4)
    cache = Cache(str(tmp_path / "c"), budget=1000, batch_size=5)
    with Pipeline(after(cache, numbers, numbers.decode)) as pipeline:
        found = list(pipeline.stamped())
    assert [sorted(n for item, p in found if p.epoch == epoch for n in item["label"].tolist()) for epoch in range(4)] == [
        list(range(10))
    ] * 4
    assert numbers.decode.counts == dict.fromkeys(range(10), 4)
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1 and "the budget of 1,000 bytes is used" in warnings[0] and "raise budget" in warnings[0]
    assert [file.name for file in (tmp_path / "c").iterdir()] == ["highway-cache.lock"]
    assert counters_of_cache(pipeline)["state"] == "full"


@pytest.mark.parametrize("limit", [1, 70_000, 64 * 64 * 3 * 40 + 64 * 40])
def test_a_full_disk_is_no_end_of_the_run(tmp_path, limit):
    with script(tmp_path / "c", None, limit) as process:
        output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert labels(output) == list(range(40)) * 3
    assert errors.count("File too large") == 1 and "decodes every epoch" in errors
    assert [file.name for file in (tmp_path / "c").iterdir()] == ["highway-cache.lock"]


def test_a_folder_that_cannot_be_made_is_an_error(photos, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        run(after(Cache(str(tmp_path / "file" / "c")), reader(photos)))


def test_the_disk_is_asked_for(tmp_path):
    assert free_disk(str(tmp_path / "not" / "yet")) > 10**6


# --- bad input ---


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"budget": 0}, "budget=0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"epochs": 0}, "epochs=0"),
        ({"seed": -1}, "seed=-1"),
        ({"path": ""}, "path=''"),
    ],
)
def test_a_wrong_parameter_is_named(parameters, message):
    with pytest.raises(ConfigError, match=f"Cache: {message}; expected"):
        Cache(**parameters)


def test_samples_where_batches_are_expected_are_an_error_with_a_way_out():
    with pytest.raises(ValueError, match=r"an item of 4 rows has 1 keys; if the item is one sample, pass batched=False, or batch_size="):
        run([[Stamped((np.zeros((4, 3)),), Passport(keys=("one",)))], Cache(batched=True)])
    with pytest.raises(ValueError, match=r"must share a batch axis") as caught:
        run([[(np.zeros((4, 3)), 7)], Cache(batched=True)])
    assert any("pass batched=False" in note for note in caught.value.__notes__)


def test_samples_that_differ_are_errors_that_name_the_field():
    shapes = [{"image": np.zeros((n, 3), np.uint8)} for n in (1, 2)]
    with pytest.raises(ValueError, match=r"field 'image' has the shapes \[\(1, 3\), \(2, 3\)\] in one batch; resize .* stack=False"):
        run([shapes, Cache(batch_size=2)])
    with pytest.raises(ValueError, match=r"sample 1 has dict 'a': float32 with 0 axes, but sample 0 has dict 'a': int64 with 0 axes"):
        run([[{"a": np.int64(1)}, {"a": np.float32(1)}], Cache(batch_size=2)])
    for value, error in [
        (None, "field 'a' is a NoneType; expected an array of numbers, a number, a str or bytes"),
        (2**70, "field 'a' is 1180591620717411303424, which does not fit into 64 bits; expected"),
        ([[1, 2], [3]], "field 'a', a list, cannot be stored: .* inhomogeneous shape"),
        ("\ud800", "field 'a', a str, cannot be stored: .* surrogates not allowed"),
    ]:
        with pytest.raises(TypeError, match=error):
            run([[{"a": value}], Cache(batch_size=2)])


def test_an_empty_source_gives_nothing(tmp_path):
    assert run([[], Cache()]) == []
    assert run(after(Cache(str(tmp_path / "c"), key="k"), [])) == []


# --- the file ---

values = st.one_of(
    hnp.arrays(
        hnp.scalar_dtypes().filter(lambda dtype: dtype.kind in "biufc"), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    ),
    st.text(max_size=5),
    st.binary(max_size=5),
)


@given(st.dictionaries(st.text(max_size=3), values, min_size=1, max_size=4), st.lists(st.text("abc", min_size=1), max_size=2))
def test_a_sample_comes_back_as_it_was(sample, keys):
    folder = CacheFolder("", "k")
    with folder.writer(10**6) as writer:
        for _ in range(3):
            writer.add(sample, keys)
        file = writer.seal(2)
    assert len(file) == 3 and file.keys([1]) == tuple(keys)
    back = file.layout.item([column[1] for column in file.columns([0, 2])])
    assert list(back) == list(sample)
    for name, value in sample.items():
        if isinstance(value, (str, bytes)):
            assert back[name] == value
        else:
            assert back[name].dtype == value.dtype and back[name].shape == value.shape
            assert back[name].tobytes() == value.tobytes()


def test_every_array_begins_at_a_multiple_of_64_bytes():
    with CacheFolder("", "k").writer(10**6) as writer:
        for n in range(1, 20):
            writer.add((np.zeros(n, np.uint8), np.float64(n)))
        file = writer.seal(1)
    for column in file.columns(range(19)):
        assert {view.__array_interface__["data"][0] % 64 for view in column} == {0}


def test_the_index_too_must_fit_on_the_disk(tmp_path, monkeypatch):
    with CacheFolder(str(tmp_path), "k").writer(100) as writer:
        writer.add((np.zeros(90, np.uint8),))
        with pytest.raises(CacheFullError, match="budget of 100 bytes"):
            writer.add((np.zeros(90, np.uint8),))


def test_stage_settings_before_it_are_kept(photos):
    stages = after(Cache(), Stage(reader(photos), name="photos", num_workers=3))
    assert [(stage.label, stage.num_workers) for stage in stages] == [
        *(("photos.row_ranges", None), ("photos.decode", 3)),
        *(("Cache.epochs", None), ("Cache", None)),
    ]
