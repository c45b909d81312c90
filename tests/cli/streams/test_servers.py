"""serve-imagenet-dir and serve-imagenet-shards, and what a training job gets from them."""

import argparse
import io
import itertools
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from highway import Passport, Pipeline, Stamped
from highway.cli.streams import serve_dir, serve_shards, serving
from highway.data import photos
from highway.datasets.image_files import labelled_files
from highway.datasets.shards import shard_writer
from highway.modules import ImageFileReader, ShardSink, ZMQSink, ZMQSource
from highway.modules.webdataset import WebDatasetSource
from highway.transforms import Normalize
from highway.wire.sender import LinkSender
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
        with Pipeline([ZMQSource(f"zrpull+{url}", timeout=200)]) as pipeline:
            received = list(pipeline.stamped())
        thread.join()
        assert ends == [0]
        return received

    return run


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
    three = serve(serve_dir.main, "-d", photos(), "-b", "64", "--workers", "3", "--seed", "7")
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


def test_each_address_has_a_stream_of_its_own(tmp_path):
    urls = f"zrpush+ipc://{tmp_path}/{{a,b}}"
    options = ["-d", photos(), "-b", "48", "--epochs", "2"]
    received = {}

    def read(name):
        with Pipeline([ZMQSource(f"zrpull+ipc://{tmp_path}/{name}", timeout=200)]) as pipeline:
            received[name] = list(pipeline.stamped())

    with ThreadPoolExecutor(4) as pool:
        servers = [pool.submit(serve_dir.main, [*options, urls]), pool.submit(serve_dir.main, [*options, f"zrpush+ipc://{tmp_path}/alone"])]
        for reader in [pool.submit(read, name) for name in ("a", "b")]:
            reader.result()
        read("alone")
        assert [server.result() for server in servers] == [0, 0]
    files = labelled_files(TRAIN)
    for name in ("a", "b"):
        for epoch in range(2):
            assert sorted(keys([r for r in received[name] if r[1].epoch == epoch])) == sorted(files.keys)
    assert keys(received["a"]) == keys(received["alone"]) != keys(received["b"])
    (images, _), _ = received["a"][0]
    (other, _), _ = received["b"][keys(received["b"]).index(keys(received["a"])[0]) // 48]
    assert not any(np.array_equal(images[0], image) for image in other)  # other crops, too


def test_parallel_publishers_send_to_one_receiver(tmp_path):
    url = f"ipc://{tmp_path}/s"
    with ThreadPoolExecutor(1) as pool:
        server = pool.submit(serve_dir.main, ["-d", photos(), "-b", "48", "-P", "3", "--epochs", "1", f"zpush+{url}"])
        with Pipeline([ZMQSource(f"zpull+{url}?senders=3", timeout=200)]) as pipeline:
            received = list(pipeline.stamped())
        assert server.result() == 0
    assert sorted(keys(received)) == sorted(3 * labelled_files(TRAIN).keys)


@pytest.mark.parametrize(
    ("urls", "found"), [(["zpub://127.0.0.1:7880"], "zpub://127.0.0.1:7880"), (["zpush://a:1", "zpush://a:2"], "zpush://a:1, zpush://a:2")]
)
def test_parallel_publishers_need_one_address_to_connect_to(urls, found, capsys):
    assert serve_dir.main(["-d", photos(), "-P", "2", *urls]) == 2
    assert f"which publishers connect (zpush or zrpub); found {found}. Pass one address for each" in capsys.readouterr().err


def test_publishers_share_the_cores(monkeypatch, tmp_path):
    made = []
    monkeypatch.setattr("highway.cli.streams.serving.available_cores", lambda: 5)
    monkeypatch.setattr("highway.cli.streams.serving.run_pipeline", lambda *_: None)
    for workers in ("0", "3"):
        options = ["-d", photos(), "-w", workers, "zpub+ipc://a{0..1}"]
        parser = argparse.ArgumentParser()
        serve_dir.add_arguments(parser)
        serving.serve(lambda seed, threads: made.append(threads) or [[1]], parser.parse_args(options))
    assert made == [2, 2, 3, 3]


def test_a_line_for_each_so_many_batches_and_one_at_the_end(serve, capsys):
    serve(serve_dir.main, "-d", photos(), "-b", "16", "-r", "3")  # 8 batches
    first, *lines, whole, last = capsys.readouterr().out.splitlines()
    assert first.startswith("serving at ipc://") and last == "all epochs were sent"
    assert [line.split()[:2] for line in lines] == [["3", "batches"], ["6", "batches"]]
    words = lines[0].split()
    assert words[1:8:2] == ["batches", "batches/s", "samples/s", "MB/s"]
    assert float(words[4]) == pytest.approx(16 * float(words[2]), abs=1)
    assert float(words[4]) * (224 * 224 * 3 + 4) / 1e6 == pytest.approx(float(words[6]), abs=0.1)
    assert re.fullmatch(r" +\d+%, \d+:\d\d:\d\d left", lines[0].partition("MB/s")[2])
    images = len(labelled_files(TRAIN).keys)
    megabytes = images * (224 * 224 * 3 + 4) / 1e6
    assert re.fullmatch(rf"8 batches, {megabytes:.1f} MB in [\d.]+ s; [\d.]+ batches/s, [\d.]+ samples/s, [\d.]+ MB/s", whole)


def test_a_run_that_is_shorter_than_the_interval_ends_with_its_rate(serve, capsys):
    serve(serve_dir.main, "-d", photos(), "-b", "64", "-r", "1000")
    assert re.fullmatch(r"\d batches, [\d.]+ MB in [\d.]+ s; [\d.]+ batches/s, .*", capsys.readouterr().out.splitlines()[1])


def test_batches_that_are_sent_while_a_line_is_printed_are_told_the_next_time(monkeypatch):
    report, printed = serving.RatePrinter(1), []
    publisher = serving.Publisher(Pipeline([[1]]), ZMQSink("zpub://127.0.0.1:0"), False, report.sent)
    publisher.counters["bound"] = ["tcp://127.0.0.1:1"]
    report.publishers.append(publisher)

    def print_slowly(text, flush):
        printed.append(text)
        assert len(printed) < 10  # else whoever prints would never come to hear Ctrl-C
        report.sent()
        report.sent()

    monkeypatch.setattr(serving, "print", print_slowly, raising=False)
    for _ in range(2):
        report.tell()
    assert [[line.split()[0] for line in text.splitlines()] for text in printed[1:]] == [["1", "2"], ["3", "4"]]


@pytest.mark.parametrize("report", ["0.3", "0"])
def test_the_interval_is_a_number_of_batches(report, capsys):
    with pytest.raises(SystemExit):
        serve_dir.main(["-r", report])
    assert f"argument -r/--report: {report}; expected a whole number above 0" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("option", ["-B", "--benchmark"])
def test_the_benchmark_sends_its_first_batch_again_and_again(option, tmp_path):
    command = ["serve-dir", "-d", "highway:photos", "-b", "8", option, "-r", "25", f"zrpush+ipc://{tmp_path}/s"]
    with (
        subprocess.Popen([sys.executable, "-m", "highway", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
        Pipeline([ZMQSource(f"zrpull+ipc://{tmp_path}/s", timeout=200)]) as pipeline,
    ):
        batches = list(itertools.islice(pipeline, 60))
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=200)
    assert (process.returncode, err) == (130, "")
    assert [line.split()[:2] for line in lines[1:]] == [["25", "batches"], ["50", "batches"]]
    assert re.fullmatch(r"\d+ batches, [\d.]+ MB in .*MB/s", out.splitlines()[-1])
    for images, labels in batches:
        np.testing.assert_array_equal(images, batches[0][0])
        np.testing.assert_array_equal(labels, batches[0][1])


def test_the_benchmark_has_no_epochs(capsys):
    assert serve_dir.main(["-d", photos(), "-B", "--epochs", "2"]) == 2
    assert "--epochs and -B exclude each other" in capsys.readouterr().err


def test_a_folder_without_train_is_an_error_that_names_it(tmp_path, capsys):
    assert serve_dir.main(["-d", str(tmp_path), f"zpub+ipc://{tmp_path}/s"]) == 1
    err = capsys.readouterr().err
    assert f"'{tmp_path}/train': there is no such folder (the current directory is" in err and "Traceback" not in err


def test_a_port_in_use_is_an_error_and_not_a_silent_wait(capsys):
    with LinkSender(parse("zpub://127.0.0.1:0", "send")) as taken:
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
    seen = []

    def looked_at(context=None):
        for item in source:
            seen.append(context.counters(source).get("progress", 0.0))
            yield item
        seen.append(context.counters(source)["progress"])

    list(Pipeline([looked_at]))
    assert seen == sorted(seen) and len(set(seen)) == 2 * len(source.shards) + 1 and seen[-1] == 1.0
    with Pipeline([source]) as pipeline:
        assert [len(list(pipeline)), len(list(pipeline))] == [len(seen) // 2] * 2
    assert pipeline.stats().stages[0].counters["progress"] == 1.0
    with Pipeline([ImageFileReader(TRAIN, 32, (8, 8), epochs=2)]) as pipeline:
        assert [len(list(pipeline)), len(list(pipeline))] == [4, 4]
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
def test_a_shard_that_cannot_be_read_is_an_error(url, tmp_path, capsys):
    assert serve_shards.main(["-u", url, f"zpub+ipc://{tmp_path}/s"]) == 1
    err = capsys.readouterr().err
    assert ("nowhere-0.tar" in err or "exit code 7" in err) and "Traceback" not in err


def test_the_shard_server_needs_shards(capsys):
    with pytest.raises(SystemExit) as end:
        serve_shards.main([])
    assert end.value.code == 2
    assert "-u/--url" in capsys.readouterr().err


def stored_shard(path, sizes):
    """Write a shard of PNGs of these sizes, and return their pixels."""
    images = [np.random.default_rng(n).integers(0, 256, (*size, 3), np.uint8) for n, size in enumerate(sizes)]
    with shard_writer(str(path)) as writer:
        for number, image in enumerate(images):
            encoded = io.BytesIO()
            Image.fromarray(image).save(encoded, "PNG")
            writer.add(f"{number:02}", {"png": encoded.getvalue(), "cls": number})
    return images


def test_the_shard_server_sends_images_as_they_are_stored_if_it_is_told_to(serve, tmp_path):
    images = stored_shard(tmp_path / "a.tar", [(20, 30)] * 5)
    received = serve(serve_shards.main, "-u", str(tmp_path / "a.tar"), "-b", "3", "--as-stored")
    np.testing.assert_array_equal(np.concatenate([batch for (batch, _), _ in received]), np.stack(images), strict=True)
    labels = np.concatenate([labels for (_, labels), _ in received])
    assert labels.tolist() == [0, 1, 2, 3, 4] and labels.dtype == np.int32


def test_images_of_a_batch_that_differ_in_size_end_a_server_that_sends_them_as_stored(tmp_path, capsys):
    stored_shard(tmp_path / "a.tar", [(20, 30), (20, 30), (21, 30), (9, 9)])
    assert serve_shards.main(["-u", str(tmp_path / "a.tar"), "-b", "4", "--as-stored", "--epochs", "1", f"zpub+ipc://{tmp_path}/s"]) == 1
    error = capsys.readouterr().err
    assert "image '00' is 20x30 and image '02' is 21x30 (height x width); all images of a batch must have the same size" in error
