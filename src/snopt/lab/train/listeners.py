"""Listeners: progress on the terminal; CSV, TensorBoard, Weights & Biases, MLflow."""

from __future__ import annotations

import csv
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TextIO

from snopt.base.errors import unknown
from snopt.lab.train.task import Listener, Outcome, TrainConfig


def progress(style: Literal["auto", "rich", "plain", "quiet"] = "auto") -> list[Listener]:
    """Return listeners that show progress.

    Args:
        style: ``"rich"`` for a bar, ``"plain"`` for lines, ``"quiet"`` for none; ``"auto"`` is a
            bar on a terminal if rich is installed, else lines.

    Example:
        >>> progress("quiet")
        []
    """
    if style == "auto":
        style = "rich" if sys.stderr.isatty() and find_spec("rich") else "plain"
    shown: dict[str, list[Any]] = {"rich": [RichProgress], "plain": [PlainProgress], "quiet": []}
    if style not in shown:
        raise unknown("progress style", style, ["auto", *shown])
    return [make() for make in shown[style]]


def _number(value: Any) -> str:
    """Format a number; None, which stands for a non-finite number in records, becomes nan.

    Example:
        >>> _number(0.123456), _number(None)
        ('0.1235', 'nan')
    """
    return "nan" if value is None else f"{value:.4g}"


def describe_step(record: Mapping[str, Any]) -> str:
    """Return loss and NFE of a step in one line.

    Example:
        >>> describe_step({"loss": 0.5, "nfe_forward": 14, "nfe_backward": 12})
        'loss 0.5  NFE 14+12'
    """
    text = f"loss {_number(record['loss'])}"
    if record["nfe_forward"]:
        text += f"  NFE {record['nfe_forward']}+{record['nfe_backward']}"
    return text + ("  (skipped)" if "skipped" in record else "")


def describe_metrics(record: Mapping[str, Any]) -> str:
    """Return the metrics of an evaluation in one line.

    Example:
        >>> describe_metrics({"split": "valid", "metrics": {"loss": 0.5, "accuracy": 0.9}})
        'valid loss 0.5  accuracy 0.9'
    """
    metrics = record["metrics"].items()
    return f"{record['split']} " + "  ".join(f"{name} {_number(x)}" for name, x in metrics)


class PlainProgress:
    """Print a line for every evaluation, and one every few seconds in between.

    Args:
        stream: where to print; default standard error.
        every: seconds between lines about steps.
    """

    def __init__(self, stream: TextIO | None = None, every: float = 10.0) -> None:
        self.stream, self.every = stream, every
        self.total: int | None = None
        self._last = time.monotonic()

    def _say(self, text: str) -> None:
        print(text, file=self.stream or sys.stderr, flush=True)

    def on_start(self, total: int | None, config: TrainConfig) -> None:
        """Store the number of iterations."""
        self.total = total

    def on_record(self, record: Mapping[str, Any]) -> None:
        """Print a line, if one is due."""
        kind = record["kind"]
        if kind == "start" and record["resumed_from"] is not None:
            self._say(f"resumed from iteration {record['resumed_from']}")
        if kind == "eval":
            self._say(f"{self._place(record)}  {describe_metrics(record)}")
        if kind == "step" and time.monotonic() - self._last > self.every:
            self._last = time.monotonic()
            self._say(f"{self._place(record)}  {describe_step(record)}")

    def _place(self, record: Mapping[str, Any]) -> str:
        of = f"/{self.total}" if self.total else ""
        return f"{record['iteration']:>7}{of}  {record['seconds']:8.1f} s"

    def on_end(self, outcome: Outcome | None) -> None:
        """Print how the run ended."""
        self._say(outcome.message if outcome else "the run failed")


class RichProgress:
    """Show a bar with remaining time, loss, NFE and metrics; needs ``rich``."""

    def __init__(self) -> None:
        try:
            from rich import progress as bars
            from rich.console import Console
            from rich.table import Column
        except ImportError as error:
            raise ImportError(
                "a progress bar needs rich: pip install 'snopt[lab]', or choose plain progress"
            ) from error
        self._bars = bars.Progress(
            # Fits into 80 columns; a narrower terminal cuts the last column first.
            bars.BarColumn(bar_width=12),
            bars.MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=9)),
            bars.TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True, min_width=5)),
            bars.TextColumn("{task.fields[step]}  {task.fields[metric]}"),
            console=Console(stderr=True),
            # Drawing takes time from the training.
            refresh_per_second=4,
        )

    def on_start(self, total: int | None, config: TrainConfig) -> None:
        """Show the empty bar."""
        self._task = self._bars.add_task("", total=total, step="", metric="")
        self._bars.start()

    def on_record(self, record: Mapping[str, Any]) -> None:
        """Update the bar."""
        if record["kind"] == "start" and record["resumed_from"] is not None:
            self._bars.update(self._task, completed=record["resumed_from"])
            self._bars.console.print(f"resumed from iteration {record['resumed_from']}")
        elif record["kind"] == "step":
            step = describe_step(record)
            self._bars.update(self._task, completed=record["iteration"], step=step)
        elif record["kind"] == "eval":
            metrics = record["metrics"]
            # The bar already shows the loss.
            shown = {n: x for n, x in metrics.items() if n != "loss"} or metrics
            metric = describe_metrics({**record, "metrics": shown})
            self._bars.update(self._task, metric=metric)

    def on_end(self, outcome: Outcome | None) -> None:
        """Stop the bar and print how the run ended."""
        self._bars.stop()
        if outcome is not None:
            self._bars.console.print(outcome.message, highlight=False)


# ------------------------------------------------------------------------------- loggers


def numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of a step or an evaluation, by name; lists are numbered.

    Example:
        >>> numbers({"kind": "step", "iteration": 3, "loss": 0.5, "horizon": [1.0]})
        {'train/loss': 0.5, 'train/horizon/0': 1.0}
        >>> numbers({"kind": "eval", "iteration": 3, "split": "valid", "metrics": {"loss": 0.4}})
        {'valid/loss': 0.4}
    """
    if record["kind"] == "eval":
        group, values = record["split"], record["metrics"]
    else:
        group, values = "train", record if record["kind"] == "step" else {}
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, list):
            flat.update({f"{name}/{i}": part for i, part in enumerate(value)})
        else:
            flat[name] = value
    return {
        f"{group}/{name}": value
        for name, value in flat.items()
        if isinstance(value, (int, float)) and math.isfinite(value) and name != "iteration"
    }


def _package(name: str, extra: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"{name} is not installed: pip install 'snopt[{extra}]'") from error


class _Logger:
    """Base class of loggers; passes the numbers of steps and evaluations to ``_log``."""

    def on_start(self, total: int | None, config: TrainConfig) -> None:
        """Do nothing by default."""

    def on_record(self, record: Mapping[str, Any]) -> None:
        """Log the numbers of a step or an evaluation."""
        if found := numbers(record):
            self._log(found, record["iteration"])

    def _log(self, found: dict[str, float], iteration: int) -> None:
        raise NotImplementedError


class CSV(_Logger):
    """Write every number of a run to a CSV file, one per line: iteration, name, value.

    A resumed run removes the lines that it will write again. Read the file with
    ``pandas.read_csv(path)``.

    Args:
        path: the file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def on_record(self, record: Mapping[str, Any]) -> None:
        """Open the file at the start; write the numbers of a step or an evaluation."""
        if record["kind"] == "start":
            rows = self._kept(record["resumed_from"])
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "w", encoding="utf-8", newline="", buffering=1)  # noqa: SIM115
            self._rows = csv.writer(self._file)
            self._rows.writerows([["iteration", "name", "value"], *rows])
        super().on_record(record)

    def _log(self, found: dict[str, float], iteration: int) -> None:
        self._rows.writerows([iteration, *pair] for pair in found.items())

    def _kept(self, resumed_from: int | None) -> list[list[str]]:
        if resumed_from is None or not self.path.exists():
            return []
        lines = self.path.read_text("utf-8", "replace").replace("\0", "").splitlines()
        rows = [row for row in csv.reader(lines) if len(row) == 3 and row[0].isdecimal()]
        return [row for row in rows if int(row[0]) <= resumed_from]

    def on_end(self, outcome: Outcome | None) -> None:
        """Close the file."""
        self._file.close()


class TensorBoard(_Logger):
    """Write the numbers of all records as TensorBoard events.

    TensorBoard shows every step once, also after a run was resumed or overwritten: earlier events
    that a run writes again are hidden.

    Args:
        folder: where to write, for example ``tensorboard`` in the run folder.
    """

    def __init__(self, folder: str | Path) -> None:
        _package("tensorboard", "tensorboard")
        self.folder = Path(folder)
        self._writer: Any = None

    def on_record(self, record: Mapping[str, Any]) -> None:
        """Open the writer at the start; write the numbers of a step or an evaluation."""
        if record["kind"] == "start":
            from torch.utils.tensorboard import SummaryWriter

            resumed_from = record["resumed_from"]
            first = 0 if resumed_from is None else resumed_from + 1
            self._writer = SummaryWriter(str(self.folder), purge_step=first)
        super().on_record(record)

    def _log(self, found: dict[str, float], iteration: int) -> None:
        for name, value in found.items():
            self._writer.add_scalar(name, value, iteration)

    def on_end(self, outcome: Outcome | None) -> None:
        """Close the writer."""
        if self._writer is not None:
            self._writer.close()


class WandB(_Logger):
    """Log the numbers of all records to Weights & Biases.

    Args:
        **settings: arguments of ``wandb.init``: ``project``, ``name``, ``mode="offline"`` and
            others.
    """

    def __init__(self, **settings: Any) -> None:
        self._wandb, self._settings = _package("wandb", "wandb"), settings

    def on_start(self, total: int | None, config: TrainConfig) -> None:
        """Start the run."""
        self._run = self._wandb.init(**{"config": asdict(config), **self._settings})

    def _log(self, found: dict[str, float], iteration: int) -> None:
        self._run.log(found, step=iteration)

    def on_end(self, outcome: Outcome | None) -> None:
        """Finish the run."""
        self._run.finish(exit_code=1 if outcome is None else outcome.exit_code)


class MLflow(_Logger):
    """Log the numbers of all records to MLflow.

    Args:
        experiment: name of the experiment.
        tracking_uri: where to log, for example ``sqlite:///mlflow.db``; default MLflow's own.
        **settings: arguments of ``MlflowClient.create_run``: ``run_name``, ``tags``.
    """

    def __init__(
        self, experiment: str = "snopt", tracking_uri: str | None = None, **settings: Any
    ) -> None:
        self._client = _package("mlflow", "mlflow").MlflowClient(tracking_uri)
        self._experiment, self._settings = experiment, settings

    def on_start(self, total: int | None, config: TrainConfig) -> None:
        """Start the run."""
        known = self._client.get_experiment_by_name(self._experiment)
        number = known.experiment_id if known else self._client.create_experiment(self._experiment)
        self._run = self._client.create_run(number, **self._settings).info.run_id
        for name, value in asdict(config).items():
            self._client.log_param(self._run, name, value)

    def _log(self, found: dict[str, float], iteration: int) -> None:
        for name, value in found.items():
            self._client.log_metric(self._run, name, value, step=iteration)

    def on_end(self, outcome: Outcome | None) -> None:
        """Finish the run."""
        failed = outcome is None or outcome.exit_code
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")
