import io
import sys
import tarfile
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import webdataset
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from highway import ConfigError, Passport, Pipeline, Stage, Stamped
from highway.data import photos
from highway.errors import ShardError
from highway.modules.decode import DecodeImage
from highway.modules.webdataset import ShardSink, WebDatasetSource
from highway.transforms import RandomResizedCrop


def png(color, shape=(6, 8)):
    file = io.BytesIO()
    Image.fromarray(np.full((*shape, 3), color, np.uint8)).save(file, "PNG")
    return file.getvalue()


def write_tar(path, files, mode="w"):
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return str(path)


def numbered(start, stop):
    return {f"{n:03}.cls": str(n).encode() for n in range(start, stop)}


def labels(source):
    return [int(stamped.item["cls"]) for stamped in source]


def write_samples(path, samples, **options):
    Pipeline([[Stamped(item, Passport(0, n, keys=keys)) for n, (keys, item) in enumerate(samples)], ShardSink(str(path), **options)]).run()


# --- the source ---


def test_files_of_one_key_are_one_sample_named_by_their_extensions(tmp_path):
    path = write_tar(
        tmp_path / "a.tar", {"cats/01.PNG": png(7), "cats/01.cls": b"3\n", "cats/02.left.png": png(8), "cats/02.txt": "é".encode()}
    )
    first, second = WebDatasetSource(path, epochs=1)
    assert first.item == {"png": png(7), "cls": 3} and first.item["cls"].dtype == np.int32
    assert second.item == {"left.png": png(8), "txt": "é"}
    found = [stamped.passport._replace(made_of=None) for stamped in (first, second)]
    assert found == [Passport(0, 0, keys=("cats/01",)), Passport(0, 1, keys=("cats/02",))]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # webdataset leaves its files to the collector
def test_samples_are_those_that_the_webdataset_package_reads(tmp_path):
    files = {
        "a/1.jpg": b"one",
        "a/1.seg.png": b"two",
        "__meta__/x.json": b"{}",
        "README": b"-",
        "a/2.jpg": b"three",
        "./b.c/2.bin": b"four",
    }
    path = write_tar(tmp_path / "a.tar", files)
    theirs = [
        (sample["__key__"], {name: value for name, value in sample.items() if not name.startswith("__")})
        for sample in webdataset.WebDataset(path, shardshuffle=False)
    ]
    assert [(stamped.passport.keys[0], stamped.item) for stamped in WebDatasetSource(path, epochs=1)] == theirs
    assert len(theirs) == 3


def test_a_key_that_ends_a_shard_and_begins_the_next_is_two_samples(tmp_path):
    urls = [write_tar(tmp_path / f"{n}.tar", {"same.txt": str(n).encode()}) for n in range(2)]
    assert [stamped.item for stamped in WebDatasetSource(urls, epochs=1, shuffle=False)] == [{"txt": "0"}, {"txt": "1"}]


def test_braces_expand_and_epochs_number_their_samples_from_zero(tmp_path):
    for n in range(2):
        write_tar(tmp_path / f"s-{n:02}.tar", numbered(3 * n, 3 * n + 3))
    stamped = list(WebDatasetSource(f"{tmp_path}/s-{{00..01}}.tar", epochs=2, shuffle=False))
    assert labels(stamped) == [0, 1, 2, 3, 4, 5] * 2
    assert [(s.passport.epoch, s.passport.index) for s in stamped] == [(epoch, index) for epoch in range(2) for index in range(6)]


def test_each_epoch_has_its_own_order_of_shards_and_a_seed_repeats_it(tmp_path):
    for n in range(8):
        write_tar(tmp_path / f"{n}.tar", numbered(n, n + 1))

    def order(seed):
        return labels(WebDatasetSource(f"{tmp_path}/{{0..7}}.tar", epochs=2, seed=seed))

    first, second = order(5)[:8], order(5)[8:]
    assert sorted(first) == sorted(second) == list(range(8))
    assert first != second and first != list(range(8))
    assert order(5) == first + second and order(6) != order(5)


def test_fields_take_the_first_that_is_there_under_a_new_name(tmp_path):
    path = write_tar(tmp_path / "a.tar", {"1.jpg": b"j", "1.cls": b"0", "1.txt": b"x", "2.png": b"p", "2.cls": b"1"})
    source = WebDatasetSource(path, fields={"image": "png;jpg;jpeg", "label": "cls"}, epochs=1)
    assert [stamped.item for stamped in source] == [{"image": b"j", "label": 0}, {"image": b"p", "label": 1}]


