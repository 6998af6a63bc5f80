"""``snopt info``: what a bug report should say about the machine."""

import argparse
import os
import platform
from importlib.metadata import PackageNotFoundError, version

import torch

SUMMARY = "print versions, devices and threads"

PACKAGES = ("snopt", "torch", "torchdiffeq", "numpy", "scipy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's own arguments: none."""
    del parser


def package_version(name: str) -> str:
    """Return the installed version of a distribution, or a word saying it is absent.

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


def facts() -> dict[str, str]:
    """Return what there is to say, label by label."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: package_version(name) for name in PACKAGES},
        "devices": ", ".join(devices()),
        "cores": str(os.cpu_count()),
        "threads": f"{torch.get_num_threads()} within an operation, "
        f"{torch.get_num_interop_threads()} between operations",
        "float": str(torch.get_default_dtype()).removeprefix("torch."),
    }


def run(arguments: argparse.Namespace) -> int:
    """Print the facts, one to a line."""
    del arguments
    for label, value in facts().items():
        print(f"{label:<12} {value}")
    return 0
