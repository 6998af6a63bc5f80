"""Long texts of numbers, read in one call."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from snopt.lab.data.errors import DataCorrupted

__all__ = ["parse_numbers"]


def parse_numbers(text: str, separator: str, path: Path) -> NDArray[np.float64]:
    """Turn a text of numbers into an array.

    Args:
        text: the numbers; ``?`` stands for NaN.
        separator: what is between them; a blank stands for any white space.
        path: the file they are from, for the error.

    Raises:
        DataCorrupted: if something in the text is not a number.

    Example:
        >>> parse_numbers("1,2.5,?", ",", Path("file"))
        array([1. , 2.5, nan])
    """
    with warnings.catch_warnings():
        # numpy stops at what is no number and says so by this warning alone.
        warnings.simplefilter("error", DeprecationWarning)
        try:
            return np.fromstring(text.replace("?", "nan"), sep=separator)
        except (DeprecationWarning, ValueError) as error:
            raise DataCorrupted(path, "something in it is not a number") from error
