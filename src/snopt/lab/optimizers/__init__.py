"""The optimizers that runs can use: the variants of SNOpt and the methods it is compared with."""

from snopt.lab.optimizers.registry import (
    OPTIMIZERS,
    Entry,
    find,
    grid,
    make_optimizers,
    make_schedulers,
    options,
    unused_settings,
)

__all__ = [
    "OPTIMIZERS",
    "Entry",
    "find",
    "grid",
    "make_optimizers",
    "make_schedulers",
    "options",
    "unused_settings",
]
