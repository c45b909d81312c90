import gzip
import json
import os
import re
import struct
import subprocess
import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path

import fsspec
import msgpack
import numpy as np
import pytest
from PIL import Image

import highway
from highway import Passport, Pipeline
from highway.cli import main as highway_main
from highway.cli.convert import check
from highway.cli.convert.format import written_to
from highway.cli.convert.target import Target
from highway.datasets import DecodedCache, ImageFolder, Npz, Tar, TenFiles
from highway.datasets.formats import formats
from highway.datasets.keyed.lmdb import lmdb_writer
from highway.datasets.npy.writer import npz_writer
from highway.datasets.opening import recognised
from highway.datasets.shards import shard_writer
from highway.datasets.ten import save
from highway.errors import ConfigError
from highway.images.decode import decode
from highway.modules import Reader
from highway.modules.webdataset import WebDatasetSource


def main(arguments):
    return highway_main(["convert", *arguments])


@pytest.fixture
def photos(tmp_path):
    """Twenty images of two labels, in two sizes; three are PNG."""
    for number in range(20):
        path = tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number:02}.{'png' if number > 16 else 'jpg'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (8 + number % 3, 9, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    return tmp_path / "photos"


def convert(*arguments):
    return main([str(argument) for argument in arguments])


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*") if path.is_file() and not path.name.startswith(".")
    }


def test_a_folder_comes_back_from_shards_byte_by_byte(photos, tmp_path, capsys):
    assert convert(photos, tmp_path / "out" / "s-%03d.tar", "--shard-size", 6) == 0
    assert "20 samples written" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "out").glob("*.tar")) == [f"s-{n:03}.tar" for n in range(4)]
    samples = list(WebDatasetSource(str(tmp_path / "out" / "s-{000..003}.tar"), epochs=1, shuffle=False))
    assert [stamped.passport.keys[0] for stamped in samples][:2] == ["cat/00", "cat/02"]
    assert [int(stamped.item["cls"]) for stamped in samples] == [0] * 10 + [1] * 10
    assert convert(tmp_path / "out" / "s-{000..003}.tar", tmp_path / "back", "--to", "folder") == 0
    assert files(tmp_path / "back") == files(photos)


@pytest.mark.parametrize("target", ["a.tar", "a.tfrecord", "a.parquet"])
def test_the_file_is_on_the_disk_at_the_end_but_if_that_is_not_wanted(photos, tmp_path, monkeypatch, target):
    synced, own = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")) or own(descriptor))
    assert convert(photos, tmp_path / target) == 0
    assert any(path.startswith(str(tmp_path)) for path in synced)
    synced.clear()
    assert convert(photos, tmp_path / "b" / target, "--write", "durable=false") == 0
    assert not any(path.startswith(str(tmp_path / "b")) for path in synced)


def test_shards_may_be_named_by_a_pattern(photos, tmp_path, capsys):
    assert convert(photos, tmp_path / "s-%03d.tar", "--shard-size", 6) == 0
    assert convert(tmp_path / "s-*.tar", tmp_path / "back", "--to", "folder") == 0
    assert files(tmp_path / "back") == files(photos)
    shards = [tmp_path / f"s-{number:03}.tar" for number in range(4)]  # as a shell writes a pattern without quotes
    assert convert(*shards, tmp_path / "again", "--to", "folder") == 0
    assert files(tmp_path / "again") == files(photos)
    assert convert(tmp_path / "t-*.tar", tmp_path / "none", "--to", "folder") == 1
    assert "t-*.tar': no file matches this pattern (the current directory is" in capsys.readouterr().err


@pytest.mark.parametrize("ways", [["cache"], ["ten"], ["cache", "ten"], ["ten", "cache"]])
def test_decoded_images_keep_their_pixels_labels_and_keys(photos, tmp_path, ways):
    source = photos
    for number, way in enumerate(ways):
        assert convert(source, tmp_path / f"{number}", "--to", way) == 0
        source = tmp_path / f"{number}"
    assert convert(source, tmp_path / "shards-%d.tar") == 0
    samples = list(WebDatasetSource(str(tmp_path / "shards-0.tar"), epochs=1))
    assert len(samples) == 20
    paths = sorted(photos.rglob("*.*"))
    for stamped, path in zip(samples, paths, strict=True):
        np.testing.assert_array_equal(stamped.item["image"], decode(path.read_bytes()))
        assert int(stamped.item["label"]) == ("cat", "dog").index(path.parent.name)
        assert stamped.passport.keys == (f"{path.parent.name}/{path.stem}",)
    assert convert(source, tmp_path / "back", "--to", "folder") == 0
    back = {name: decode(data) for name, data in files(tmp_path / "back").items()}
    assert sorted(back) == [f"{path.parent.name}/{path.stem}.png" for path in paths]
    for name, path in zip(sorted(back), paths, strict=True):
        np.testing.assert_array_equal(back[name], decode(path.read_bytes()))


