"""``snopt data``: list, download and verify data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from snopt.base.errors import unknown
from snopt.lab.cli.options import UsageError
from snopt.lab.cli.screen import print_table
from snopt.lab.data import available, fetch, verify
from snopt.lab.data import names as all_names


def data(
    action: Literal["list", "fetch", "verify"],
    names: tuple[str, ...] = (),
    /,
    *,
    root: Path | None = None,
) -> int:
    """List the data sets, download some, or verify the checksums of their files.

    Args:
        action: what to do.
        names: data sets to list, fetch or verify; default all for list and verify.
        root: folder of the data sets; default $SNOPT_DATA, or else a cache folder.

    Returns:
        The exit code; 1 if a checksum differs.
    """
    if action == "list":
        for name in names:
            if name not in all_names():
                raise unknown("data set", name, all_names())
        shown = [row for row in available(root) if row.name in (names or all_names())]
        rows = [[row.name, row.state, row.summary] for row in shown]
        print_table(["name", "on disk", "what"], rows)
        return 0
    if action == "verify":
        return _verify(names or all_names(), root)
    if not names:
        raise UsageError("say what to fetch, for example: snopt data fetch mnist")
    for name in names:
        new = fetch(name, root)
        print(f"{name}: " + (", ".join(map(str, new)) if new else "nothing to download"))
    return 0


def _verify(names: tuple[str, ...], root: Path | None) -> int:
    verdicts = {path: verdict for name in names for path, verdict in verify(name, root).items()}
    for path, verdict in verdicts.items():
        print(f"{verdict:9}  {path}")
    if not verdicts:
        print("there are no files to verify")
    if "different" not in verdicts.values():
        return 0
    print("Delete the files that are different and fetch them again: snopt data fetch NAME")
    return 1
