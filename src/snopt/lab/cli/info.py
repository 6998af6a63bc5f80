"""``snopt info``: versions and devices, for bug reports."""

import os
import platform

import torch

from snopt.lab.data.download import default_root
from snopt.lab.train.folder import PACKAGES, package_version

EXTRAS = (
    "tyro", "rich", "filelock", "optuna", "pooch", "scikit-learn", "matplotlib", "tensorboard",
)  # fmt: skip


def devices() -> list[str]:
    """Return the names of the devices that torch can use."""
    cuda = range(torch.cuda.device_count())
    names = ["cpu", *(f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in cuda)]
    return [*names, "mps"] if torch.backends.mps.is_available() else names


def data_folder() -> str:
    """Return the folder of the data sets."""
    try:
        return str(default_root())
    except ImportError as error:
        return str(error)


def facts() -> dict[str, str]:
    """Return what ``snopt info`` prints, by label."""
    versions = {name: package_version(name) or "not installed" for name in (*PACKAGES, *EXTRAS)}
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        **versions,
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