def test_a_converted_cache_is_read_in_batches(photos, tmp_path):
    assert convert(photos, tmp_path / "c", "--to", "cache") == 0
    with Pipeline([Reader(DecodedCache(str(tmp_path / "c")), 8, ragged="list", fields=["image"], shuffle=False, epochs=2)]) as pipeline:
        batches, again = list(pipeline), list(pipeline)
    assert [len(batch["image"]) for batch in batches] == [len(batch["image"]) for batch in again] == [8, 8, 4]
    assert np.concatenate([batch["label"] for batch in batches]).tolist() == [0] * 10 + [1] * 10
    with pytest.raises(FileNotFoundError, match=r"nowhere': there is no finished cache; create a cache with `highway convert"):
        Pipeline([Reader(DecodedCache(str(tmp_path / "nowhere")), 8)]).dequeue()


@pytest.mark.parametrize("to", ["tfrecord", "parquet", "mds", "hdf5", "cache", "ten"])
def test_a_file_name_that_is_no_utf8_is_said_with_the_way_out(photos, tmp_path, to, capsys):
    os.rename(photos / "dog" / "03.jpg", os.fsencode(photos / "dog") + b"/\xff.jpg")
    assert convert(photos, tmp_path / "o", "--to", to) == 1
    said = capsys.readouterr().err
    assert r"('dog/\udcff')" in said and "is a file name that is not UTF-8: rename the file, or pass --number-keys" in said
    assert convert(photos, tmp_path / "n", "--to", to, "--number-keys") == 0


@pytest.mark.parametrize("to", ["s-%d.tar", "s.lmdb"])
def test_what_a_detection_set_says_comes_back(tmp_path, to, capsys):
    annotations = "annotations=highway:objects/instances_train.json"
    source = ["highway:objects/JPEGImages", "--from", "coco", "--read", annotations, "--read", "masks=true"]
    assert convert(*source, tmp_path / to, "--check") == 0
    assert "all 16 samples are the same" in capsys.readouterr().out


def test_a_flat_folder_has_no_labels(photos, tmp_path):
    assert convert(photos / "cat", tmp_path / "t", "--to", "ten") == 0
    assert [list(item) for item in TenFiles(str(tmp_path / "t"))] == [["image"]] * 10


def test_two_files_with_one_stem_are_two_samples(photos, tmp_path):
    Image.open(photos / "cat" / "00.jpg").save(photos / "cat" / "00.png")
    assert convert(photos, tmp_path / "s-%d.tar") == 0
    assert len(list(WebDatasetSource(str(tmp_path / "s-0.tar"), epochs=1))) == 21


def test_an_image_that_cannot_be_decoded_is_named_and_leaves_nothing_half_written(photos, tmp_path, capsys):
    (photos / "dog" / "03.jpg").write_text("no image")
    for kind in ("ten", "cache"):
        assert convert(photos, tmp_path / kind, "--to", kind) == 1
        error = capsys.readouterr().err
        assert "not an image" in error and "dog/03" in error
    assert not list((tmp_path / "ten").glob("*.part")) and len(list((tmp_path / "ten").glob("*.ten"))) <= 19
    assert not list((tmp_path / "cache").glob("*.data"))


def test_other_files_are_no_way_to_go_on(photos, tmp_path, capsys):
    (photos / "dog" / "03.jpg").write_text("no image")
    assert convert(photos, tmp_path / "t", "--to", "ten") == 1
    (photos / "dog" / "03.jpg").unlink()
    capsys.readouterr()
    assert convert(photos, tmp_path / "t", "--to", "ten") == 2
    assert "an earlier conversion to this path had different inputs or settings (files); remove " in capsys.readouterr().err


