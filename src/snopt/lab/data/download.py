"""Download files from their public sources.

A file appears in the folder of data sets only after the download is complete and its checksum, or
that of its archive, is verified. If anything fails, nothing is left behind.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from snopt.lab.data.archives import extract
from snopt.lab.data.errors import DataCorrupted, DownloadFailed
from snopt.lab.data.sources import File, Origin

__all__ = ["default_root", "download"]


def default_root() -> Path:
    """Return the folder of data sets: ``$SNOPT_DATA``, or else the user's cache folder.

    Raises:
        ImportError: The variable is not set, and pooch is not installed.
    """
    named = os.environ.get("SNOPT_DATA")
    return Path(named).expanduser() if named else Path(_pooch().os_cache("snopt"))


def download(files: Iterable[File], root: Path, *, progress: bool = True) -> list[Path]:
    """Download files and put each in its place under ``root``.

    Args:
        files: what to get; all must have an origin.
        root: the folder of data sets; made if it does not exist.
        progress: show a bar for each download on standard error.

    Returns:
        The new files.

    Raises:
        DownloadFailed: A source cannot be reached, or returns another file.
    """
    by_origin: dict[Origin, list[File]] = {}
    for file in files:
        if file.origin is None:
            raise ValueError(f"{file.path} has no public address to download it from")
        by_origin.setdefault(file.origin, []).append(file)
    placed = []
    for origin, wanted in by_origin.items():
        with _scratch(root) as scratch:
            arrived = _retrieve(origin, scratch, progress)
            ready = [(_unpack(arrived, file, origin, scratch), root / file.path) for file in wanted]
            for source, target in ready:
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(source, target)
                placed.append(target)
    return placed


@contextmanager
def _scratch(root: Path) -> Iterator[Path]:
    """Make a temporary folder beside the data, so that files can be moved into place atomically."""
    root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".download-", dir=root))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _retrieve(origin: Origin, folder: Path, progress: bool) -> Path:
    """Download from the address, and verify the checksum if it is known."""
    pooch = _pooch()
    name = PurePosixPath(origin.url).name
    log = pooch.get_logger()
    level = log.level
    log.setLevel("ERROR")  # silences a line about every download
    try:
        arrived = pooch.retrieve(
            origin.url,
            known_hash=origin.checksum,
            fname=name,
            path=folder,
            downloader=pooch.HTTPDownloader(progressbar=progress, timeout=60),
        )
    except ValueError as error:  # pooch's, for a checksum that differs
        raise DownloadFailed(
            f"{origin.url} returned another file than expected: {error} Nothing was kept; try "
            "again, or get the file elsewhere."
        ) from error
    except OSError as error:  # requests' exceptions are among them
        raise DownloadFailed(
            f"could not download {origin.url}: {error}. Nothing was kept. Without a connection, "
            f"put the files in {folder.parent} by hand (docs/data.md says which)."
        ) from error
    finally:
        log.setLevel(level)
    return Path(arrived)


def _unpack(arrived: Path, file: File, origin: Origin, scratch: Path) -> Path:
    """Extract the file from its archive, if there is one, and verify it."""
    path = arrived
    if file.member is not None:
        try:
            path = extract(arrived, file.member, scratch / "members")
        except DataCorrupted as error:
            raise DownloadFailed(
                f"the file from {origin.url} cannot be used: {error.reason}. Nothing was kept."
            ) from error
    if file.checksum is not None:
        algorithm, _, wanted = file.checksum.partition(":")
        if (found := _pooch().file_hash(str(path), algorithm)) != wanted:
            raise DownloadFailed(
                f"{file.path}, from {origin.url}, has {algorithm} {found}, not {wanted}. "
                "Nothing was kept."
            )
    elif not file.verified:
        warnings.warn(
            f"no checksum is known for {file.path}, from {origin.url}; the downloaded file has "
            f"sha256 {_pooch().file_hash(str(path))}",
            stacklevel=2,
        )
    return path


def _pooch() -> Any:
    try:
        import pooch
    except ImportError as error:
        raise ImportError(
            "downloads and the default cache folder need pooch: pip install 'snopt[lab]', or "
            "name the folder of your data sets in SNOPT_DATA"
        ) from error
    return pooch
