"""Finished records as one small file, so that another machine can continue where this one stopped.

A record is its folder without checkpoints and without most of its steps. Stamps are kept, so a
record that other code made is stale after it was restored, too.
"""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path, PurePosixPath

from snopt.lab.paper.item import Space
from snopt.lab.paper.jobs import BEST, FAILED, MEASURED, STALE, STAMP
from snopt.lab.report.read import read_run
from snopt.lab.report.records import evenly
from snopt.lab.train.folder import FolderLock

__all__ = ["restore", "save"]

METRICS = "metrics.jsonl"
FILES = ("config.json", "environment.json", METRICS, BEST, FAILED, MEASURED, STAMP)
"""What is kept of a record. The stamp is last: a record without one is made again."""
STEPS = 100
"""Steps of a training that are kept."""


def save(space: Space, path: Path) -> int:
    """Write finished trainings and measurements to an archive; return the number of records."""
    stamps = (space.root / space.scale).glob(f"**/{STAMP}")
    folders = sorted(file.parent for file in stamps if _finished(file.parent))
    part = path.with_name(path.name + ".part")
    with tarfile.open(part, "w:xz") as archive:
        for file in (folder / name for folder in folders for name in FILES):
            if file.exists():
                text = file.read_text("utf-8")
                content = (thinned(text) if file.name == METRICS else text).encode()
                info = tarfile.TarInfo(file.relative_to(space.root).as_posix())
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    part.replace(path)
    return len(folders)


def _finished(folder: Path) -> bool:
    if folder.name == STALE:
        return False
    if any((folder / name).exists() for name in (FAILED, MEASURED)):
        return True
    return read_run(folder).state not in ("no records", "unfinished", "interrupted")


def thinned(text: str, most: int = STEPS) -> str:
    r"""Leave out steps of a training's record, except evenly spaced ones and those evaluated.

    Example:
        >>> steps = [f'{{"kind": "step", "iteration": {i}}}' for i in range(5)]
        >>> evaluated = '{"kind": "eval", "iteration": 1}'
        >>> kept = thinned("\n".join([*steps, evaluated]), 3).splitlines()
        >>> [json.loads(line)["iteration"] for line in kept if "step" in line]
        [0, 1, 2, 4]
    """
    records = [(line, json.loads(line)) for line in text.splitlines()]
    steps = [r["iteration"] for _, r in records if r["kind"] == "step"]
    kept = {steps[place] for place in evenly(len(steps), most)}
    kept |= {r["iteration"] for _, r in records if r["kind"] == "eval"}
    lines = [line for line, r in records if r["kind"] != "step" or r["iteration"] in kept]
    return "".join(f"{line}\n" for line in lines)


def restore(space: Space, path: Path) -> int:
    """Put the records of an archive where no record is yet; return their number.

    Raises:
        ValueError: the archive holds something else than records.
    """
    found: dict[Path, dict[str, bytes]] = {}
    with tarfile.open(path, "r:xz") as archive:
        for member in archive:
            file = PurePosixPath(member.name)
            stream = archive.extractfile(member)
            inside = not file.is_absolute() and ".." not in file.parts
            if stream is None or not inside or file.name not in FILES:
                raise ValueError(f"{path} contains {file}, which is not part of a record.")
            found.setdefault(space.root / file.parent, {})[file.name] = stream.read()
    new = [folder for folder in found if not (folder / STAMP).exists()]
    for folder in new:
        folder.mkdir(parents=True, exist_ok=True)
        with FolderLock(folder):
            for name in sorted(found[folder], key=FILES.index):
                (folder / name).write_bytes(found[folder][name])
    return len(new)
