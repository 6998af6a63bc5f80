"""Where second order pays: SNOpt against tuned rivals for two minutes, and a page of it.

Normalizing flows learn two moons and rings. All runs of a task have the same weights, batches and
seconds on one core: SNOpt with its default settings, the others at the best of three to five rates.
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

FLOW = ("model.layers=3", "solver.rtol=0.001", "solver.atol=0.001", "data.valid_examples=1000")
TASKS = {
    "two_moons": ("model.kind=density", *FLOW),
    "circle": ("model.hypernetwork=false", "model.base_variance=1", "solver.horizon=1", *FLOW),
}
RATES = {"snopt": (0.02, 0.02), "adam": (0.02, 0.04), "sgd": (0.1, 0.1), "soap": (0.02, 0.01)}


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
            self.rows[self.label] = [f"{number:.4g}" for number in numbers]
            shown = Table("optimizer", "updates", "seconds", self.metric, title=f"\n{self.task}")
            for label, row in self.rows.items():
                shown.add_row(label, *row)
            self.live.update(shown)


@torch.no_grad()
def film(folder):  # samples and density on their way from the normal distribution to the data
    block, side = load(folder).model.blocks[0], torch.linspace(-3.2, 3.2, 32)
    times, frames = torch.linspace(0.99 * block.horizon, 0.0, 17), []
    z = torch.randn(300, 2, generator=torch.manual_seed(0))
    paths = snopt.odeint(block.field, z, times, rtol=1e-3, atol=1e-3).transpose(0, 1).tolist()
    state = torch.cartesian_prod(side, side).flip(1), (torch.zeros(32 * 32),)
    for t in times.tolist():  # from t to the end, where the density is normal
        end, (change,) = snopt.NeuralODE(block.field, block.horizon, t0=t)(state)
        frames.append((change - end.square().sum(1) / 2).exp().reshape(32, 32).tolist())
    density = {"extent": 2 * [-3.2, 3.2], "frames": frames}
    content = {"kind": "paths", "title": "noise to data", "paths": paths, "density": density}
    (folder / "pictures" / "a-film.json").write_text(json.dumps(content))


def main(seconds=10.0, seeds=1, out=Path("out/demo")):
    torch.set_num_threads(1)  # tensors this small are faster on one core than shared by two
    shutil.rmtree(out, ignore_errors=True)
    for k, (task, settings) in enumerate(TASKS.items()):
        common = (*settings, "train.iterations=1000000", f"train.max_seconds={seconds}")
        tuned = [(name, f"lr={lr[k]}") for name, lr in RATES.items() if find(name).installed]
        configs = [with_settings(recipe(task, name), (*common, lr)) for name, lr in tuned]
        with Live() as live:
            runs = compare(schedule(configs, seeds, out), watch=Board(live).watch)
        for run, _ in runs:
            film(run.folder)
    page = write_report(map(out.joinpath, TASKS), out / "report.html", title="SNOpt and rivals")
    print(f"\nopen {page.resolve()}")
    return page


if __name__ == "__main__":
    main()
