"""The optimizers that runs can name: SNOpt's variants and the methods it is compared with."""

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
