"""``snopt data``: which data sets there are, and how to get them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from snopt.lab.cli.options import UsageError
from snopt.lab.cli.screen import print_table
from snopt.lab.data import available, fetch

__all__ = ["data"]


def data(
    action: Literal["list", "fetch"],
    names: tuple[str, ...] = (),
    /,
    *,
    root: Path | None = None,
) -> int:
    """List the data sets, or download some.

    Args:
        action: what to do.
        names: data sets to fetch.
        root: folder of the data sets; default $SNOPT_DATA, or else a cache folder.

    Returns:
        The exit code.
    """
    if action == "list":
        rows = [[row.name, row.state, row.kind, row.summary] for row in available(root)]
        print_table(["name", "on disk", "kind", "what"], rows)
        return 0
    if not names:
        raise UsageError("say what to fetch, for example: snopt data fetch mnist")
    for name in names:
        new = fetch(name, root)
        print(f"{name}: " + (", ".join(map(str, new)) if new else "everything is there"))
    return 0
