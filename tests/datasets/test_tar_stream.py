"""Archives read member by member, compared with Python's tarfile: the same files, and the same errors."""

from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest

from highway.datasets import tar_stream
from highway.datasets.tar_headers import plain_file
from highway.datasets.tar_stream import Archive, read_members
from highway.errors import ShardError

Found = tuple[list[tuple[str, bytes]], str]


def by_tarfile(data: bytes) -> Found:
    """Return the files that tarfile finds in an archive, and the error."""
    files: list[tuple[str, bytes]] = []
    try:
        with Archive.open(fileobj=io.BytesIO(data), mode="r|") as archive:
            while (info := archive.next()) is not None:
                if info.islnk() or info.issym():
                    return files, f"{info.name!r} is a link; pack the contents of files, with tar --hard-dereference -h"
                if (file := archive.extractfile(info)) is not None:
                    files.append((info.name, file.read()))
    except (tarfile.TarError, EOFError, ValueError) as error:
        return files, str(error)
    if not archive.has_end:
        return files, "the end mark is missing"
    if data[archive.offset :].strip(b"\0"):  # tarfile does not look at it
        return files, "bytes after the end"
    return files, "" if files else "no files"


def by_highway(path: Path) -> Found:
    """Return the files that highway reads, and the error, which must count them."""
    files: list[tuple[str, bytes]] = []
    try:
        for member in read_members(str(path)):
            files.append((member.path, member.data))
        return files, ""
    except ShardError as error:
        prefix = f"{path}: not a tar archive, or damaged or truncated; number of complete files: {len(files)}; "
        assert str(error).startswith(prefix)
        message = str(error).removeprefix(prefix)
        ends = {"the end mark (zeros) is at byte": "bytes after the end", "the shard has no files": "no files"}
        return files, next((short for start, short in ends.items() if message.startswith(start)), message)


def archive(chosen: random.Random, mode: str = "w") -> bytes:
    """Return an archive of what there may be in one: any format, long names, times, folders, pax for all files, sizes around blocks."""
    memory = io.BytesIO()
    options = {"pax_headers": {"comment": "all"}} if chosen.random() < 0.1 else {}
    form = chosen.choice([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    with tarfile.open(fileobj=memory, mode=mode, format=form, **options) as out:  # type: ignore[call-overload]
        for number in range(chosen.randrange(1, 7)):
            info = tarfile.TarInfo(chosen.choice(["a", "é", "b/" * 20, "c" * 95, "d/" * 70, "e" * 99]) + f"{number}.bin")
            if len(info.name) > 99 and form == tarfile.USTAR_FORMAT:
                info.name = f"{number}.bin"
            info.size = chosen.choice([0, 1, 511, 512, 513, 3000, 40_000, 100_000, 300_000])
            info.mtime = chosen.choice([0, 1700000000, 1700000000.25])
            info.uid, info.uname = chosen.choice([(0, ""), (1000, "somebody"), (1 << 22 if form != tarfile.USTAR_FORMAT else 7, "x" * 40)])
            if chosen.random() < 0.1:
                info.type, info.size = tarfile.DIRTYPE, 0
            elif chosen.random() < 0.03:
                info.type, info.linkname, info.size = tarfile.SYMTYPE, "a", 0
            out.addfile(info, io.BytesIO(chosen.randbytes(info.size)))
    return memory.getvalue()


@pytest.mark.parametrize("seed", range(8))
def test_files_and_damage_are_those_that_tarfile_finds(tmp_path: Path, seed: int) -> None:
    chosen, path, whole = random.Random(seed), tmp_path / "a.tar", 0
    for _ in range(40):
        data = bytearray(archive(chosen, chosen.choice(["w", "w", "w", "w", "w:gz"])))
        if (damage := chosen.random()) < 0.3:
            del data[chosen.randrange(len(data)) :]
        elif damage < 0.7:
            for _ in range(chosen.randrange(1, 4)):
                data[chosen.choice([chosen.randrange(min(1536, len(data))), chosen.randrange(len(data))])] = chosen.randrange(256)
        path.write_bytes(data)
        found = by_highway(path)
        try:
            plain = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else bytes(data)
        except (OSError, EOFError, zlib.error):
            assert found[1]
        else:
            assert found == by_tarfile(plain)
        whole += not found[1]
    assert 0 < whole < 40


def test_headers_with_a_time_in_pax_are_read_without_tarfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as out:
        for number in range(3):
            info = tarfile.TarInfo(f"{number}.bin")
            info.mtime, info.size = 1700000000.5, 600  # type: ignore[assignment]  # as webdataset's writer has it
            out.addfile(info, io.BytesIO(bytes(600)))
    asked: list[int] = []
    next_of = Archive.next
    monkeypatch.setattr(Archive, "next", lambda archive: asked.append(archive.offset) or next_of(archive))
    assert len(list(read_members(str(path)))) == 3
    assert asked == [0, 3 * (3 * 512 + 1024)]  # when it was made, and for the end marker


def test_a_checksum_is_the_sum_of_all_bytes() -> None:
    header = bytearray(tarfile.TarInfo("\udcff" * 99).tobuf(tarfile.USTAR_FORMAT, "utf-8", "surrogateescape"))
    assert plain_file(bytes(header)) == ("\udcff" * 99, 0, 512)
    for place in range(512):
        changed = header.copy()
        changed[place] ^= 1
        if chr(header[place]) not in " \0" or not 148 <= place < 156:  # what ends the checksum's own field
            assert plain_file(bytes(changed)) is None, place


def test_a_pipe_is_read_no_further_than_it_has_to_be(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    data = archive(random.Random(0))
    first = plain_file(data)
    assert first is not None
    thread = threading.Thread(target=path.write_bytes, args=(data,))
    thread.start()
    with open(path, "rb", buffering=0) as pipe:
        ahead = tar_stream.Ahead(pipe)
        assert ahead.plain_file() == first
        ahead.at += first.header
        assert ahead.read(first.size) == data[first.header :][: first.size]
        rest = b""
        while more := ahead.read_some(1 << 16):
            rest += more
    thread.join()
    assert rest == data[first.header + first.size :]


@pytest.mark.usefixtures("many_descriptors")
def test_a_command_is_read_in_a_process_with_many_descriptors(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(archive(random.Random(0)))
    assert list(read_members(f"pipe:cat {path}")) == list(read_members(str(path)))


def test_a_size_that_lies_takes_no_memory(tmp_path: Path, reads: list[Any]) -> None:
    info = tarfile.TarInfo("a.bin")
    info.size = 7 << 30
    path = tmp_path / "a.tar"
    path.write_bytes(info.tobuf(tarfile.USTAR_FORMAT) + bytes(100))
    with pytest.raises(ShardError, match="truncated; number of complete files: 0; unexpected end of data"):
        list(read_members(str(path)))
    assert max(read.size for read in reads) <= 1 << 26


def test_many_files_on_disk_are_read_at_once_and_large_ones_alone(tmp_path: Path, reads: list[Any]) -> None:
    path, contents = tmp_path / "a.tar", [random.Random(number).randbytes(100_000) for number in range(40)]
    with tarfile.open(path, "w") as out:
        for number, data in enumerate([*contents, bytes(tar_stream.MOST + 1)]):
            info = tarfile.TarInfo(f"{number}.bin")
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
    assert [member.data for member in read_members(str(path))] == [*contents, bytes(tar_stream.MOST + 1)]
    assert len(reads) < 20
    assert tar_stream.MOST + 1 in [read.size for read in reads]
