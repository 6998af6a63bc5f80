"""Records as TensorBoard events."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from snopt.lab.train.task import Outcome, TrainConfig

__all__ = ["TensorBoard"]


class TensorBoard:
    """Write every number of the records to a folder that TensorBoard reads."""

    def __init__(self, folder: str | Path) -> None:
        """Open the writer.

        Args:
            folder: For example the run folder's ``tensorboard``.
        """
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError(
                "TensorBoard is not installed: pip install 'snopt[tensorboard]'"
            ) from error
        self._writer = SummaryWriter(str(folder))

    def on_start(self, total: int | None, config: TrainConfig) -> None:
        """Nothing to write yet."""

    def on_record(self, record: Mapping[str, Any]) -> None:
        """Write the numbers of a step or an evaluation."""
        if record["kind"] == "step":
            for name, value in _flat(record).items():
                self._writer.add_scalar(f"train/{name}", value, record["iteration"])
        elif record["kind"] == "eval":
            for name, value in record["metrics"].items():
                self._writer.add_scalar(f"{record['split']}/{name}", value, record["iteration"])

    def on_end(self, outcome: Outcome | None) -> None:
        """Close the writer."""
        self._writer.close()


def _flat(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a step by name; a list's entries are numbered.

    Example:
        >>> _flat({"kind": "step", "iteration": 3, "loss": 0.5, "horizon": [1.0]})
        {'loss': 0.5, 'horizon/0': 1.0}
    """
    flat: dict[str, float] = {}
    for name, value in record.items():
        if isinstance(value, (int, float)) and name != "iteration":
            flat[name] = value
        elif isinstance(value, list):
            flat.update({f"{name}/{i}": item for i, item in enumerate(value)})
    return flat
