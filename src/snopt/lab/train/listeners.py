"""Listeners that show progress on the terminal: a bar or plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any, Literal, TextIO

from snopt.base.errors import unknown
from snopt.lab.train.task import Listener, Outcome, TrainConfig

__all__ = ["PlainProgress", "RichProgress", "progress"]


def progress(style: Literal["auto", "rich", "plain", "quiet"] = "auto") -> list[Listener]:
    """Return listeners that show progress.

    Args:
        style: ``"rich"`` for a bar, ``"plain"`` for lines, ``"quiet"`` for none; ``"auto"`` is a
            bar on a terminal if rich is installed, else lines.

    Example:
        >>> progress("quiet")
        []
    """
    makers: dict[str, Any] = {"rich": RichProgress, "plain": PlainProgress}
    if style == "quiet":
        return []
    if style == "auto":
        return [RichProgress() if sys.stderr.isatty() and _has_rich() else PlainProgress()]
    if style not in makers:
        raise unknown("progress style", style, ["auto", "quiet", *makers])
    return [makers[style]()]


def _has_rich() -> bool:
    try:
        import rich  # noqa: F401
    except ImportError:
        return False
    return True


def _number(value: Any) -> str:
    """Format a number; one that is not finite is None in records.

    Example:
        >>> _number(0.123456), _number(None)
        ('0.1235', 'nan')
    """
    return "nan" if value is None else f"{value:.4g}"


def describe_step(record: Mapping[str, Any]) -> str:
    """Summarize a step.

    Example:
        >>> describe_step({"loss": 0.5, "nfe_forward": 14, "nfe_backward": 12})
        'loss 0.5  NFE 14+12'
    """
    text = f"loss {_number(record['loss'])}"
    if record["nfe_forward"]:
        text += f"  NFE {record['nfe_forward']}+{record['nfe_backward']}"
    return text + ("  (skipped)" if "skipped" in record else "")


def describe_metrics(record: Mapping[str, Any]) -> str:
    """Summarize an evaluation.

    Example:
        >>> describe_metrics({"split": "valid", "metrics": {"loss": 0.5, "accuracy": 0.9}})
        'valid loss 0.5  accuracy 0.9'
    """
    metrics = record["metrics"].items()
    return f"{record['split']} " + "  ".join(f"{name} {_number(x)}" for name, x in metrics)


class PlainProgress:
    """Print a line for every evaluation, and one every few seconds in between.

    Args:
        stream: Where to print; default standard error.
        every: Seconds between lines about steps.
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
            # The bar already shows the loss of the step.
            shown = {n: x for n, x in metrics.items() if n != "loss"} or metrics
            metric = describe_metrics({**record, "metrics": shown})
            self._bars.update(self._task, metric=metric)

    def on_end(self, outcome: Outcome | None) -> None:
        """Stop the bar and print how the run ended."""
        self._bars.stop()
        if outcome is not None:
            self._bars.console.print(outcome.message, highlight=False)
