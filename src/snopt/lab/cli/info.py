"""``snopt info``: versions and devices, for bug reports."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import torch

from snopt.lab.data.download import default_root

__all__ = ["info"]

PACKAGES = ("snopt", "torch", "torchdiffeq", "numpy", "scipy")
EXTRAS = (
    "tyro",
    "rich",
    "filelock",
    "optuna",
    "pooch",
    "scikit-learn",
    "matplotlib",
    "tensorboard",
)


def package_version(name: str) -> str:
    """Return the installed version of a package, or ``"not installed"``.

    >>> package_version("no-such-distribution")
    'not installed'
    """
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def devices() -> list[str]:
    """Return the names of the devices that torch can compute on."""
    names = ["cpu"]
    names += [
        f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())
    ]
    if torch.backends.mps.is_available():
        names.append("mps")
    return names


def data_folder() -> str:
    """Return the folder of the data sets."""
    try:
        return str(default_root())
    except ImportError as error:
        return str(error)


def facts() -> dict[str, str]:
    """Return what ``snopt info`` prints, by label."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: package_version(name) for name in (*PACKAGES, *EXTRAS)},
        "devices": ", ".join(devices()),
        "cores": str(os.cpu_count()),
        "threads": f"{torch.get_num_threads()} within an operation, "
        f"{torch.get_num_interop_threads()} between operations",
        "data": data_folder(),
        "float": str(torch.get_default_dtype()).removeprefix("torch."),
    }


def info() -> int:
    """Print versions, devices, threads and the folder of the data sets, for bug reports.

    Returns:
        The exit code.
    """
    for label, value in facts().items():
        print(f"{label:<12} {value}")
    return 0