def test_a_shard_that_is_missing_is_written_and_no_other(photos, tmp_path, capsys):
    assert convert(photos, tmp_path / "s-%d.tar", "--shard-size", 6) == 0
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.glob("*.tar")}
    (tmp_path / "s-1.tar").unlink()
    record = tmp_path / ".highway-convert-s-%d.tar.json"
    record.write_text(record.read_text().replace('"samples": 20', '"samples": null'))
    capsys.readouterr()
    assert convert(photos, tmp_path / "s-%d.tar", "--shard-size", 6) == 0
    assert "6 samples written; 14 already existed" in capsys.readouterr().out
    for path, (data, time) in before.items():
        if path.name != "s-1.tar":
            assert (path.read_bytes(), path.stat().st_mtime_ns) == (data, time)
    with_times = [stamped.item["cls"] for stamped in WebDatasetSource(str(tmp_path / "s-1.tar"), epochs=1)]
    assert [int(label) for label in with_times] == [0] * 4 + [1] * 2
    assert convert(photos, tmp_path / "s-%d.tar", "--shard-size", 6) == 0
    assert "all 20 samples already exist" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{photos}", "{tmp}/x"], "the name does not tell the format; add --to shards, "),
        (["{photos}", "{tmp}/x-%d-%d.tar"], "expected at most one number format, such as samples-%06d.tar"),
        (["{photos}", "{tmp}/x-%s.tar"], "expected at most one number format, such as samples-%06d.tar"),
        (
            ["{photos}", "{tmp}/x.tar", "--shard-size", "5"],
            "--shard-size writes several files, so DST needs a number format: samples-%06d.tar",
        ),
        (
            ["{photos}", "{tmp}/x", "--to", "cache", "--shard-size", "5"],
            "--shard-size writes several files, so DST needs a number format: cache has",
        ),
        (["{photos}", "{tmp}/x-%d.tar.gz"], "shards can be read compressed, but not written compressed; name it *.tar"),
        (["{photos}", "{tmp}/x", "--to", "voc"], "voc can be read, but not written; choose one of shards, "),
        (["{photos}", "{tmp}/x-%d", "--to", "ten"], "expected a folder, without %"),
        (["{photos}", "{tmp}/x", "--to", "tne"], "there is no format 'tne'; did you mean ten?"),
        (["{photos}", "{tmp}/x", "--from", "shard", "--to", "ten"], "there is no format 'shard'; did you mean shards?"),
        (["{photos}", "{tmp}", "--to", "ten"], "already exists, but no conversion has written it"),
        (["{photos}", "{photos}", "--to", "folder"], "SRC and DST are the same"),
        (
            ["{photos}/cat", "{photos}/dog", "{tmp}/x", "--to", "ten"],
            "/dog: only one folder of images can be read at a time, because each",
        ),
    ],
)
def test_wrong_usage_is_one_sentence(photos, tmp_path, capsys, arguments, message):
    assert convert(*(argument.format(photos=photos, tmp=tmp_path) for argument in arguments)) == 2
    assert message in capsys.readouterr().err


def test_a_missing_source_is_named(tmp_path, capsys):
    assert convert(tmp_path / "nowhere", tmp_path / "x", "--to", "ten") == 1
    assert "nowhere': there is no such file or folder (the current directory is" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["../../x", "/etc/x"])
def test_a_key_that_leads_out_of_the_folder_is_an_error(photos, tmp_path, capsys, key):
    with tarfile.open(tmp_path / "s.tar", "w") as archive:
        info = tarfile.TarInfo(f"{key}.jpg")
        with open(photos / "cat" / "00.jpg", "rb") as image:
            info.size = os.fstat(image.fileno()).st_size
            archive.addfile(info, image)
    assert convert(tmp_path / "s.tar", tmp_path / "out", "--to", "folder") == 1
    assert f"the key {key!r} is a path outside the folder" in capsys.readouterr().err
    assert not files(tmp_path / "out")


WAYS = {  # what is written and compared, from a folder of images of one size
    "folder": ("f", "--to", "folder"),
    "shards": ("s-%d.tar", "--shard-size", "6"),
    "one shard": ("s.tar",),
    "tfrecord": ("a-%d.tfrecord", "--shard-size", "6"),
    "parquet": ("a-%d.parquet", "--shard-size", "6"),
    "one parquet": ("a.parquet", "--write", "rows_per_block=3"),
    "arrow": ("a-%d.arrow", "--shard-size", "6"),
    "mds": ("m", "--to", "mds"),
    "hdf5": ("a-%d.h5", "--shard-size", "6"),
    "one hdf5": ("a.hdf5", "--images", "decoded", "--write", "compression=gzip"),
    "lmdb": ("a.lmdb",),
    "one lmdb": ("a.mdb",),
    "ten": ("t", "--to", "ten"),
    "cache": ("c", "--to", "cache"),
    "npz": ("a.npz",),
    "several npz": ("a-%d.npz", "--shard-size", "6"),
    "npy": ("a.npy", "--images", "decoded", "--fields", "png"),
}
if find_spec("plyvel"):  # which has no wheel for Python 3.13
    WAYS["leveldb"] = ("a.leveldb",)
if find_spec("array_record"):
    WAYS["arrayrecord"] = ("a-%d.array_record", "--shard-size", "6")


@pytest.fixture
def squares(tmp_path):
    """Twenty images of two labels, all of one size."""
    for number in range(20):
        path = tmp_path / "squares" / ("cat", "dog")[number % 2] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(number).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
    return tmp_path / "squares"


@pytest.mark.parametrize("way", WAYS)
def test_what_was_written_is_compared_with_what_it_was_made_from(squares, tmp_path, capsys, way):
    target, *options = WAYS[way]
    path = tmp_path / "out" / target
    assert convert(squares, path, *options, "--check") == 0
    out = capsys.readouterr().out
    assert "20 samples written" in out and f"{path}: compared with SRC, all 20 samples are the same" in out
    back = tmp_path / "back-%d.tar"  # and every format is read again
    source = str(path).replace("%d", "*")
    assert convert(source, back, "--check") == 0
    assert "all 20 samples are the same" in capsys.readouterr().out


