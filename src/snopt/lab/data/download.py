"""Download files from their public sources.

A file appears in the data folder only after its download is complete and its checksum, or that of
its archive, is verified. A failed download leaves nothing behind; files left by a killed process
are removed by the next download.
"""

from __future__ import annotations

import os
import shutil
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from snopt.lab.data.archives import extract
from snopt.lab.data.errors import DataCorrupted, DownloadFailed
from snopt.lab.data.sources import File, Origin, read_checksums

#: Where the SHA-256 of every downloaded file is recorded, as ``sha256sum`` writes and reads it.
CHECKSUMS = "SHA256SUMS"
#: Bytes of the largest download; the archive of MINIBOONE, the largest, has 0.86 GB.
LARGEST_DOWNLOAD = 1 << 31
#: A download fails if fewer than this many bytes per second arrive for ``PATIENCE`` seconds.
SLOWEST, PATIENCE = 1024, 60.0


def default_root() -> Path:
    """Return the folder of data sets: ``$SNOPT_DATA``, or else the user's cache folder.

    Raises:
        ImportError: the variable is not set and pooch is not installed.
    """
    named = os.environ.get("SNOPT_DATA")
    return Path(named).expanduser() if named else Path(_pooch().os_cache("snopt"))


def download(files: Iterable[File], root: Path, *, progress: bool = True) -> list[Path]:
    """Download files and move each to its path under ``root``.

    Args:
        files: the files to download; all must have an origin.
        root: the folder of data sets; created if it does not exist.
        progress: show a bar for each download on standard error.

    Returns:
        the new files.

    Raises:
        DownloadFailed: a source cannot be reached, is too slow, or returns an unexpected file.
    """
    _pooch()  # fail before anything is downloaded
    by_origin: dict[Origin, list[File]] = {}
    for file in files:
        if file.origin is None:
            raise ValueError(f"{file.path} has no public address to download it from")
        by_origin.setdefault(file.origin, []).append(file)
    placed: list[Path] = []
    for origin, wanted in by_origin.items():
        with _work_folder(root) as work:
            arrived = work / "arrived"
            _retrieve(origin, arrived, progress)
            ready = {root / file.path: _unpack(arrived, file, origin) for file in wanted}
            for target, source in ready.items():
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(source, target)
            placed += ready
    return placed


@contextmanager
def _work_folder(root: Path) -> Iterator[Path]:
    """Yield an empty folder beside the data, from which files can be moved into place atomically.

    A lock allows one process at a time. It ends with its process, so the next process deletes the
    files of a killed one.
    """
    from filelock import FileLock

    hidden = root / ".download"
    work = hidden / "work"
    hidden.mkdir(parents=True, exist_ok=True)
    with FileLock(hidden / "lock"):
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _retrieve(origin: Origin, target: Path, progress: bool) -> None:
    """Download from the address, and verify the checksum if it is known."""
    from urllib3.exceptions import HTTPError

    try:
        _get(origin.url, target, progress)
    except (OSError, HTTPError) as error:  # requests' exceptions are OSErrors
        raise DownloadFailed(
            f"could not download {origin.url}: {error}. Nothing was kept. Without a connection, "
            "copy the files to the data folder (see docs/models.md)."
        ) from error
    _verify(target, origin.checksum, origin.url)


def _get(url: str, target: Path, progress: bool) -> None:
    """Download with limits on rate and size, which pooch does not have."""
    import requests
    from tqdm import tqdm

    identity = {"Accept-Encoding": "identity"}  # lengths are then those of the file
    with (
        requests.get(url, stream=True, timeout=PATIENCE, headers=identity) as response,
        target.open("wb") as sink,
    ):
        response.raise_for_status()
        length = int(response.headers.get("Content-Length", 0))
        with tqdm(total=length or None, unit="B", unit_scale=True, disable=not progress) as bar:
            since, received = time.monotonic(), 0
            # read1 returns what has arrived; read and iter_content wait for a full block.
            while block := response.raw.read1(1 << 16):
                sink.write(block)
                bar.update(len(block))
                received += len(block)
                if sink.tell() > LARGEST_DOWNLOAD:
                    raise OSError(f"it is larger than {LARGEST_DOWNLOAD} bytes")
                if (elapsed := time.monotonic() - since) > PATIENCE:
                    if received < SLOWEST * elapsed:
                        raise OSError(f"only {received} bytes in {elapsed:.0f} seconds")
                    since, received = time.monotonic(), 0
            if length and sink.tell() != length:
                raise OSError(f"{sink.tell()} bytes of {length}")


def _unpack(arrived: Path, file: File, origin: Origin) -> Path:
    """Extract the file from its archive, if there is one, and verify it."""
    path = arrived
    if file.member is not None:
        try:
            path = extract(arrived, file.member, arrived.with_name("members"))
        except DataCorrupted as error:
            raise DownloadFailed(
                f"the file from {origin.url} cannot be used: {error.reason}. Nothing was kept."
            ) from error
    _verify(path, file.checksum, f"{file.path} from {origin.url}")
    if not file.verified:
        warnings.warn(
            f"no checksum is known for {file.path}, from {origin.url}; the downloaded file has "
            f"sha256 {_pooch().file_hash(str(path))}",
            stacklevel=2,
        )
    return path


# ----------------------------------------------------------------------------- checksums


def _verify(path: Path, checksum: str | None, what: str) -> None:
    if checksum and not matches(path, checksum):
        raise DownloadFailed(
            f"{what} is not the expected file: its checksum is not {checksum}. Nothing was kept; "
            "try again, or get the file elsewhere."
        )


def matches(path: Path, checksum: str) -> bool:
    """Return whether a file has this checksum (see `snopt.lab.data.sources.Origin`)."""
    algorithm, _, digits = checksum.rpartition(":")
    return bool(_pooch().file_hash(str(path), algorithm or "sha256") == digits)


def record_checksums(paths: Iterable[Path], root: Path) -> None:
    """Record the SHA-256 of files under ``root``."""
    new = {p.relative_to(root).as_posix(): _pooch().file_hash(str(p)) for p in paths}
    with _work_folder(root) as work:
        checksums = read_checksums(root / CHECKSUMS) | new
        lines = [f"{checksum}  {name}\n" for name, checksum in sorted(checksums.items())]
        (work / CHECKSUMS).write_text("".join(lines), "utf-8")
        os.replace(work / CHECKSUMS, root / CHECKSUMS)


def _pooch() -> Any:
    try:
        import pooch
    except ImportError as error:
        raise ImportError(
            "downloads and the default cache folder need pooch: pip install 'snopt[lab]', or "
            "name the folder of your data sets in SNOPT_DATA"
        ) from error
    return pooch
