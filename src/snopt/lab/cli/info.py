"""``snopt info``: versions and devices, for bug reports."""

import os
import platform

import torch

from snopt.lab.data.download import default_root
from snopt.lab.train.folder import PACKAGES, package_version

EXTRAS = (
    "tyro", "rich", "filelock", "optuna", "pooch", "scikit-learn", "matplotlib", "tensorboard",
)  # fmt: skip


def info() -> int:
    """Print versions, devices, threads and the folder of the data sets, for bug reports.

    Returns:
        The exit code.
    """
    try:
        data = str(default_root())
    except ImportError as error:
        data = str(error)
    cuda = range(torch.cuda.device_count())
    devices = ["cpu", *(f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in cuda)]
    devices += ["mps"] if torch.backends.mps.is_available() else []
    facts = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: package_version(name) or "not installed" for name in (*PACKAGES, *EXTRAS)},
        "devices": ", ".join(devices),
        "cores": os.cpu_count(),
        "threads": f"{torch.get_num_threads()} within an operation, "
        f"{torch.get_num_interop_threads()} between operations",
        "data": data,
        "float": str(torch.get_default_dtype()).removeprefix("torch."),
    }
    for label, value in facts.items():
        print(f"{label:<12} {value}")
    return 0