def test_a_sample_without_a_field_is_an_error_that_names_shard_key_and_what_there_is(tmp_path):
    path = write_tar(tmp_path / "a.tar", {"k1.gif": b"g", "k1.cls": b"0"})
    with pytest.raises(
        ShardError, match=r"a\.tar: sample 'k1': there is no value for the field 'image': expected png or jpg, found gif, cls"
    ):
        list(WebDatasetSource(path, fields={"image": "png;jpg"}, epochs=1))


def test_arrays_in_ten_and_npy_files_come_back_as_they_went(tmp_path):
    sample = {
        "ten": np.arange(6, dtype=np.float32).reshape(2, 3),
        "boxes": np.zeros((0, 4), np.float32),
        "pair": (np.arange(3, dtype=np.uint16), np.ones((1, 2), np.int8)),
        "depth.npy": np.arange(4.0),
        "json": {"weather": ["rain", 3]},
        "jpg": b"\xff\xd8 not decoded here",
    }
    write_samples(tmp_path / "%d.tar", [(("k",), sample)])
    (stamped,) = WebDatasetSource(str(tmp_path / "0.tar"), epochs=1)
    assert list(stamped.item) == list(sample)
    np.testing.assert_equal(stamped.item, sample)
    assert [stamped.item[name].dtype for name in ("ten", "boxes", "depth.npy")] == [np.float32, np.float32, np.float64]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # webdataset leaves its files to the collector
def test_ten_files_are_read_by_the_webdataset_package_too(tmp_path):
    write_samples(tmp_path / "%d.tar", [(("k",), {"ten": np.arange(6, dtype=np.int16).reshape(2, 3), "cls": 4})])
    (sample,) = webdataset.WebDataset(str(tmp_path / "0.tar"), shardshuffle=False).decode()
    np.testing.assert_array_equal(sample["ten"][0], [[0, 1, 2], [3, 4, 5]])
    assert (sample["__key__"], sample["cls"]) == ("k", 4)


@pytest.mark.parametrize("extension", ["pyd", "pickle", "pkl", "pth"])
def test_pickles_stay_bytes(tmp_path, extension):
    path = write_tar(tmp_path / "a.tar", {f"1.{extension}": b"\x80\x04N."})
    assert [stamped.item for stamped in WebDatasetSource(path, epochs=1)] == [{extension: b"\x80\x04N."}]


def test_an_npy_file_with_objects_is_refused(tmp_path):
    file = io.BytesIO()
    np.save(file, np.array([{}], object), allow_pickle=True)
    with pytest.raises(ShardError, match=r"sample '1': \.npy: .*allow_pickle"):
        list(WebDatasetSource(write_tar(tmp_path / "a.tar", {"1.npy": file.getvalue()}), epochs=1))


# --- damage ---


@pytest.mark.parametrize(("keep", "whole"), [(512, 0), (1024, 1), (1024 + 512, 1), (1024 + 600, 2), (3 * 1024, 3)])
def test_a_shard_that_is_cut_short_is_an_error_wherever_it_is_cut(tmp_path, keep, whole):
    path = tmp_path / "a.tar"
    write_tar(path, numbered(0, 3))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ShardError, match=rf"a\.tar: not a tar archive, or damaged or truncated; number of complete files: {whole}; "):
        list(WebDatasetSource(str(path), epochs=1))


def test_a_damaged_header_between_two_files_is_an_error_and_not_the_end(tmp_path):
    path = tmp_path / "a.tar"
    write_tar(path, numbered(0, 3))
    data = bytearray(path.read_bytes())
    data[1024:1100] = b"\xee" * 76
    path.write_bytes(data)
    with pytest.raises(ShardError, match="truncated; number of complete files: 1; "):
        list(WebDatasetSource(str(path), epochs=1))


@pytest.mark.parametrize("data", [b"", b"not a tar", bytes(100), b"\x1f\x8b\x08\x00garbage"])
def test_what_is_no_archive_is_an_error(tmp_path, data):
    path = tmp_path / "a.tar"
    path.write_bytes(data)
    with pytest.raises(ShardError, match="truncated; number of complete files: 0; "):
        list(WebDatasetSource(str(path), epochs=1))


