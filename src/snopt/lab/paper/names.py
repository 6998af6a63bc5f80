"""The names of data sets and methods in tables, and how their numbers are formatted."""

from __future__ import annotations

from collections.abc import Iterable

from snopt.lab.config import OptimizerName
from snopt.lab.optimizers import OPTIMIZERS
from snopt.lab.optimizers.registry import PALETTE, color_index
from snopt.lab.report.summary import Stat, stat

TASKS: dict[str, str] = {
    "mnist": "MNIST",
    "svhn": "SVHN",
    "cifar10": "CIFAR10",
    "spoken_arabic_digits": "SpoAD",
    "articulary_word_recognition": "ArtWR",
    "character_trajectories": "CharT",
    "circle": "Circle",
    "gas": "Gas",
    "miniboone": "Miniboone",
}
"""The paper's data sets in its order, with its names."""
TUNED = "snopt_tuned"
"""SNOpt with a searched learning rate, as the other methods have."""
METHODS = {**{name: entry.label for name, entry in OPTIMIZERS.items()}, TUNED: "SNOpt (tuned)"}


def optimizer_of(method: str) -> OptimizerName:
    """Return the optimizer of a method."""
    return "snopt" if method == TUNED else method


def color_of(title: str) -> str:
    """Return the colour of a method by its name in tables, the same in all figures.

    Example:
        >>> color_of("SNOpt (default)")
        '#0072b2'
    """
    names = [name for name, label in METHODS.items() if title.startswith(label)]
    name = max(names, key=lambda name: len(METHODS[name]), default="")
    place = color_index(optimizer_of(name))
    return PALETTE[-1 if place is None else place % len(PALETTE)]


def metric_text(found: Stat | None, metric: str = "", seeds: int = 0) -> str:
    """Format a mean with its deviation over seeds, if there are several; accuracies in percent.

    With ``seeds``, the text tells if there are fewer.

    Example:
        >>> metric_text(Stat(0.97123, 0.0021, 3), "accuracy"), metric_text(Stat(1.5, 0.0, 1), "nll")
        ('97.12 ± 0.21', '1.50')
        >>> metric_text(Stat(0.97123, 0.0021, 2), "accuracy", seeds=3)
        '97.12 ± 0.21 (2 of 3 seeds)'
    """
    if found is None:
        return "-"
    scale = 100 if metric == "accuracy" else 1
    deviation = f" ± {scale * found.sd:.2f}" if found.count > 1 else ""
    partial = f" ({found.count} of {seeds} seeds)" if found.count < seeds else ""
    return f"{scale * found.mean:.2f}{deviation}{partial}"


def mean_of(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; None if there are none.

    Example:
        >>> mean_of([1.0, None, 2.0]), mean_of([])
        (1.5, None)
    """
    found = stat(values)
    return None if found is None else found.mean
