"""serve-imagenet-dir and serve-imagenet-shards, and what a training job gets from them."""

import re
import threading
from pathlib import Path

import numpy as np
import pytest

from highway import Passport, Pipeline, Stamped
from highway.data import photos
from highway.modules import ImageFileReader, ShardSink, ZMQSource
from highway.modules.folders import labelled_files
from highway.modules.webdataset import WebDatasetSource
from highway.tools import serve_dir, serve_shards
from highway.transforms import Normalize
from highway.wire.outlet import Outlet
from highway.wire.url import parse

TRAIN = str(Path(photos(), "train"))


@pytest.fixture
def serve(tmp_path):
    """Run a server for one epoch, or several, and return what it sent: batches with their passports."""

    def run(main, *options, epochs=1):
        ends = []
        url = f"ipc://{tmp_path}/s"
        thread = threading.Thread(target=lambda: ends.append(main([f"zrpush+{url}", "--epochs", str(epochs), *options])))
        thread.start()
        with Pipeline([ZMQSource(f"zrpull+{url}", timeout=30), WithPassport()]) as pipeline:
            received = list(pipeline)
        thread.join()
        assert ends == [0]
        return received

    return run


class WithPassport:
    def stream(self, items):
        for item in items:
            yield item, items.passport


def keys(received):
    return [key for _, passport in received for key in passport.keys]


def label_of(key):
    return sorted(path.name for path in Path(TRAIN).iterdir()).index(key.split("/")[0])


def test_the_folder_server_sends_every_image_once_per_epoch_with_its_label(serve):
    received = serve(serve_dir.main, "-d", photos(), "-b", "48", epochs=2)
    files = labelled_files(TRAIN)
    for epoch in range(2):
        assert sorted(keys([r for r in received if r[1].epoch == epoch])) == sorted(files.keys)
    for (images, labels), passport in received:
        assert images.shape == (len(passport.keys), 224, 224, 3) and images.dtype == np.uint8
        assert labels.dtype == np.int32
        assert labels.tolist() == [label_of(key) for key in passport.keys]


def test_the_folder_server_shuffles_each_epoch_unless_told_not_to(serve):
    received = serve(serve_dir.main, "-d", photos(), "-b", "64", epochs=2)
    first, second = (keys([r for r in received if r[1].epoch == epoch]) for epoch in range(2))
    assert first != second and first != sorted(first)
    assert keys(serve(serve_dir.main, "-d", photos(), "-b", "64", "--no-shuffle")) == labelled_files(TRAIN).keys


def test_a_seed_repeats_crops_and_order_for_any_number_of_threads(serve):
    one = serve(serve_dir.main, "-d", photos(), "-b", "64", "-w", "1", "--seed", "7")
    three = serve(serve_dir.main, "-d", photos(), "-b", "64", "--parallel", "3", "--seed", "7")
    other = serve(serve_dir.main, "-d", photos(), "-b", "64", "--seed", "8")
    assert keys(one) == keys(three) != keys(other)
    for (mine, _), (theirs, _) in zip(one, three, strict=True):
        np.testing.assert_array_equal(mine[0], theirs[0])


def test_normalized_images_are_floats_of_the_same_pictures(serve):
    plain = serve(serve_dir.main, "-d", photos(), "-b", "64")
    normalized = serve(serve_dir.main, "-d", photos(), "-b", "64", "--normalize")
    ((images, labels), _), ((floats, same), _) = plain[0], normalized[0]
    assert floats.dtype == np.float32
    np.testing.assert_array_equal(same, labels)
    np.testing.assert_allclose(floats[3], Normalize()(images[3]), rtol=1e-6)


@pytest.mark.parametrize("option", ["-B", "--benchmark"])
def test_the_benchmark_measures_and_binds_nothing(option, capsys):
    assert serve_dir.main(["-d", photos(), option, "--epochs", "20", "-r", "0.3", "zpub://256.0.0.1:1"]) == 0
    first, *lines, last = capsys.readouterr().out.splitlines()
    assert (first, last) == ("measuring, without sending", "the epochs have ended")
    words = lines[0].split()
    assert words[1:8:2] == ["batches", "batches/s", "samples/s", "MB/s"]
    assert re.fullmatch(r" +\d+%, 0:00:\d\d left", lines[0].partition("MB/s")[2])
    assert float(words[4]) * (224 * 224 * 3 + 4) / 1e6 == pytest.approx(float(words[6]), abs=0.1)


