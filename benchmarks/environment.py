"""What a measurement was taken on: versions, processor, threads, date."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from pathlib import Path

import torch

PACKAGES = (
    "snopt",
    "torch",
    "torchdiffeq",
    "numpy",
    "scipy",
    "torchode",
    "torchdyn",
    "jax",
    "diffrax",
    "equinox",
    "optax",
    "pytorch_optimizer",
    "heavyball",
    "singd",
)


def environment() -> dict[str, object]:
    """Describe this process's surroundings, ready for JSON."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
