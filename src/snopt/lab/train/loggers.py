"""Listeners that log the numbers of a run: CSV, TensorBoard, Weights & Biases, MLflow."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from snopt.lab.train.task import Outcome, TrainConfig

__all__ = ["CSV", "MLflow", "TensorBoard", "WandB"]


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


class CSV:
    """Write every number of a run to a CSV file, one per line: iteration, name, value.

    A resumed run removes the lines that it will write again. Read the file with
    ``pandas.read_csv(path)``.

    Args:
        path: The file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def on_start(self, total: int | None, config: TrainConfig) -> None:
        """Do nothing."""

    def on_record(self, record: Mapping[str, Any]) -> None:
        """Write the numbers of a step or an evaluation."""
        if record["kind"] == "start":
            rows = self._kept(record["resumed_from"])
            self._file = open(self.path, "w", encoding="utf-8", newline="", buffering=1)  # noqa: SIM115
            self._rows = csv.writer(self._file)
            self._rows.writerows([["iteration", "name", "value"], *rows])
        self._rows.writerows([record["iteration"], *pair] for pair in numbers(record).items())

    def _kept(self, resumed_from: int | None) -> list[list[str]]:
        if resumed_from is None or not self.path.exists():
            return []
        with open(self.path, encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))[1:]
        return [row for row in rows if len(row) == 3 and int(row[0]) <= resumed_from]

    def on_end(self, outcome: Outcome | None) -> None:
        """Close the file."""
        self._file.close()


class TensorBoard:
    """Write the numbers of all records as TensorBoard events.

    Args:
        folder: Where to write, for example ``tensorboard`` in the run folder.
    """

    def __init__(self, folder: str | Path) -> None:
        _package("tensorboard", "tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))

    def on_start(self, total: int | None, config: TrainConfig) -> None:
        """Do nothing."""

    def on_record(self, record: Mapping[str, Any]) -> None:
        """Write the numbers of a step or an evaluation."""
        for name, value in numbers(record).items():
            self._writer.add_scalar(name, value, record["iteration"])

    def on_end(self, outcome: Outcome | None) -> None:
        """Close the writer."""
        self._writer.close()


class WandB:
    """Log the numbers of all records to Weights & Biases.

    Args:
        **settings: For ``wandb.init``: ``project``, ``name``, ``mode="offline"`` and others.
    """

    def __init__(self, **settings: Any) -> None:
        self._wandb, self._settings = _package("wandb", "wandb"), settings

    def on_start(self, total: int | None, config: TrainConfig) -> None:
        """Start the run."""
        self._run = self._wandb.init(**{"config": asdict(config), **self._settings})

    def on_record(self, record: Mapping[str, Any]) -> None:
        """Log the numbers of a step or an evaluation."""
        if found := numbers(record):
            self._run.log(found, step=record["iteration"])

    def on_end(self, outcome: Outcome | None) -> None:
        """Finish the run."""
        self._run.finish(exit_code=1 if outcome is None else outcome.exit_code)


class MLflow:
    """Log the numbers of all records to MLflow.

    Args:
        experiment: Name of the experiment.
        tracking_uri: Where to log, for example ``sqlite:///mlflow.db``; default MLflow's own.
        **settings: For ``MlflowClient.create_run``: ``run_name``, ``tags``.
    """

    def __init__(
        self, experiment: str = "snopt", tracking_uri: str | None = None, **settings: Any
    ) -> None:
        mlflow = _package("mlflow", "mlflow")
        self._client = mlflow.MlflowClient(tracking_uri)
        self._experiment, self._settings = experiment, settings

    def on_start(self, total: int | None, config: TrainConfig) -> None:
        """Start the run."""
        known = self._client.get_experiment_by_name(self._experiment)
        number = known.experiment_id if known else self._client.create_experiment(self._experiment)
        self._run = self._client.create_run(number, **self._settings).info.run_id
        for name, value in asdict(config).items():
            self._client.log_param(self._run, name, value)

    def on_record(self, record: Mapping[str, Any]) -> None:
        """Log the numbers of a step or an evaluation."""
        for name, value in numbers(record).items():
            self._client.log_metric(self._run, name, value, step=record["iteration"])

    def on_end(self, outcome: Outcome | None) -> None:
        """Finish the run."""
        failed = outcome is None or outcome.exit_code
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")
