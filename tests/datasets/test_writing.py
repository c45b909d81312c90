"""Files that appear under their name when they are complete."""

import os

import pytest

from highway.datasets.writing import writing, writing_folder


@pytest.mark.parametrize("is_folder", [False, True])
def test_what_is_durable_is_on_the_disk_before_and_with_its_name(is_folder, tmp_path, monkeypatch):
    path, synced, own = tmp_path / "a", [], os.fsync

    def fsync(descriptor):
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), path.exists()))
        own(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with writing_folder(str(path), "x", durable=True) if is_folder else writing(str(path), durable=True) as part:
        with open(os.path.join(part, "x") if is_folder else part, "wb") as file:
            file.write(b"content")
        wanted = {os.path.join(part, name).rstrip("/") for name in (["x", ""] if is_folder else [""])}
    assert {name.rstrip("/") for name, is_there in synced if not is_there} == wanted
    assert [name for name, is_there in synced if is_there] == [str(tmp_path)]
