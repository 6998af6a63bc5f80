"""``snopt paper``: reproduce the paper's tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from snopt.lab.cli.options import RunOptions, UsageError
from snopt.lab.cli.screen import print_table
from snopt.lab.config import Scale, TaskName
from snopt.lab.paper import ITEMS, Item, Space, find, run_item, share, state
from snopt.lab.paper.archive import restore, save
from snopt.lab.paper.page import write_page
from snopt.lab.paper.queue import left_text
from snopt.lab.paper.renewal import renew
from snopt.lab.recipes.run import Run
from snopt.lab.train import Listener


def paper(
    items: tuple[str, ...],
    /,
    *,
    scale: Scale = "cpu",
    tasks: tuple[TaskName, ...] = (),
    out: Path = Path("out/paper"),
    page: Path = Path("results.md"),
    records: Path = Path("records.tar.xz"),
    workers: int = 1,
    quiet: bool = False,
) -> int:
    """Reproduce tables and figures of the paper, beside its published values.

    Run the same command again to continue. Finished work is kept, unless the code or the settings
    that produced it have changed. Several processes can share the work.

    Args:
        items: ids or labels, for example accu or table:accu; `list` shows all with their state,
            `all` runs all, `page` writes one page with all results so far; `save` packs finished
            records into one file, and `restore` unpacks them, to continue on another machine;
            `renew` keeps records of other code if this code reproduces their first losses.
        scale: full: the paper's set-up, for a GPU; cpu: smaller, hours on two cores; smoke:
            seconds.
        tasks: use these data sets only.
        out: folder of records and results.
        page: the file that `page` writes; its data and figures go to a folder beside it.
        records: the file of `save` and `restore`.
        workers: number of processes that share the work, each with one thread.
        quiet: show no progress.

    Returns:
        The exit code.
    """
    space, every = Space(out, scale, tasks), Space(out, scale)
    match items:
        case ():
            raise UsageError("say which item: snopt paper ID, or snopt paper list")
        case ("list",):
            rows = [[i.id, i.origin, i.title, state(i, space)] for i in ITEMS.values()]
            print_table(["id", "in the paper", "what it shows", f"state at {scale}"], rows)
        case ("page",):
            print(write_page(every, page).resolve())
        case ("renew",):
            print(f"{renew(space, tell=print)} records renewed")
        case ("save",):
            print(f"{save(every, records)} records saved to {records}")
        case ("restore",):
            print(f"{restore(every, records)} records restored from {records}")
        case ("all",):
            _run(list(ITEMS.values()), space, workers, quiet)
        case _:
            _run([find(name) for name in items], space, workers, quiet)
    return 0


def _run(wanted: Sequence[Item], space: Space, workers: int, quiet: bool) -> None:
    """Do the jobs of items that are left, and print their tables."""

    def watch(run: Run) -> list[Listener]:
        return RunOptions(quiet=quiet).listeners(run.folder)

    tell = (lambda text: None) if quiet else (lambda text: print(text, flush=True))
    if workers > 1:
        share(wanted, space, workers, tell=tell)
    for item in wanted:
        tell(f"=== {item.title} ({item.origin}): {left_text([item], space)}")
        result = run_item(item, space, watch=watch, tell=lambda label: tell(f"--- {label}"))
        for table in result.tables:
            print(table.caption)
            print_table(table.columns, table.texts())
        print(space.output(item.id).resolve())
