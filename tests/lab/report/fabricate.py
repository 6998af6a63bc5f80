"""Run folders made by hand, for reports to read."""

import json
import math
from pathlib import Path
from typing import Any


def lines_of(
    *, rate: float = 0.1, per_iteration: float = 0.5, iterations: int = 40, horizon: bool = False
) -> list[dict[str, Any]]:
    """The records of a training whose accuracy is 1 - exp(-rate * iteration)."""
    lines: list[dict[str, Any]] = [{"kind": "start", "time": "now", "resumed_from": None}]
    for i in range(iterations + 1):
        seconds, error = per_iteration * i, math.exp(-rate * i)
        if i:
            step = {"kind": "step", "iteration": i, "epoch": 0, "seconds": seconds, "loss": error}
            step |= {"lr": 0.1, "nfe_forward": 14, "nfe_backward": 12, "memory_mb": 100.0 + i}
            lines.append(step | ({"horizon": [1.0 - i / 100]} if horizon else {}))
        if i % 5 == 0:
            place = {"kind": "eval", "iteration": i, "seconds": seconds, "split": "valid"}
            lines.append(place | {"metrics": {"loss": error, "accuracy": 1 - error}})
    final = {"test": {"loss": error, "accuracy": 0.99 - error}}
    end = {"kind": "end", "status": "finished", "iteration": iterations, "seconds": seconds}
    return [*lines, end | {"final": final}]


def write_run(
    root: Path,
    optimizer: str = "adam",
    seed: int = 0,
    *,
    task: str = "spirals",
    lines: list[dict[str, Any]] | None = None,
    pictures: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    **training: Any,
) -> Path:
    """Write a whole run folder and return it."""
    folder = root / task / f"{optimizer}-seed{seed}"
    folder.mkdir(parents=True)
    settings = {"task": task, "optimizer": optimizer, "seed": seed, "metric": "accuracy"}
    settings |= {"mode": "max", "train": {"seed": seed, "until": None}, "run": f"{folder}"}
    settings |= config or {}
    (folder / "config.json").write_text(json.dumps(settings), "utf-8")
    command = ["snopt", "train", task, "--optimizer", optimizer]
    (folder / "environment.json").write_text(json.dumps({"command": command}), "utf-8")
    text = "".join(json.dumps(line) + "\n" for line in lines or lines_of(**training))
    (folder / "metrics.jsonl").write_text(text, "utf-8")
    for name, content in (pictures or {}).items():
        (folder / "pictures").mkdir(exist_ok=True)
        (folder / "pictures" / f"{name}.json").write_text(json.dumps(content), "utf-8")
    return folder


PICTURES: dict[str, Any] = {
    "density": {
        "kind": "grid", "title": "density", "extent": [-1, 1, -1, 1],
        "values": [[math.exp(-(x * x + y * y) / 50) for x in range(-9, 10)] for y in range(-9, 10)],
    },
    "flow": {
        "kind": "paths", "title": "x(t)", "classes": [0, 1],
        "paths": [[[t / 9, t * t / 81] for t in range(10)], [[-t / 9, t / 9] for t in range(10)]],
    },
    "moving": {
        "kind": "paths", "title": "p(t)", "paths": [[[-0.5, 0], [0.5, 0]]],
        "density": {"extent": [-1, 1, -1, 1], "frames": [[[1, 0], [1, 0]], [[0, 1], [0, 1]]]},
    },
    "points": {"kind": "points", "title": "x(1)", "points": [[0, 0], [1, 2]], "classes": [0, 1]},
}  # fmt: skip


def write_comparison(root: Path) -> Path:
    """SNOpt, Adam and SGD with two seeds each, and one run of SGD cut off."""
    for seed in range(2):
        rates = {"snopt": 0.3, "adam": 0.15, "sgd": 0.05}
        for name, rate in rates.items():
            snopt = name == "snopt"
            write_run(
                root, name, seed, rate=rate * (1 + seed / 5), per_iteration=0.6 if snopt else 0.5,
                horizon=snopt, pictures=PICTURES if seed == 0 else None,
            )  # fmt: skip
    cut = root / "spirals" / "sgd-seed1" / "metrics.jsonl"
    cut.write_text(cut.read_text("utf-8")[:3000], "utf-8")
    return root