def test_a_folder_without_train_is_an_error_that_names_it(tmp_path, capsys):
    assert serve_dir.main(["-d", str(tmp_path), "-B"]) == 1
    err = capsys.readouterr().err
    assert f"data_dir '{tmp_path}/train': no such folder" in err and "Traceback" not in err


def test_a_port_in_use_is_an_error_and_not_a_silent_wait(capsys):
    with Outlet(parse("zpub://127.0.0.1:0", "send")) as taken:
        assert serve_dir.main(["-d", photos(), taken.bound[0].replace("tcp", "zpub")]) == 1
    assert "Address already in use" in capsys.readouterr().err


# --- shards ---


@pytest.fixture
def shards(tmp_path):
    """Four shards with ten photographs each, and their keys."""
    files = labelled_files(TRAIN).keys[::4]
    samples = [
        Stamped({"jpg": Path(TRAIN, key).read_bytes(), "cls": label_of(key), "txt": key}, Passport(0, n, keys=(key,)))
        for n, key in enumerate(files)
    ]
    Pipeline([samples, ShardSink(str(tmp_path / "train-%04d.tar"), max_samples=10)]).run()
    return f"{tmp_path}/train-{{0000..000{-(-len(files) // 10) - 1}}}.tar", [key.replace(".", "_") for key in files]


def test_the_shard_server_sends_every_sample_with_its_label(serve, shards):
    urls, names = shards
    received = serve(serve_shards.main, "-u", urls, "-b", "12")
    assert keys(received) == names
    for (images, labels), passport in received:
        assert images.shape[1:] == (224, 224, 3) and images.dtype == np.uint8 and labels.dtype == np.int32
        assert labels.tolist() == [label_of(key) for key in passport.keys]
    assert [len(labels) for (_, labels), _ in received[:-1]] == [12] * (len(received) - 1)


def test_sources_say_how_much_of_all_their_epochs_is_done(shards):
    source = WebDatasetSource(shards[0], epochs=2)
    seen = [source.counters.get("progress", 0.0) for _ in source]
    assert seen == sorted(seen) and len(set(seen)) == 2 * len(source.shards)
    assert source.counters["progress"] == 1.0
    with Pipeline([ImageFileReader(TRAIN, 32, (8, 8), epochs=2)]) as pipeline:
        assert sum(1 for _ in pipeline) == 8
    assert pipeline.stats().stages[0].counters["progress"] == 1.0


def test_the_shard_server_mixes_shards_and_samples_when_asked_to(serve, shards):
    urls, names = shards
    mixed = keys(serve(serve_shards.main, "-u", urls, "-b", "12", "-S"))
    assert sorted(mixed) == sorted(names) and mixed != names
    assert keys(serve(serve_shards.main, "-u", urls, "-b", "12", "--shuffle", "-N", "3")) == mixed


def test_the_shard_server_reads_pipes(serve, shards, tmp_path):
    _, names = shards
    assert keys(serve(serve_shards.main, "-u", f"pipe:cat '{tmp_path}/train-0001.tar'")) == names[10:20]


@pytest.mark.parametrize("url", ["nowhere-{0..3}.tar", "pipe:exit 7"])
def test_a_shard_that_cannot_be_read_is_an_error(url, capsys):
    assert serve_shards.main(["-u", url, "-B"]) == 1
    err = capsys.readouterr().err
    assert ("nowhere-0.tar" in err or "exit code 7" in err) and "Traceback" not in err


def test_the_shard_server_needs_shards(capsys):
    with pytest.raises(SystemExit) as end:
        serve_shards.main([])
    assert end.value.code == 2
    assert "-u/--url" in capsys.readouterr().err
