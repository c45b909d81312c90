"""``.ten`` files as source and sink."""

import errno
import os

import numpy as np
import pytest

from highway import ConfigError, FrameError, Passport, Pipeline, Stage, Stamped, tenbin
from highway.modules.ten_files import TenSink, TenSource
from highway.wire.codec import named
from highway.wire.envelope import Envelope


def items(count=3):
    for index in range(count):
        item = {"image": np.full((2, 3), index, np.uint8), "a long field name": np.array([index], np.int64)}
        yield Stamped(item, Passport(1, index, keys=(f"{index}.jpg",)))


def stamped(source):
    with Pipeline([source]) as pipeline:
        return list(pipeline.stamped())


def values(source):
    return [int(item["image"][0, 0]) for item, _ in Pipeline([source]).stamped()]


@pytest.mark.parametrize("mmap", [False, True])
def test_items_come_back_with_their_fields_and_keys(tmp_path, mmap):
    Pipeline([list(items()), TenSink(str(tmp_path / "new"))]).run()
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [f"001-0000000{n}.ten" for n in range(3)]
    found = stamped(TenSource(str(tmp_path / "new"), mmap=mmap))
    for before, after in zip(items(), found, strict=True):
        assert list(after.item) == list(before.item)
        for name, array in before.item.items():
            assert after.item[name].dtype == array.dtype
            np.testing.assert_array_equal(after.item[name], array)
        assert after.passport.keys == before.passport.keys
    assert [(entry.passport.epoch, entry.passport.index) for entry in found] == [(0, 0), (0, 1), (0, 2)]


def test_what_was_saved_by_hand_is_a_tuple_with_its_path_as_key(tmp_path):
    path = str(tmp_path / "x.ten")
    tenbin.save(path, np.arange(3, dtype=np.uint8))
    ((item, passport),) = stamped(TenSource(path))
    assert isinstance(item, tuple)
    assert item[0].tolist() == [0, 1, 2]
    assert passport.keys == (path,)


def test_other_readers_see_the_arrays_of_what_the_sink_wrote(tmp_path):
    Pipeline([list(items(1)), TenSink(str(tmp_path))]).run()
    arrays, infos = tenbin.load(tmp_path / "001-00000000.ten", infos=True)
    assert [array.tolist() for array in arrays] == [[[0, 0, 0], [0, 0, 0]], [0]]
    assert infos == ["image", ""]


def test_files_folders_and_patterns_are_read_in_order(tmp_path):
    for name in "cab":
        tenbin.save(tmp_path / f"{name}.ten", np.array([ord(name)], np.uint8))

    def read(paths):
        return [chr(item[0][0]) for item, _ in stamped(TenSource(paths))]

    assert read(str(tmp_path)) == ["a", "b", "c"]
    assert read(str(tmp_path / "[bc].ten")) == ["b", "c"]
    assert read([str(tmp_path / "c.ten"), str(tmp_path / "a*")]) == ["c", "a"]


def test_epochs_are_numbered_and_shuffled_by_the_seed(tmp_path):
    Pipeline([list(items(20)), TenSink(str(tmp_path))]).run()
    source = TenSource(str(tmp_path), epochs=2, shuffle=True, seed=3)
    order = values(source)
    assert order == values(source)
    assert order != values(TenSource(str(tmp_path), epochs=2, shuffle=True, seed=4))
    assert sorted(order[:20]) == sorted(order[20:]) == list(range(20))
    assert order[:20] != order[20:]
    assert [entry.passport.epoch for entry in stamped(source)] == [0] * 20 + [1] * 20


def test_a_source_without_files_says_where_it_looked(tmp_path):
    source = TenSource(str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match=r"none': there are no .ten files"):
        stamped(source)


@pytest.mark.parametrize("mmap", [False, True])
def test_a_damaged_file_is_named_or_left_out(tmp_path, mmap):
    Pipeline([list(items()), TenSink(str(tmp_path))]).run()
    broken = tmp_path / "001-00000001.ten"
    broken.write_bytes(broken.read_bytes()[:-10])
    with pytest.raises(FrameError, match=r"001-00000001.ten: byte \d+: the file ends within the padding of the last chunk"):
        list(Pipeline([TenSource(str(tmp_path), mmap=mmap)]))
    pipeline = Pipeline([Stage(TenSource(str(tmp_path), mmap=mmap), on_error="skip")])
    assert [int(item["image"][0, 0]) for item in pipeline] == [0, 2]
    assert [stage.errors for stage in pipeline.stats().stages] == [0, 1]


