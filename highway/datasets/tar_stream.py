"""Read tar archives from beginning to end, from files, URLs and pipes."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import re
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Generator, Iterator
from types import SimpleNamespace
from typing import IO, Any, BinaryIO, NamedTuple

from highway.datasets.tar_headers import BLOCK, MOST_ZEROS, PAX_BLOCKS, PlainFile, check_end, is_header, plain_file
from highway.engine.cancel import check_cancelled
from highway.errors import ConfigError, ShardError
from highway.extras import pip_install
from highway.process.readable import readable
from highway.stores.url import shown

_SCHEME = re.compile(r"(pipe|file|[a-z][a-z0-9+]*(?=://)):")
_BY_COMMAND = ("pipe", "ais", "ftps", "htgs", "scp", "sftp")  # schemes that the webdataset package reads by commands
_BROKEN_PIPE = (141, -13)  # exit codes (of a shell, of a command) if this process closed the pipe early
_PATIENCE = 5.0  # maximum seconds for a command to end after a signal
LEAST = 1 << 12  # number of bytes to read ahead at first; the number doubles while files are small
MOST, LARGE = 1 << 20, 1 << 18  # for archives on disk: maximum bytes to read ahead; minimum size of files to read directly
MOST_OF_PIPE, LARGE_OF_PIPE = 1 << 16, 1 << 15  # the same limits for other streams
_AT_ONCE = 1 << 26  # maximum bytes of one read, because a damaged header can contain any size


COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}  # by the first bytes
_OPENERS: dict[str, Callable[[Any], Any]] = {
    "gzip": lambda stream: gzip.GzipFile(fileobj=stream),
    "bzip2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
}


class Member(NamedTuple):
    """A file in an archive: its path in the archive, and its bytes."""

    path: str
    data: bytes


def read_members(url: str) -> Generator[Member, None, None]:
    """Yield the files in a tar archive, in the order of the archive. The archive can be compressed.

    Args:
        url: A path, ``file:PATH``, the URL of an object in an object store (:mod:`highway.stores`), or a URL of the webdataset package:
            ``pipe:COMMAND``, ``scp:``, ``sftp:``, ``ftps:``, ``ais:``.

    Raises:
        ShardError: the content is not a tar archive, has no files, or is damaged.
        ShardError: the archive is truncated, or other data follow its end mark.
        OSError: the archive cannot be opened, or the command of the URL fails.
        ConfigError: the URL needs the webdataset package, but the package is not installed.
    """
    count = 0
    with _open(url) as stream:
        try:
            for member in _members(stream):
                count += 1
                yield member
        except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ValueError) as error:
            _read_to_end(stream)
            raise ShardError(
                f"{shown(url)}: not a tar archive, or damaged or truncated; number of complete files: {count}; {error}"
            ) from error
        _read_to_end(stream)


def _members(stream: Any) -> Iterator[Member]:
    """Yield the files of an archive, and check its end. Headers that are not plain (see ``tar_headers``) are read by tarfile."""
    ahead = _decompressed(Ahead(stream))
    archive, has_files = Archive.over(ahead), False
    while True:
        if not archive.pax_headers:  # global pax headers apply to all files after them
            yield from _plain_members(ahead)
        has_files = has_files or ahead.tell() > archive.offset
        archive.offset = ahead.tell()
        if (info := archive.next()) is None:
            break
        if info.islnk() or info.issym():
            raise tarfile.StreamError(f"{info.name!r} is a link; pack the contents of files, with tar --hard-dereference -h")
        if (file := archive.extractfile(info)) is not None:
            has_files = True
            yield Member(info.name, file.read())
        archive.members.clear()  # otherwise tarfile would keep an entry for every file
        ahead.seek(archive.offset)
        check_cancelled()
    if not archive.has_end:
        raise tarfile.ReadError("the end mark is missing")
    check_end(bytes(BLOCK) + ahead.read(MOST_ZEROS - BLOCK + 1), archive.offset, has_files)


def _decompressed(ahead: Ahead) -> Ahead:
    """If a stream is compressed, return a stream that decompresses it. Otherwise return the same stream."""
    ahead.fetch(BLOCK)
    kind = next((kind for magic, kind in COMPRESSED.items() if ahead.block.startswith(magic)), None)
    if kind is None or is_header(ahead.block):
        return ahead
    if kind not in _OPENERS:
        raise tarfile.ReadError(
            f"the shard is compressed with {kind}, which highway does not decompress; unpack it with {kind} -d, or "
            f"read 'pipe:{kind} -dc SHARD'"
        )
    return Ahead(_Decompressed(_OPENERS[kind](SimpleNamespace(read=ahead.read_some))))


class _Decompressed:
    """A stream that decompresses another stream. At the end of the stream, the decompressor checks the checksum."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def seekable(self) -> bool:
        return False

    def read(self, size: int) -> bytes:
        try:
            data: bytes = self._file.read(size)
            return data
        except OSError as error:
            if error.errno is None and type(error) in (OSError, gzip.BadGzipFile):  # gzip and bz2 raise these errors for damaged data
                raise tarfile.ReadError(str(error)) from error
            raise


