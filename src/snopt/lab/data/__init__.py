"""The nine data sets of the paper, and a few small ones that need no download.

>>> from snopt.lab.data import load
>>> splits = load("spirals")
>>> splits.spec.kind, splits.spec.classes, len(splits.train)
('series', 4, 1000)
"""

from snopt.lab.data.errors import DataCorrupted, DataError, DataNotFound, DownloadFailed
from snopt.lab.data.registry import (
    REGISTRY,
    Availability,
    Entry,
    Verdict,
    available,
    fetch,
    load,
    names,
    register,
    verify,
)
from snopt.lab.data.sources import File, Form, Found, Origin
from snopt.lab.data.spec import Batch, Dataset, Spec, Splits

__all__ = [
    "load", "fetch", "verify", "names", "available", "register", "REGISTRY",
    "Splits", "Dataset", "Batch", "Spec", "Entry", "Form", "File", "Origin", "Found",
    "Availability", "Verdict", "DataError", "DataNotFound", "DataCorrupted", "DownloadFailed",
]  # fmt: skip
