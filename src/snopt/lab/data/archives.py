"""Decompression with a limit on the size of the result."""

from __future__ import annotations

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from snopt.lab.data.errors import DataCorrupted, parsing

#: Bytes of the largest file that is extracted from an archive; Gas, the largest, has 0.6 GB.
LARGEST_MEMBER = 1 << 30
_BLOCK = 1 << 20


def inflate(data: bytes, limit: int, path: Path) -> bytes:
    """Decompress one gzip or zlib stream.

    Args:
        data: the compressed bytes.
        limit: bytes of the largest acceptable result.
        path: the source file, for the error message.

    Raises:
        DataCorrupted: the stream is damaged or incomplete, or its content exceeds the limit.

    Example:
        >>> inflate(gzip.compress(b"text"), 100, Path("file"))
        b'text'
    """
    stream = zlib.decompressobj(zlib.MAX_WBITS | 32)  # 32 accepts both headers
    with parsing(path, "compressed data"):
        content = stream.decompress(data, limit + 1)
    if len(content) > limit:
        raise DataCorrupted(path, f"it decompresses to more than {limit} bytes")
    if not stream.eof:
        raise DataCorrupted(path, "its compressed data is incomplete")
    return content


def extract(archive: Path, member: str, folder: Path) -> Path:
    """Extract one file from a ``.zip`` or ``.tar.gz`` archive.

    The file is written to ``folder`` under its own name, so no path or link in the archive leads
    elsewhere. (pooch's processors need the whole path in the archive, and write to it.)

    Args:
        archive: the archive.
        member: last part or parts of the file's path in it, for example ``"miniboone/data.npy"``.
        folder: folder of the extracted file; created if it does not exist.

    Returns:
        the file's new path.

    Raises:
        DataCorrupted: the archive is damaged, has no such regular file, or the file is larger
            than `LARGEST_MEMBER`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / PurePosixPath(member).name
    try:
        with (
            parsing(archive, "a .zip or .tar.gz archive"),
            _open_member(archive, member) as source,
            target.open("wb") as sink,
        ):
            while block := source.read(_BLOCK):
                sink.write(block)
                if sink.tell() > LARGEST_MEMBER:
                    raise DataCorrupted(
                        archive, f"{member} in it is larger than {LARGEST_MEMBER} bytes"
                    )
    except DataCorrupted:
        target.unlink(missing_ok=True)
        raise
    return target


@contextmanager
def _open_member(archive: Path, member: str) -> Iterator[IO[bytes]]:
    """Open the first regular file in the archive whose path ends in ``member``."""
    wanted = PurePosixPath(member).parts

    def matches(path: str) -> bool:
        return PurePosixPath(path).parts[-len(wanted) :] == wanted

    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as files:
            found = next((info for info in files.infolist() if matches(info.filename)), None)
            # The header of an LZMA stream can request gigabytes of memory.
            if found and found.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise DataCorrupted(archive, f"unsupported compression of {member}")
            if found:
                with files.open(found) as stream:
                    yield stream
                    return
    else:
        with _Gzip(archive) as raw, tarfile.open(fileobj=raw, mode="r:") as tape:
            entry = next((info for info in tape if info.isfile() and matches(info.name)), None)
            content = entry and tape.extractfile(entry)
            if content:
                with content as stream:
                    yield stream
                    return
    raise DataCorrupted(archive, f"there is no file {member} in it")


class _Gzip(gzip.GzipFile):
    """A gzip file that refuses large reads: tarfile reads member names of any size at once."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= _BLOCK:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return super().read(size)