def _plain_members(ahead: Ahead) -> Iterator[Member]:
    """Yield files. Stop before the first header that is not plain."""
    while (file := ahead.plain_file()) is not None:
        ahead.at += file.header
        data = ahead.read(file.size)
        if len(data) < file.size:
            raise tarfile.ReadError("unexpected end of data")
        yield Member(file.name, data)
        if padding := -file.size % BLOCK:
            if ahead.at + padding <= len(ahead.block):
                ahead.at += padding
            else:
                ahead.seek(ahead.tell() + padding)


class _Ending(tarfile.TarInfo):
    """Sets ``has_end`` of the archive when the end mark is read. tarfile itself treats a damaged header like the end mark."""

    @classmethod
    def fromtarfile(cls, tarfile_: Any) -> Any:
        try:
            return super().fromtarfile(tarfile_)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            tarfile_.has_end = True
            raise


class Archive(tarfile.TarFile):
    """A tar archive that knows whether its end mark was read."""

    tarinfo = _Ending
    has_end = False
    members: list[tarfile.TarInfo]  # not in the type stubs

    @classmethod
    def over(cls, stream: Any) -> Archive:
        """Return an archive. The constructor reads nothing from the stream."""
        archive = cls(fileobj=io.BytesIO(bytes(BLOCK)))
        archive.fileobj, archive.has_end = stream, False
        return archive


def is_path(url: str) -> bool:
    """Return whether a shard is a file on this machine."""
    scheme = _SCHEME.match(url)
    return scheme is None or scheme[1] == "file"


def has_ranges(url: str) -> bool:
    """Return whether a shard can be read by byte offset, because it is a file on this machine or an object in an object store."""
    scheme = _SCHEME.match(url)
    return scheme is None or scheme[1] not in _BY_COMMAND


def path_of(url: str) -> str:
    """Return the path of a shard that is a file on this machine."""
    return url.removeprefix("file://").removeprefix("file:")


def open_shard(path: str) -> BinaryIO:
    """Open a shard. Raises OSError."""
    try:
        return open(path, "rb")
    except IsADirectoryError as error:
        error.add_note("pass the shards in this folder, with braces: 'photos-{000..015}.tar'")
        raise
    except FileNotFoundError as error:
        add_hint(error)
        raise


def add_hint(error: FileNotFoundError) -> None:
    """If the missing path is a pattern, add a note to the error."""
    if "*" in str(error.filename):
        error.add_note("patterns are not supported here; use braces, such as 'photos-{000..015}.tar'")


@contextlib.contextmanager
def _open(url: str) -> Iterator[BinaryIO]:
    if is_path(url):
        with open_shard(path_of(url)) as file:
            yield file.raw  # type: ignore[attr-defined]  # without a buffer, because Ahead reads ahead
        return
    if has_ranges(url):
        from highway.stores.streaming import ObjectStream  # imported here, because local files do not need this module

        with contextlib.closing(ObjectStream(url)) as stream:
            yield stream  # type: ignore[misc]
        return
    try:
        from webdataset.gopen import gopen
    except ModuleNotFoundError:
        raise ConfigError(f"{shown(url)!r}: highway needs the webdataset package to run commands: {pip_install('shards')}") from None
    pipe = gopen(url, "rb")  # the command ends when this object is deleted
    process: subprocess.Popen[bytes] = pipe.proc
    assert process.stdout is not None
    stop = True
    try:
        yield _PipeReader(process.stdout.fileno())  # type: ignore[misc]
        stop = False
    except ShardError:  # if the command failed, raise the error below instead
        stop = False
        raise
    finally:
        _end(process, process.stdout, stop)
        if not stop and process.returncode not in (0, *_BROKEN_PIPE):
            raise OSError(f"{shown(url)}: the command that reads it failed with exit code {process.returncode}")