@pytest.mark.parametrize(("source", "label"), [("images.npy", ""), ("images.npz", "cls"), ("images.npz", "label")])
def test_arrays_of_images_are_compared_with_the_files_that_they_become(tmp_path, capsys, source, label):
    images = np.random.default_rng(0).integers(0, 256, (20, 8, 9, 3), np.uint8)
    if source.endswith("npy"):
        np.save(tmp_path / source, images)
    else:
        np.savez(tmp_path / source, pixels=images, **{label: np.arange(20) % 3})
    for target in ("s.tar", "out"):
        assert convert(tmp_path / source, tmp_path / target, *(["--to", "folder"] if target == "out" else []), "--check") == 0
    file, *_ = sorted((tmp_path / "out").rglob("*.png"))
    Image.fromarray(images[1]).save(file)
    assert convert(tmp_path / source, tmp_path / "out", "--to", "folder", "--check") == 1
    assert "values differ" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["s.tar", "a.tfrecord", "a.parquet", "a.arrow", "a.mdb", *(["a.leveldb"] if "leveldb" in WAYS else [])])
def test_samples_with_fields_of_any_length_are_kept_as_they_are(squares, tmp_path, capsys, target):
    images = sorted(squares.rglob("*.png"))
    with shard_writer(str(tmp_path / "objects.tar")) as writer:
        for number in range(7):
            count = number % 3
            sample = {
                "png": images[number].read_bytes(),
                "boxes": np.arange(4 * count, dtype=np.float32).reshape(count, 4),
                "labels": np.arange(count, dtype=np.int64),
                "difficult": np.arange(count) == 1,
                "area": np.float32(number / 3),
                "wide": np.full((2, 2, 2), number, np.uint16),
                "txt": "é" * number,
                "cls": number,
                "bin": bytes(range(number)),
            }
            writer.add(f"folder/{number}", sample)
    assert convert(tmp_path / "objects.tar", tmp_path / target, "--check") == 0, capsys.readouterr().out
    assert "all 7 samples are the same" in capsys.readouterr().out
    assert convert(tmp_path / target, tmp_path / "back.tar", "--check") == 0, capsys.readouterr().out
    for sample, other in zip(Tar(str(tmp_path / "objects.tar")), Tar(str(tmp_path / "back.tar")), strict=True):
        assert sorted(sample) == sorted(other)
        assert [check.difference(sample[name], other[name]) for name in sample] == [""] * len(sample)


KILL = """
import json, os, signal, sys
from highway.cli import main
from highway.datasets.format import Format

class Killing:
    count = 0
    def __init__(self, writing):
        self.writing = writing
    def __enter__(self):
        self.writer = self.writing.__enter__()
        return self
    def __exit__(self, *error):
        return self.writing.__exit__(*error)
    def add(self, key, sample):
        Killing.count += 1
        if Killing.count == 11:
            os.kill(os.getpid(), signal.SIGKILL)
        self.writer.add(key, sample)

write = Format.write
Format.write = lambda *arguments: Killing(write(*arguments))
for arguments in json.loads(sys.argv[1]):
    if (child := os.fork()) == 0:
        os._exit(main(["convert", *arguments]))
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
"""


