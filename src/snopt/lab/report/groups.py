"""Group runs that differ in their seed only."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from snopt.lab.report.read import Run

# Settings in which the runs of one curve may differ, at any depth of a config.
FREE = {"seed", "out", "folder", "label", "run", "format"}
MAX_DIFFERENCES = 3
MAX_VALUE_LENGTH = 24


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed only.

    Attributes:
        label: name of the optimizer, with the settings that distinguish it from others of that
            name.
        runs: the runs by increasing seed.
    """

    label: str
    runs: tuple[Run, ...]


def group_runs(runs: Iterable[Run]) -> dict[str, list[Group]]:
    """Group runs by task and optimizer.

    Runs of one optimizer whose configs differ in more than the seed form several groups, named
    after the settings that differ: seeds are averaged, settings are not.

    Args:
        runs: the runs; folders without a run are skipped.

    Returns:
        for each task, in the order of first appearance, its groups: SNOpt's first, the others by
        name.
    """
    by_name: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        if run.is_run:
            by_name.setdefault(run.task, {}).setdefault(run.optimizer, []).append(run)
    return {
        task: [
            group
            for name in sorted(named, key=lambda name: (not name.startswith("snopt"), name))
            for group in _split_by_settings(name, named[name])
        ]
        for task, named in by_name.items()
    }


def _split_by_settings(name: str, runs: list[Run]) -> list[Group]:
    variants: dict[str, list[Run]] = {}
    for run in runs:
        variants.setdefault(json.dumps(settings(run.config), sort_keys=True), []).append(run)
    # A run without a config joins the group of its name, if there is only one.
    lost = variants.pop("{}", []) if len(variants) == 2 else []
    labels = _labels(name, [settings(alike[0].config) for alike in variants.values()])
    return [
        Group(label, tuple(sorted(alike + lost, key=lambda run: (run.seed or 0, run.folder))))
        for label, alike in zip(labels, variants.values(), strict=True)
    ]


def settings(config: dict[str, Any], section: str = "") -> dict[str, str]:
    """Return the settings that distinguish curves: values as JSON, nested ones by dotted names.

    Example:
        >>> settings({"lr": 0.1, "seed": 3, "train": {"seed": 3, "clip": None}})
        {'lr': '0.1', 'train.clip': 'null'}
    """
    found: dict[str, str] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            found |= settings(value, f"{section}{name}.")
        elif name not in FREE:
            found[f"{section}{name}"] = json.dumps(value)
    return found


def _labels(name: str, variants: list[dict[str, str]]) -> list[str]:
    """Return one name per variant, all different."""
    if len(variants) == 1:
        return [name]
    keys = {key: None for variant in variants for key in variant}
    known = [variant for variant in variants if variant]
    differing = [key for key in keys if len({variant.get(key) for variant in known}) > 1]
    labels: list[str] = []
    for variant in variants:
        # A config may contain a setting twice.
        told = dict.fromkeys(
            f"{_last(key)}={_short(variant[key])}" for key in differing if key in variant
        )
        label = " ".join([name, *(list(told)[:MAX_DIFFERENCES] or ["(other settings)"])])
        # Needed if more settings differ than fit into the label.
        alike = sum(earlier == label or earlier.startswith(f"{label} #") for earlier in labels)
        labels.append(f"{label} #{alike + 1}" if alike else label)
    return labels


def _last(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _short(value: str) -> str:
    value = value.strip('"')
    return value if len(value) <= MAX_VALUE_LENGTH else value[: MAX_VALUE_LENGTH - 1] + "…"