def _end(process: subprocess.Popen[bytes], stdout: IO[bytes], stop: bool) -> None:
    if stop:
        process.terminate()
    stdout.close()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _read_to_end(stream: Any) -> None:
    """Read the remaining output of a command, so that the command can end normally. For a file, do nothing."""
    if isinstance(stream, _PipeReader):
        while stream.read(1 << 16):
            pass


class _PipeReader(io.RawIOBase):
    """Reads from a pipe. If the pipeline stage is cancelled during a read, the read raises ``Cancelled``."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, size: int = -1) -> bytes:
        while not readable([self._descriptor], 0.1):
            check_cancelled()
        return os.read(self._descriptor, size if size >= 0 else 1 << 16)


class Ahead:
    """A stream that reads ahead in blocks.

    One system call reads several small files, because each system call releases the GIL. Waiting for the GIL afterwards takes longer than
    copying a file of 100 kB. Large files are read directly, without a copy.

    Args:
        stream: The stream to read. Its method ``read`` can return fewer bytes than requested. The method returns empty bytes only at the
            end.

    Attributes:
        block: The last block that was read.
        at: Number of bytes of the block that were consumed.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._descriptor = stream.fileno() if stream.seekable() else None
        self._most, self._large = (MOST_OF_PIPE, LARGE_OF_PIPE) if self._descriptor is None else (MOST, LARGE)
        self._next = 0  # byte offset of the next read
        self.block, self.at = b"", 0
        self._begin = 0  # byte offset of the block
        self._size = LEAST

    def tell(self) -> int:
        """Return the number of bytes consumed so far."""
        return self._begin + self.at

    def plain_file(self) -> PlainFile | None:
        """Return the file at the current byte offset; ``None`` if its header is not plain."""
        if len(self.block) - self.at < BLOCK:
            self.fetch(BLOCK)
        if self.block[self.at + 156 : self.at + 157] == b"x":
            self.fetch(PAX_BLOCKS * BLOCK)
        return plain_file(self.block, self.at)

    def fetch(self, size: int) -> None:
        """Read until the block has ``size`` unconsumed bytes, or until the stream ends."""
        if len(self.block) - self.at >= size:
            return
        self._begin, self.block, self.at = self.tell(), self._rest(), 0
        while len(self.block) < size and (more := self._more(max(self._size, size) - len(self.block))):
            self.block += more
            self._size = min(2 * self._size, self._most)

    def _rest(self) -> bytes:
        """Return the unconsumed bytes of the block. For a file on disk, return no bytes, because it is cheaper to read them again."""
        if self._descriptor is None:
            return self.block[self.at :]
        self._next = self.tell()
        return b""

    def read(self, size: int) -> bytes:
        """Consume and return ``size`` bytes, or fewer at the end of the stream."""
        if self.at + size > len(self.block):
            if self._descriptor is None or size >= self._large:
                return self._unread(size)
            self.fetch(size)
        begin, self.at = self.at, min(self.at + size, len(self.block))
        return self.block[begin : self.at]

    def _unread(self, size: int) -> bytes:
        """Consume and return ``size`` bytes. Bytes that are not in the block are read directly."""
        if size >= self._large:
            self._size = LEAST
        begin, rest = self.tell(), self._rest()
        parts, missing = [rest] if rest else [], size - len(rest)
        while missing and (part := self._more(min(missing, _AT_ONCE))):
            parts.append(part)
            missing -= len(part)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self._begin, self.block, self.at = begin + len(data), b"", 0
        return data

    def read_some(self, size: int) -> bytes:
        """Consume and return the available bytes, at most ``size``. Return empty bytes only at the end of the stream."""
        if self.at == len(self.block):
            self._begin, self.block, self.at = self.tell(), self._more(size), 0
        return self.read(min(size, len(self.block) - self.at))

    def seek(self, position: int) -> None:
        """Move forward to a byte offset.

        Raises:
            tarfile.ReadError: the archive ends before this offset.
            tarfile.StreamError: the offset is before the block.
        """
        if position < self._begin:
            raise tarfile.StreamError("seeking backwards is not allowed")
        while position > self._begin + len(self.block):
            self._begin, self.block, self.at = self._begin + len(self.block), self._more(self._most), 0
            if not self.block:
                raise tarfile.ReadError("unexpected end of data")
        self.at = position - self._begin

    def _more(self, size: int) -> bytes:
        check_cancelled()
        more: bytes = self._stream.read(size) if self._descriptor is None else os.pread(self._descriptor, size, self._next)
        self._next += len(more)
        return more