@pytest.mark.slow
def test_a_conversion_that_was_killed_leaves_nothing_that_looks_whole_and_is_finished_by_the_next(squares, tmp_path):
    runs = [[str(squares), str(tmp_path / "killed" / target), *options] for target, *options in WAYS.values()]
    paths = [str(Path(highway.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run([sys.executable, "-c", KILL, json.dumps(runs)], env=environment, check=True, capture_output=True)
    for target, *options in WAYS.values():
        killed, whole = (tmp_path / name / target for name in ("killed", "whole"))
        format = written_to(target, options[1] if options[:1] == ["--to"] else None)
        if format.layout in ("files", "one") and "%" not in target:
            assert Target(str(killed), format, 1000).whole(None) is None, target
        assert convert(squares, whole, *options) == convert(squares, killed, *options) == 0
    found, expected = (files(tmp_path / name) for name in ("killed", "whole"))
    kept = {name for name in expected if name.split("/")[0] not in NAMED_ANEW}
    assert {name: found[name] for name in kept} == {name: expected[name] for name in kept}
    assert not [name for name in found if name.endswith(".part")]
    for target, *options in (way for way in WAYS.values() if way[0] in NAMED_ANEW):
        assert convert(squares, tmp_path / "killed" / target, *options, "--check") == 0


NAMED_ANEW = {"c", "a.leveldb"}  # whose files have other names, or other bytes, each time


def test_a_check_says_what_differs(squares, tmp_path, capsys):
    assert convert(squares, tmp_path / "t", "--to", "ten") == 0
    items = [TenFiles(str(tmp_path / "t"))[number] for number in range(4)]
    image = items[1]["image"].copy()
    image[2, 3, 1] ^= 1
    files = [str(tmp_path / "t" / f"{number:09}.ten") for number in range(20)]
    save(files[1], {**items[1], "image": image}, Passport(keys=("cat/02",)))
    save(files[2], {"image": items[2]["image"], "label": np.int64(0)}, Passport(keys=("cat/04",)))
    save(files[3], {"image": items[3]["image"], "more": np.int64(0)}, Passport(keys=("cat/06",)))
    save(files[4], {"image": image[:4], "label": np.int32(1)}, Passport(keys=("cat/8",)))
    os.unlink(files[19])  # which is made anew
    save(str(tmp_path / "t" / "000000020.ten"), items[0], Passport(keys=("cat/99",)))
    capsys.readouterr()
    assert convert(squares, tmp_path / "t", "--to", "ten", "--check") == 1
    assert capsys.readouterr().out.replace(f"{tmp_path}/", "").splitlines() == [
        "t: 1 samples written; 19 already existed",
        "t: DST has 21 samples, but SRC has 20",
        "t: 7 differences from SRC:",
        "  sample 1 ('cat/02'): image: 1 of its 192 values differ, the first at [2, 3, 1]",
        "  sample 2 ('cat/04'): label: int32 in SRC, int64 in DST",
        "  sample 3 ('cat/06'): label is in SRC only",
        "  sample 3 ('cat/06'): more is in DST only",
        "  sample 4 ('cat/08'): its key in DST is 'cat/8'",
        "  sample 4 ('cat/08'): image: uint8[8, 8, 3] in SRC, uint8[4, 8, 3] in DST",
        "  sample 4 ('cat/08'): label: 0 in SRC, 1 in DST",
    ]


def test_a_check_sees_bytes_keys_and_the_order(squares, tmp_path, capsys):
    assert convert(squares, tmp_path / "s.tar") == 0
    source = Tar(str(tmp_path / "s.tar"))
    samples = [(key, source[number]) for number, key in enumerate(source.keys)]
    samples[0], samples[1] = samples[1], samples[0]
    samples[2] = ("cat/2", samples[2][1])
    samples[3] = (samples[3][0], {**samples[3][1], "png": samples[3][1]["png"][:-1] + b"?"})
    with shard_writer(str(tmp_path / "s.tar")) as writer:
        for key, sample in samples[:-1]:
            writer.add(key, sample)
    capsys.readouterr()
    assert convert(squares, tmp_path / "s.tar", "--check") == 1
    size = len(samples[3][1]["png"])
    assert capsys.readouterr().out.replace(f"{tmp_path}/", "").splitlines() == [
        "s.tar: all 20 samples already exist",
        "s.tar: DST has 19 samples, but SRC has 20",
        "s.tar: 5 differences from SRC:",
        "  sample 0 ('cat/00'): it has index 1 in DST",
        "  sample 1 ('cat/02'): it has index 0 in DST",
        "  sample 2 ('cat/04'): its key in DST is 'cat/2'",
        f"  sample 3 ('cat/06'): png: differs from position {size - 1} on (length {size} in SRC, {size} in DST)",
        "  sample 19 ('dog/19'): it is missing",
    ]


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (1, np.int64(1), ""),
        (1, np.int32(1), ""),
        (1, np.int32(2), "1 in SRC, 2 in DST"),
        (1, np.float64(1), "int64 in SRC, float64 in DST"),
        (0.1, np.float32(0.1), "0.1 in SRC, 0.10000000149011612 in DST"),
        (np.int64(1), np.int32(1), "int64 in SRC, int32 in DST"),
        (True, np.int64(1), "bool in SRC, int64 in DST"),
        (np.float64("nan"), float("nan"), ""),
        (np.array([1.0, np.nan]), np.array([1.0, 2.0]), "1 of its 2 values differ, the first at [1]"),
        (np.zeros(2, ">i4"), np.zeros(2, "<i4"), ">i4[2] in SRC, int32[2] in DST"),
        (np.array([(1, 2)], "i2,i2"), np.array([(1, 3)], "i2,i2"), "1 of its 1 values differ, the first at [0]"),
        ("text", np.str_("text"), ""),
        ("text", b"text", "str in SRC, bytes in DST"),
        ("text", "teXt!", "differs from position 2 on (length 4 in SRC, 5 in DST)"),
        ([1, "a"], [1, "b"], "[1]: differs from position 0 on (length 1 in SRC, 1 in DST)"),
        ([1], [1, 2], "list of 1 in SRC, list of 2 in DST"),
        ([1], (1,), "list of 1 in SRC, tuple of 1 in DST"),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "['a']: ['b']: 1 in SRC, 2 in DST"),
        ({"a": 1}, {"b": 1}, "the field names are a in SRC, and b in DST"),
        (None, None, ""),
        (None, 0, "NoneType in SRC, int64 in DST"),
    ],
)
def test_what_differs_between_two_values_is_said_in_words(one, other, said):
    assert check.difference(one, other) == said