def test_a_compressed_shard_is_read_and_a_cut_one_is_an_error(tmp_path):
    path = tmp_path / "a.tgz"
    write_tar(path, {f"{n}.bin": np.random.default_rng(n).bytes(5000) for n in range(3)}, "w:gz")
    assert len(list(WebDatasetSource(str(path), epochs=1))) == 3
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(ShardError, match="truncated; number of complete files: 1; "):
        list(WebDatasetSource(str(path), epochs=1))


def test_a_missing_shard_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.tar"):
        list(WebDatasetSource(f"{tmp_path}/nowhere.tar", epochs=1))


def test_two_files_for_one_field_are_an_error(tmp_path):
    path = write_tar(tmp_path / "a.tar", {"1.cls": b"1", "1.CLS": b"2"})
    with pytest.raises(ShardError, match="two files for the field 'cls'"):
        list(WebDatasetSource(path, epochs=1))


@pytest.mark.parametrize(
    ("name", "data"), [("1.cls", b"many"), ("1.cls", b"3000000000"), ("1.json", b"{"), ("1.txt", b"\xff"), ("1.ten", b"x")]
)
def test_a_file_that_is_not_what_its_name_says_is_an_error(tmp_path, name, data):
    path = write_tar(tmp_path / "a.tar", {name: data})
    with pytest.raises(ShardError, match=rf"sample '1': \.{name[2:]}: "):
        list(WebDatasetSource(path, epochs=1))


def test_damage_is_left_out_and_counted_where_the_stage_says_so(tmp_path, caplog):
    write_tar(tmp_path / "0.tar", {"1.cls": b"1", "2.cls": b"bad", "3.cls": b"3"})
    (tmp_path / "1.tar").write_bytes(b"")
    write_tar(tmp_path / "3.tar", {"4.cls": b"4"})
    source = WebDatasetSource(f"{tmp_path}/{{0..3}}.tar", epochs=1, shuffle=False)
    pipeline = Pipeline([Stage(source, on_error="skip")])
    assert [int(sample["cls"]) for sample in pipeline] == [1, 3, 4]
    stage = pipeline.stats().stages[0]
    assert stage.errors == 3 and stage.counters["shards"] == 2
    assert "skipped" in caplog.text


def test_an_epoch_without_samples_is_an_error_even_where_damage_is_left_out(tmp_path):
    (tmp_path / "0.tar").write_bytes(b"")
    with (
        pytest.raises(ShardError, match="no samples in the whole epoch 0"),
        Pipeline([Stage(WebDatasetSource(f"{tmp_path}/0.tar"), on_error="skip")]) as pipeline,
    ):
        pipeline.dequeue()


@pytest.mark.parametrize("options", [{"urls": []}, {"urls": "a", "epochs": 0}, {"urls": "a", "seed": -1}])
def test_parameters_out_of_range_are_refused(options):
    with pytest.raises(ConfigError, match=r"WebDatasetSource: .*expected"):
        WebDatasetSource(**options)


# --- pipes, through the webdataset package, and http ---


def test_a_pipe_is_read(tmp_path):
    path = write_tar(tmp_path / "a.tar", numbered(0, 40))
    assert labels(WebDatasetSource(f"pipe:cat '{path}'", epochs=1)) == list(range(40))


def test_the_failure_of_a_command_is_an_error_even_behind_a_whole_archive(tmp_path):
    path = write_tar(tmp_path / "a.tar", numbered(0, 2))
    with pytest.raises(OSError, match="failed with exit code 3"):
        list(WebDatasetSource(f"pipe:cat '{path}'; exit 3", epochs=1))
    with pytest.raises(OSError, match="failed with exit code 3"):
        list(WebDatasetSource(f"pipe:head -c 1024 '{path}'; exit 3", epochs=1))


def test_a_command_whose_output_is_not_wanted_any_more_is_ended(tmp_path):
    path = write_tar(tmp_path / "a.tar", {f"{n}.bin": bytes(1 << 20) for n in range(4)})
    source = iter(WebDatasetSource(f"pipe:cat '{path}'; exec sleep 1000", epochs=1))
    next(source)
    source.close()


