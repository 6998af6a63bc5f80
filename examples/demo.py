"""Where second order pays: SNOpt against tuned rivals for two minutes, and a page of it.

A normalizing flow learns two moons; an ODE-RNN tells four kinds of spirals apart. Every run has
the same weights, batches and seconds on one core. SNOpt has its default settings, the others the
best of three to five rates by validation with one other seed. SOAP needs pytorch_optimizer.
"""

import json
import shutil
from pathlib import Path

import torch
from rich.live import Live
from rich.table import Table

import snopt
from snopt.lab.optimizers import find
from snopt.lab.recipes import compare, load, recipe, schedule, with_settings
from snopt.lab.report import write_report

TASKS = {
    "two_moons": ("model.kind=density", "model.layers=3", "data.valid_examples=1000"),
    "spirals": ("model.width=32",),
}
RATES = {  # SNOpt's is its default
    "two_moons": {"snopt": 0.02, "adam": 0.02, "sgd": 0.1, "soap": 0.02},
    "spirals": {"snopt": 0.02, "adam": 0.005, "sgd": 0.1, "soap": 0.02},
}


class Board:  # a live table; it listens to one run after the other
    def __init__(self, live):
        self.live, self.rows = live, {}
        self.on_start = self.on_end = lambda *_: None

    def watch(self, run):
        self.label, self.metric, self.task = run.label, run.config.metric, run.config.task
        return [self]

    def on_record(self, record):
        if record["kind"] == "eval" and record["split"] == "valid":
            numbers = record["iteration"], record["seconds"], record["metrics"][self.metric]
            self.rows[self.label] = [self.label, *(f"{number:.4g}" for number in numbers)]
            shown = Table("optimizer", "updates", "seconds", self.metric, title=f"\n{self.task}")
            for row in self.rows.values():
                shown.add_row(*row)
            self.live.update(shown)


@torch.no_grad()
def film(folder):  # samples on their way from the normal density to the data
    block = load(folder).model.blocks[0]
    z = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
    paths = snopt.odeint(block.field, z, torch.linspace(block.horizon, 0.0, 40)).transpose(0, 1)
    content = {"kind": "paths", "title": "samples: from noise to the data", "paths": paths.tolist()}
    (folder / "pictures" / "a-film.json").write_text(json.dumps(content), "utf-8")


def train(task, seconds, seeds, out):
    common = (*TASKS[task], "train.iterations=1000000", f"train.max_seconds={seconds}")
    rates = [(name, f"lr={lr}") for name, lr in RATES[task].items() if find(name).installed]
    configs = [with_settings(recipe(task, name), (*common, lr)) for name, lr in rates]
    with Live() as live:
        return compare(schedule(configs, seeds, out), watch=Board(live).watch)


def main(seconds=12.0, seeds=1, out=Path("out/demo")):
    torch.set_num_threads(1)  # tensors this small are faster on one core than shared by two
    shutil.rmtree(out, ignore_errors=True)
    for run, _ in train("two_moons", seconds, seeds, out):
        film(run.folder)
    train("spirals", seconds, seeds, out)
    page = write_report([out], out / "report.html", title="SNOpt against tuned rivals")
    print(f"\nopen {page.resolve()}")
    return page


if __name__ == "__main__":
    main()