def test_fields_and_keys_may_be_chosen(squares, tmp_path, capsys):
    assert convert(squares, tmp_path / "a.npz", "--fields", "cls", "--number-keys", "--check") == 0
    found = Npz(str(tmp_path / "a.npz"))
    assert found.keys == [f"{number:09}" for number in range(20)]
    assert {name: int(value) for name, value in found[19].items()} == {"label": 1}
    assert convert(squares, tmp_path / "b.npz", "--fields", "jpg") == 2
    assert "--fields: there is no field 'jpg'; the sample has png, cls" in capsys.readouterr().err


def test_what_reads_and_what_writes_take_their_parameters(squares, tmp_path, capsys):
    assert convert(squares, tmp_path / "s.tar") == 0
    assert convert(tmp_path / "s.tar", tmp_path / "a.npz", "--read", 'fields={"digit": "cls"}', "--read", "index=true") == 0
    assert list(Npz(str(tmp_path / "a.npz"))[0]) == ["digit"] and (tmp_path / "highway-tar.index").exists()
    capsys.readouterr()
    for options, message in (
        (("--read", "field=1"), "--read.Tar.field: unknown parameter 'field' of Tar; did you mean fields?"),
        (("--read", "index=3"), "--read.Tar.index: expected"),
        (("--write", "durable=3"), "--write.durable: expected"),
        (("--write", "sync=true"), "--write: unknown parameter 'sync' of shard_writer; expected one of durable"),
    ):
        assert convert(tmp_path / "s.tar", tmp_path / "b.tar", *options) in (1, 2)
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit):
        convert(tmp_path / "s.tar", tmp_path / "b.tar", "--read", "index")
    assert "index; expected NAME=VALUE" in capsys.readouterr().err


def test_tuples_get_names(squares, tmp_path, capsys):
    images = [path.read_bytes() for path in sorted(squares.rglob("*.png"))[:4]]
    with lmdb_writer(str(tmp_path / "pairs.mdb")) as pairs, lmdb_writer(str(tmp_path / "bare.mdb")) as bare:
        for number, image in enumerate(images):
            pairs.put(b"%d" % number, msgpack.packb([image, number % 2]))  # as tensorpack writes them
            bare.put(b"%d" % number, image)
    assert convert(tmp_path / "pairs.mdb", tmp_path / "f", "--to", "folder", "--check") == 0
    assert files(tmp_path / "f") == {f"{n % 2:04}/{n}.png": image for n, image in enumerate(images)}
    assert convert(tmp_path / "bare.mdb", tmp_path / "bare.tar", "--check") == 0
    assert Tar(str(tmp_path / "bare.tar"))[3] == {"png": images[3]}
    assert convert(tmp_path / "pairs.mdb", tmp_path / "a.tar", "--names", "photo.png,class", "--check") == 0
    assert Tar(str(tmp_path / "a.tar"))[3] == {"photo.png": images[3], "class": 1}
    assert convert(tmp_path / "pairs.mdb", tmp_path / "b.tar", "--names", "photo") == 2
    assert "--names has 1 names (photo), but the sample has 2 fields; give one name for each field" in capsys.readouterr().err


def test_a_field_that_a_folder_has_no_place_for_is_an_error_and_not_lost(tmp_path, capsys):
    with shard_writer(str(tmp_path / "s.tar")) as writer:
        writer.add("a", {"image": np.zeros((2, 2, 3), np.uint8), "txt": "a square"})
    assert convert(tmp_path / "s.tar", tmp_path / "f", "--to", "folder") == 1
    error = capsys.readouterr().err
    assert "this sample has image, txt; remove the other fields," in error and "the error was raised for sample 0 ('a')" in error
    assert convert(tmp_path / "s.tar", tmp_path / "f", "--to", "folder", "--fields", "image") == 0  # nothing was there yet
    assert convert(tmp_path / "s.tar", tmp_path / "f", "--to", "folder") == 2
    assert "an earlier conversion to this path had different inputs or settings (fields)" in capsys.readouterr().err


def test_labels_that_folders_do_not_say_are_kept(tmp_path):
    with npz_writer(str(tmp_path / "a.npz")) as writer:
        for number in range(4):
            writer.add(f"n{number}", {"image": np.full((2, 2, 3), number, np.uint8), "label": np.int32(7 - number)})
    assert convert(tmp_path / "a.npz", tmp_path / "f", "--to", "folder", "--check") == 0
    assert sorted(path.name for path in (tmp_path / "f").iterdir() if not path.name.startswith(".")) == [
        "0004", "0005", "0006", "0007", "highway-labels.txt",
    ]  # fmt: skip