def test_a_pipeline_stops_while_a_command_gives_nothing(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("highway.engine.threads.STOP_TIMEOUT", 60.0)  # then it says who does not stop
    path = write_tar(tmp_path / "a.tar", numbered(0, 1))
    source = WebDatasetSource(f"pipe:head -c 1024 '{path}'; exec sleep 1000", epochs=1)
    with Pipeline([source]) as pipeline, pytest.raises(TimeoutError):
        pipeline.dequeue(timeout=0.5)
    assert "does not stop" not in caplog.text


@pytest.fixture
def web(tmp_path):
    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(tmp_path))

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_shards_come_over_http(tmp_path, web):
    for n in range(2):
        write_tar(tmp_path / f"{n}.tar", numbered(n, n + 1))
    assert labels(WebDatasetSource(f"{web}/{{0..1}}.tar", epochs=1, shuffle=False)) == [0, 1]


def test_a_shard_that_the_web_server_has_not_is_an_error(web):
    with pytest.raises(OSError, match=r"missing\.tar: no such object in http://127\.0\.0\.1:\d+; correct the URL"):
        list(WebDatasetSource(f"{web}/missing.tar", epochs=1))


def test_urls_need_the_extra_and_paths_do_not(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "webdataset.gopen", None)
    path = write_tar(tmp_path / "a.tar", numbered(0, 1))
    assert labels(WebDatasetSource(f"file:{path}", epochs=1)) == [0]
    with pytest.raises(ConfigError, match=r"pip install .*\[shards\]'"):
        list(WebDatasetSource("pipe:true", epochs=1))


# --- DecodeImage ---


def test_images_are_decoded_and_the_same_for_any_number_of_workers(tmp_path):
    files = sorted(Path(photos(), "train").rglob("*.jpg"))[:12]
    members = {f"{n:02}.jpg": file.read_bytes() for n, file in enumerate(files)}
    path = write_tar(tmp_path / "a.tar", members)

    def images(workers):
        decode = Stage(DecodeImage("jpg", crop=RandomResizedCrop((32, 40)), flip=0.5), num_workers=workers)
        with Pipeline([WebDatasetSource(path, epochs=1), decode], seed=3) as pipeline:
            return np.stack([sample["jpg"] for sample in pipeline])

    one = images(1)
    assert one.shape == (12, 32, 40, 3) and one.dtype == np.uint8
    np.testing.assert_array_equal(images(3), one)


def test_without_a_shape_an_image_comes_whole():
    rng = np.random.default_rng(0)
    whole = DecodeImage()({"image": png((1, 2, 3)), "label": 5}, rng)
    assert whole["label"] == 5 and whole["image"].shape == (6, 8, 3)
    np.testing.assert_array_equal(whole["image"][0, 0], [1, 2, 3])
    assert DecodeImage(0, shape=(3, 3))((png(9), 1), rng)[0].shape == (3, 3, 3)


@pytest.mark.parametrize("options", [{"flip": 0.5}, {"flip": 2, "shape": (2, 2)}, {"shape": (0, 2)}])
def test_decode_image_refuses_what_makes_no_sense(options):
    with pytest.raises(ConfigError, match=r"DecodeImage: .*expected"):
        DecodeImage(**options)


def test_a_field_that_holds_no_bytes_is_an_error_that_names_it():
    with pytest.raises(ValueError, match="field 'image' contains a int; expected the bytes of an image file"):
        DecodeImage()({"image": 3}, np.random.default_rng(0))