def test_a_file_that_is_there_is_not_replaced_unless_told_to(tmp_path):
    Pipeline([list(items(1)), TenSink(str(tmp_path))]).run()
    with pytest.raises(FileExistsError, match="already exists; pass overwrite=True"):
        Pipeline([list(items(1)), TenSink(str(tmp_path))]).run()
    Pipeline([list(items(1)), TenSink(str(tmp_path), overwrite=True)]).run()
    assert [path.name for path in tmp_path.iterdir()] == ["001-00000000.ten"]


@pytest.mark.parametrize(
    ("name", "says"), [("{number}.ten", "name='{number}.ten': 'number'; expected, for example,"), ("x", "ends in .ten")]
)
def test_a_name_that_cannot_be_used_is_found_before_anything_is_written(name, says):
    with pytest.raises(ConfigError, match=says):
        TenSink("folder", name=name)


def test_an_item_that_cannot_be_saved_is_left_out_when_told_to(tmp_path):
    Pipeline([[("text",), (np.zeros(1),)], Stage(TenSink(str(tmp_path)), on_error="skip")]).run()
    assert [path.name for path in tmp_path.iterdir()] == ["000-00000001.ten"]


# --- damage ---


def damages(whole):
    """Every byte changed, zeros in many places, a tail cut off in many places."""
    for place in range(len(whole)):
        yield whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :]
    for place in range(0, len(whole), 7):
        yield whole[:place] + bytes(len(whole[place : place + 64])) + whole[place + 64 :]
        yield whole[:place]


@pytest.mark.slow
@pytest.mark.parametrize(("mmap", "keys"), [(False, ("a/photo.jpg",)), (True, ())])
def test_a_damaged_file_is_never_read_as_something_else(tmp_path, mmap, keys):
    item = {"image": np.arange(30, dtype=np.uint8).reshape(2, 5, 3), "box": np.arange(4, dtype=np.float32), "flag": np.array([True, False])}
    Pipeline([[Stamped(item, Passport(1, 2, keys=keys))], TenSink(str(tmp_path))]).run()
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    refused = 0
    for damaged in damages(whole):
        path.write_bytes(damaged)
        try:
            found, passport = TenSource(str(path), mmap=mmap).open()[0]
            arrays = tenbin.load(path, mmap=mmap)
        except FrameError as error:
            assert str(error).startswith(f"{path}: ")
            refused += 1
            continue
        assert list(found) == list(item) and passport.keys == (keys or (str(path),))  # in the padding
        for name, array, again in zip(item, found.values(), arrays, strict=True):
            np.testing.assert_array_equal(array, item[name])
            np.testing.assert_array_equal(again, item[name])
    assert refused > 0.6 * len(whole)


def test_what_does_not_fit_its_checksum_is_said(tmp_path):
    Pipeline([list(items(1)), TenSink(str(tmp_path))]).run()
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-64] + b"\x09" + whole[-63:])
    with pytest.raises(FrameError, match=r"001-00000000.ten: array 1: the checksum does not match: the file is damaged"):
        stamped(TenSource(str(path)))


def test_files_of_tensorcom_and_of_highway_0_1_0_have_no_checksums_and_are_read(tmp_path):
    frames = named("tensorcom").encode({"x": np.arange(3, dtype=np.int32)}, Envelope(passport=Passport(keys=("k",))))
    foreign = [bytes(frames[0])[:32] + b"of some other program...", frames[1]]
    for name, chunks in (("old", frames), ("foreign", foreign)):
        with open(tmp_path / f"{name}.ten", "wb") as file:
            for chunk in chunks:
                tenbin.write_chunk(file, chunk)
        ((item, passport),) = stamped(TenSource(str(tmp_path / f"{name}.ten")))
        assert (item["x"] if name == "old" else item[0]).tolist() == [0, 1, 2]
        assert passport.keys == (("k",) if name == "old" else (str(tmp_path / "foreign.ten"),))


def test_a_file_that_cannot_be_finished_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        Pipeline([list(items(1)), TenSink(str(tmp_path))]).run()
    assert list(tmp_path.iterdir()) == []
    assert any("001-00000000.ten: free space, or choose another path" in note for note in caught.value.__notes__)
