"""One of several processes: ``torchrun ... parallel_run.py FOLDER``. Tells what it saw as JSON."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

sys.path.insert(0, str(Path(__file__).parents[3]))
from snopt.lab.train import RunFolderError, World, join, train
from tests.lab.train.problems import CONFIG, Moons, interrupt_at, make_parts

SOLVER = {"method": "rk4", "options": {"step_size": 0.25}, "dropout": 0.0}


def count_factors(sent: dict[str, int]) -> None:
    """Count what the optimizer hands to the collectives, from outside."""

    def counting(call):
        def counted(tensor, *args, **kwargs):
            frame = sys._getframe(1)
            if frame.f_globals["__name__"] == "snopt.optim.parallel":
                sent["bytes"] += tensor.numel() * tensor.element_size()
            return call(tensor, *args, **kwargs)

        return counted

    distributed.all_reduce = counting(distributed.all_reduce)
    distributed.broadcast = counting(distributed.broadcast)


def everywhere_same(world: World, model: nn.Module) -> bool:
    everyone = world.gather([p.detach() for p in model.parameters()])
    return all(torch.equal(a, b) for a, b in zip(*everyone, strict=True))


def stop_and_resume(world: World, folder: Path) -> dict[str, Any]:
    """Train, stop in the first process, refuse to start again, resume."""
    sent = {"bytes": 0}
    count_factors(sent)
    stop = [interrupt_at(6)] if world.first else []
    first = train(Moons(), make_parts("snopt", **SOLVER), CONFIG, folder, listeners=stop)
    refused = "nobody"
    try:
        train(Moons(), make_parts("snopt", **SOLVER), CONFIG, folder)
    except RunFolderError:
        refused = "everyone" if all(world.gather(True)) else "somebody"
    parts = make_parts("snopt", **SOLVER)
    second = train(Moons(), parts, CONFIG, folder, resume=True)
    return {
        "statuses": [first.status, second.status],
        "refused": refused,
        "same": everywhere_same(world, parts.model),
        "factor bytes": sent["bytes"],
    }


def bad_example(world: World, folder: Path) -> dict[str, Any]:
    """An example that only one of the processes has is NaN."""
    task, parts = Moons(), make_parts("adam", **SOLVER)
    task.train.x[3] = float("nan")
    outcome = train(task, parts, CONFIG, folder)
    return {"status": outcome.status, "same": everywhere_same(world, parts.model)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    with join("cpu") as world:
        root = Path(sys.argv[1])
        found = stop_and_resume(world, root / "together"), bad_example(world, root / "bad")
        if world.first:
            (root / "found.json").write_text(json.dumps(found))
