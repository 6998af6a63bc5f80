"""``python -m snopt.lab.paper.worker ORDER``: one process of a shared queue."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from snopt.lab.paper.item import Space
from snopt.lab.paper.items import ITEMS
from snopt.lab.paper.queue import Orphaned, work

if __name__ == "__main__":
    order = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    space = Space(Path(order["root"]), order["scale"], tuple(order["tasks"]))
    orphaned = Orphaned()
    items = [ITEMS[name] for name in order["items"]]

    def tell(label: str) -> None:
        """Say which job is begun."""
        orphaned.on_record({})  # between jobs, which need not be trainings
        # One call: a line of one process does not cut that of another in two.
        sys.stdout.write(f"--- {label}\n")
        sys.stdout.flush()

    try:
        work(items, space, watch=lambda folder: [orphaned], tell=tell)
    except KeyboardInterrupt:
        sys.exit(130)