def test_streams_are_converted_one_after_the_other_and_go_on(squares, tmp_path, capsys):
    assert convert(squares, tmp_path / "s.tar") == 0
    source = f"pipe:cat {tmp_path / 's.tar'}"
    assert convert(source, tmp_path / "o" / "s-%d.tar", "--shard-size", 6, "--check") == 0
    assert "all 20 samples are the same" in capsys.readouterr().out
    (tmp_path / "o" / "s-1.tar").unlink()
    assert convert(source, tmp_path / "o" / "s-%d.tar", "--shard-size", 6, "--check") == 0
    (tmp_path / "o" / "s-1.tar").rename(tmp_path / "s-1.tar")
    record = next((tmp_path / "o").glob(".highway-convert*"))
    record.write_text(record.read_text().replace('"samples": 20', '"samples": null'))
    assert convert(source, tmp_path / "o" / "s-%d.tar", "--shard-size", 6) == 0
    assert "6 samples written; 14 already existed" in capsys.readouterr().out
    assert (tmp_path / "o" / "s-1.tar").read_bytes() == (tmp_path / "s-1.tar").read_bytes()


def test_a_source_may_lie_in_an_object_store(squares, tmp_path, capsys):
    store = fsspec.filesystem("memory")
    for path in squares.rglob("*.png"):
        store.pipe(f"/convert/{path.relative_to(squares)}", path.read_bytes())
        store.pipe(f"/convert-flat/{path.name}", path.read_bytes())
    assert convert("memory://convert", tmp_path / "s.tar", "--check") == 0
    assert convert(squares, tmp_path / "t.tar") == 0
    assert (tmp_path / "s.tar").read_bytes() == (tmp_path / "t.tar").read_bytes()
    store.pipe("/convert.tar", (tmp_path / "s.tar").read_bytes())
    assert convert("memory://convert.tar?attempts=2", tmp_path / "f", "--to", "folder", "--check") == 0
    assert files(tmp_path / "f") == files(squares)
    assert convert("memory://convert-flat", tmp_path / "flat.npz") == 0
    assert list(Npz(str(tmp_path / "flat.npz"))[0]) == ["image"]


def test_the_digits_of_mnist_become_a_folder_and_keep_their_pixels(tmp_path, capsys):
    digits = np.random.default_rng(0).integers(0, 256, (12, 28, 28), np.uint8)
    labels = np.arange(12, dtype=np.uint8) % 10
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte").write_bytes(struct.pack(">4I", 2051, 12, 28, 28) + digits.tobytes())
    (tmp_path / "mnist" / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, 12) + labels.tobytes())
    for target in (
        ["f", "--to", "folder"],
        ["s.tar"],
        ["a.npz"],
        ["a.parquet"],
        ["a.h5"],
        ["a.tfrecord"],
        ["a.lmdb"],
        ["m", "--to", "mds"],
    ):
        assert convert(tmp_path / "mnist", tmp_path / target[0], *target[1:], "--check") == 0, capsys.readouterr().out
        assert "compared with SRC, all 12 samples are the same" in capsys.readouterr().out


def test_lines_of_svmlight_are_rows_of_any_length(tmp_path, capsys):
    (tmp_path / "a.svm").write_text("".join(f"{n % 2} " + " ".join(f"{k}:{k / 2}" for k in range(1, n + 1)) + "\n" for n in range(5)))
    for target in ("s.tar", "a.parquet", "a.tfrecord", "a.mdb"):
        assert convert(tmp_path / "a.svm", tmp_path / target, "--check") == 0, capsys.readouterr().out
    assert convert(tmp_path / "a.svm", tmp_path / "a.npz", "--read", "num_features=4", "--read", "dense=true", "--check") == 0


def test_compressed_shards_are_read_as_streams(squares, tmp_path, capsys):
    assert convert(squares, tmp_path / "s.tar") == 0
    (tmp_path / "s.tar.gz").write_bytes(gzip.compress((tmp_path / "s.tar").read_bytes()))
    assert convert(tmp_path / "s.tar.gz", tmp_path / "f", "--to", "folder", "--check") == 0
    assert files(tmp_path / "f") == files(squares)
    assert convert(tmp_path / "s.tar.gz", tmp_path / "g", "--to", "folder", "--read", "index=true") == 2
    assert "is read as a stream, which accepts no options" in capsys.readouterr().err


@pytest.mark.parametrize("way", WAYS)
def test_what_is_read_is_recognised_by_its_content(squares, tmp_path, way):
    target, *options = WAYS[way]
    assert convert(squares, tmp_path / target, *options) == 0
    found, paths = recognised([str(tmp_path / target).replace("%d", "*")], None)
    named = written_to(target, options[1] if options[:1] == ["--to"] else None)
    assert found is named
    if (path := Path(paths[0])).suffix:
        nameless = path.rename(path.parent / "without")
        if found.name == "arrayrecord":
            with pytest.raises(ConfigError, match=f"none of the formats, by its name and content; say --from .*{found.name}"):
                recognised([str(nameless)], None)
        else:
            assert recognised([str(nameless)], None)[0] is found