# --- the sink ---


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text("abc/x.", max_size=6),
            st.dictionaries(st.sampled_from(["bin", "cls", "txt", "json", "a.ten", "dots"]), st.integers(-1000, 1000), min_size=1),
        ),
        max_size=12,
    ),
    st.integers(1, 5),
)
def test_what_is_written_is_read_again(tmp_path_factory, given_samples, max_samples):
    make = {"bin": lambda n: bytes([n % 256]), "txt": str, "a.ten": lambda n: np.array([n], np.int32), "dots": np.int16}
    samples = [
        (f"{n}/{key}z", {name: make.get(name, int)(value) for name, value in fields.items()})
        for n, (key, fields) in enumerate(given_samples)
    ]
    folder = tmp_path_factory.mktemp("shards")
    write_samples(folder / "%03d.tar", [((key,), item) for key, item in samples], max_samples=max_samples)
    paths = sorted(map(str, folder.iterdir()))
    assert len(paths) == -(-len(samples) // max_samples)
    read = [stamped.item for path in paths for stamped in WebDatasetSource(path, epochs=1)]
    expected = [{name.removesuffix(".ten"): value for name, value in item.items()} for _, item in samples]
    assert read == expected


def test_shards_end_at_the_number_of_samples_or_of_bytes(tmp_path):
    samples = [((f"{n}",), {"bin": bytes(1000)}) for n in range(5)]
    write_samples(tmp_path / "n" / "%d.tar", samples, max_samples=2)
    write_samples(tmp_path / "b" / "%d.tar", samples, max_mb=0.004)
    assert [len(list(WebDatasetSource(str(tmp_path / "n" / f"{n}.tar"), epochs=1))) for n in range(3)] == [2, 2, 1]
    assert [len(list(WebDatasetSource(str(tmp_path / "b" / f"{n}.tar"), epochs=1))) for n in range(3)] == [2, 2, 1]


def test_the_same_samples_make_the_same_bytes(tmp_path):
    for name in "ab":
        write_samples(tmp_path / name / "%d.tar", [(("k",), {"cls": 1, "x": np.arange(3, dtype=np.uint8)})])
    assert (tmp_path / "a" / "0.tar").read_bytes() == (tmp_path / "b" / "0.tar").read_bytes()


def test_keys_lose_their_dots_and_equal_keys_stay_apart(tmp_path):
    write_samples(tmp_path / "%d.tar", [(("v1.2/a.b.jpg",), {"cls": 0}), (("v1.2/a.b.jpg",), {"txt": "1"}), ((), {"cls": 2})])
    keys = [stamped.passport.keys[0] for stamped in WebDatasetSource(str(tmp_path / "0.tar"), epochs=1)]
    assert keys == ["v1.2/a_b_jpg", "v1.2/a_b_jpg-2", "000-000000002"]


def test_an_image_is_written_as_its_extension_says(tmp_path):
    image = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    write_samples(tmp_path / "%d.tar", [(("k",), {"png": image, "mask.png": image[..., 0], "jpg": image})])
    (stamped,) = WebDatasetSource(str(tmp_path / "0.tar"), epochs=1)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(stamped.item["png"]))), image)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(stamped.item["mask.png"]))), image[..., 0])
    assert Image.open(io.BytesIO(stamped.item["jpg"])).format == "JPEG"


def test_a_shard_is_there_whole_or_not_at_all(tmp_path):
    def samples():
        yield {"cls": 1}
        yield {"cls": 2}
        yield {"cls": 3}
        raise RuntimeError("the disk of the source")

    with pytest.raises(RuntimeError, match="the disk of the source"):
        Pipeline([samples, ShardSink(str(tmp_path / "%d.tar"), max_samples=2)]).run()
    assert [path.name for path in tmp_path.iterdir()] in (["0.tar"], [])
    for path in tmp_path.iterdir():
        assert labels(WebDatasetSource(str(path), epochs=1)) == [1, 2]


def test_a_shard_that_is_there_is_not_written_over(tmp_path):
    (tmp_path / "0.tar").write_bytes(b"precious")
    with pytest.raises(FileExistsError, match=r"0\.tar' already exists;"):
        write_samples(tmp_path / "%d.tar", [((), {"cls": 1})])
    assert (tmp_path / "0.tar").read_bytes() == b"precious"


@pytest.mark.parametrize(
    ("item", "keys", "message"),
    [
        ((1, 2), (), "the item is a tuple; expected a dict"),
        ({"cls": 1}, ("a", "b"), "a batch of 2 samples; put Unbatch before it"),
        ({"label": 3.5}, (), "field 'label' contains a float"),
        ({"png": np.zeros((2, 2), np.float32)}, (), "field 'png' is float32"),
    ],
)
def test_what_cannot_be_written_is_an_error_that_says_why(tmp_path, item, keys, message):
    with pytest.raises((TypeError, ValueError), match=message):
        write_samples(tmp_path / "%d.tar", [(keys, item)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [{"path": "a.tar"}, {"path": "%d-%d.tar"}, {"path": "100%.tar"}, {"path": "%d", "max_samples": 0}])
def test_the_sink_refuses_a_path_without_a_number_and_limits_out_of_range(options):
    with pytest.raises(ConfigError, match=r"ShardSink: .*expected"):
        ShardSink(**options)


def test_nothing_is_written_for_nothing(tmp_path):
    write_samples(tmp_path / "%d.tar", [])
    assert list(tmp_path.iterdir()) == []


def test_a_pattern_in_the_place_of_braces_is_told_what_to_write():
    with pytest.raises(FileNotFoundError) as caught:
        list(WebDatasetSource("photos-*.tar", epochs=1))
    assert any("use braces, such as 'photos-{000..015}.tar'" in note for note in caught.value.__notes__)