def test_a_batch_in_a_ten_file_is_no_sample(tmp_path, capsys):
    save(str(tmp_path / "a.ten"), {"x": np.zeros((2, 3))}, Passport(keys=("a", "b")))
    assert convert(tmp_path / "a.ten", tmp_path / "a.npz") == 1
    error = capsys.readouterr().err
    assert "the item is a batch of 2 samples; put Unbatch before the sink" in error and "a.ten" in error


def test_the_help_lists_the_formats(capsys):
    with pytest.raises(SystemExit):
        convert("--help")
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in formats())


def test_what_a_killed_writer_has_left_is_removed(squares, tmp_path):
    (tmp_path / "a.npz.999999999.part").write_text("half")
    (tmp_path / "a.npz.1.part").write_text("of a process that runs")
    (tmp_path / "m.999999999.part").mkdir()
    assert convert(squares, tmp_path / "a.npz") == convert(squares, tmp_path / "m", "--to", "mds") == 0
    assert [path.name for path in tmp_path.glob("*.part")] == ["a.npz.1.part"]


def test_what_was_whole_before_its_record_said_so_is_kept(squares, tmp_path, capsys):
    assert convert(squares, tmp_path / "c", "--to", "cache") == 0
    record = tmp_path / ".highway-convert-c.json"
    record.write_text(record.read_text().replace('"samples": 20', '"samples": null'))
    assert convert(squares, tmp_path / "c", "--to", "cache", "--check") == 0
    assert "all 20 samples already exist" in capsys.readouterr().out


def test_what_fails_before_anything_is_written_leaves_no_record(tmp_path, capsys):
    with shard_writer(str(tmp_path / "s.tar")) as writer:
        writer.add("a", {"txt": "a text"})
    for target, message in (
        (["t", "--to", "ten"], "a .ten file contains only arrays: field 'txt' is a str"),
        (["f", "--to", "folder"], "a folder stores"),
    ):
        assert convert(tmp_path / "s.tar", tmp_path / target[0], *target[1:]) == 1
        assert message in capsys.readouterr().err
        assert not list(tmp_path.rglob(".highway-convert*"))


def test_what_is_a_whole_is_begun_anew_and_that_is_said(squares, tmp_path, capsys):
    (tmp_path / "a.npz").write_text("of an earlier run")
    about = {"about": {"files": ImageFolder(str(squares)).fingerprint(), "kind": "npz"}, "samples": None}
    (tmp_path / ".highway-convert-a.npz.json").write_text(json.dumps(about))
    assert convert(squares, tmp_path / "a.npz", "--check") == 0
    assert "a.npz: the conversion starts again from the beginning, because a single file cannot be continued" in capsys.readouterr().out


def test_what_was_removed_is_written_again(squares, tmp_path, capsys):
    assert convert(squares, tmp_path / "a.npz") == 0
    (tmp_path / "a.npz").unlink()
    assert convert(squares, tmp_path / "a.npz", "--check") == 0
    assert "20 samples written" in capsys.readouterr().out


def test_nothing_is_no_source(tmp_path, capsys):
    with tarfile.open(tmp_path / "s.tar", "w"), lmdb_writer(str(tmp_path / "s.mdb")):
        pass
    for target in (["t", "--to", "ten"], ["a.npz"]):
        assert convert(tmp_path / "s.mdb", tmp_path / target[0], *target[1:]) == 1
        assert "s.mdb: the dataset has no samples" in capsys.readouterr().err
        assert convert(tmp_path / "s.tar", tmp_path / target[0], *target[1:]) == 1
        assert "the shard has no files" in capsys.readouterr().err


def test_a_terminal_is_shown_the_progress(squares, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # which makes a terminal of it for rich
    assert convert(squares, tmp_path / "s.tar") == 0
    assert re.search(r"20/20.*samples/s", capsys.readouterr().err)


@pytest.mark.parametrize("other", ["./a/x", "a//x"])
def test_samples_whose_keys_are_one_path_are_an_error_and_not_one_file(photos, tmp_path, capsys, other):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.add(photos / "cat" / "00.jpg", "a/x.jpg")
        archive.add(photos / "dog" / "01.jpg", f"{other}.jpg")
    assert convert(tmp_path / "x.tar", tmp_path / "folder", "--to", "folder", "--workers", 1) == 1
    assert "two images have the path 'a/x.jpg'" in capsys.readouterr().err
    assert convert(tmp_path / "x.tar", tmp_path / "numbered", "--to", "folder", "--number-keys", "--check") == 0


def test_a_folder_of_an_archive_whose_keys_begin_with_a_dot_is_the_same(photos, tmp_path, capsys):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for label, key in enumerate(["cat/00", "dog/01"]):
            archive.add(photos / f"{key}.jpg", f"./{key}.jpg")
            (tmp_path / "cls").write_text(str(label))
            archive.add(tmp_path / "cls", f"./{key}.cls")
    assert convert(tmp_path / "x.tar", tmp_path / "folder", "--to", "folder", "--check") == 0
    assert "all 2 samples are the same" in capsys.readouterr().out
