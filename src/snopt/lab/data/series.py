"""SpokenArabicDigits, ArticularyWordRecognition and CharacterTrajectories."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from snopt.lab.data.errors import DataCorrupted
from snopt.lab.data.prepare import Series, series_splits
from snopt.lab.data.sources import Found
from snopt.lab.data.spec import Preprocessing, Splits
from snopt.lab.data.text import parse_numbers

__all__ = ["read_ts", "read_utterances", "spoken_arabic_digits", "uea"]

#: Of SpokenArabicDigits: classes, numbers a frame, and how often a speaker says each digit.
DIGITS, COEFFICIENTS, REPETITIONS = 10, 13, 10


def uea(found: Found, preprocessing: Preprocessing) -> Splits:
    """Any data set of the UEA archive: a ``.ts`` file to train and one to test."""
    (train, classes), (test, test_classes) = map(read_ts, found.paths)
    if classes != test_classes:
        raise DataCorrupted(found.paths[1], f"it has classes {test_classes}, not {classes}")
    return _splits(found, train, test, len(classes), preprocessing)


def spoken_arabic_digits(found: Found, preprocessing: Preprocessing) -> Splits:
    """Digits spoken in Arabic, as 13 cepstral coefficients a frame; UCI's text, or UEA's files."""
    if found.paths[0].suffix == ".ts":
        return uea(found, preprocessing)
    train, test = map(read_utterances, found.paths)
    return _splits(found, train, test, DIGITS, preprocessing)


def _splits(
    found: Found, train: Series, test: Series, classes: int, preprocessing: Preprocessing
) -> Splits:
    found.check(len(train.y), len(test.y))
    # Shape and length are known once both parts are padded alike.
    spec = found.spec("series", (), preprocessing, classes=classes)
    return series_splits(spec, train, test)


# ------------------------------------------------------------------------------ readers


def read_ts(path: Path) -> tuple[Series, tuple[str, ...]]:
    """Read a UEA ``.ts`` file.

    A header of ``#`` comments and ``@`` settings up to ``@data``; then a line an example:
    channels separated by colons, values by commas, ``?`` for a missing one, the class last.
    Series may differ in length, but the channels of one may not.

    Returns:
        The series, and the names of the classes in the order of their numbers.

    Raises:
        DataCorrupted: if a line is not what the header announces.
    """
    # Comments may be in any encoding; settings and data are ASCII.
    header, mark, body = path.read_text("latin-1").partition("@data")
    if not mark:
        raise DataCorrupted(path, "it has no line @data")
    settings = _settings(header)
    if settings.get("timestamps") == ["true"]:
        raise DataCorrupted(path, "series with time stamps are not supported")
    flag, *names = settings.get("classlabel", ["false"])
    if flag != "true" or not names:
        raise DataCorrupted(path, "its header names no classes (@classLabel true ...)")
    number = {name: i for i, name in enumerate(names)}

    cells = [line.strip().split(":") for line in body.splitlines() if line.strip()]
    channels = len(cells[0]) - 1 if cells else 0
    lengths = []
    for i, (*values, label) in enumerate(cells):
        counts = {channel.count(",") + 1 for channel in values}
        if len(values) != channels or len(counts) != 1 or label.strip() not in number:
            raise DataCorrupted(
                path,
                f"example {i + 1} has {len(values)} channels of lengths {sorted(counts)} "
                f"and class {label[:20]!r}: cut short?",
            )
        lengths.append(counts.pop())
    if not lengths:
        raise DataCorrupted(path, "there is nothing after @data")
    flat = parse_numbers(",".join(v for row in cells for v in row[:-1]), ",", path)
    y = torch.tensor([number[row[-1].strip()] for row in cells])
    return _pad(flat, lengths, channels, y, path, channel_major=True), tuple(names)


def _settings(header: str) -> dict[str, list[str]]:
    lines = [line.split() for line in header.splitlines() if line.startswith("@")]
    return {words[0][1:].lower(): words[1:] for words in lines}


def read_utterances(path: Path) -> Series:
    """Read UCI's text of SpokenArabicDigits.

    A line of 13 coefficients a frame, a blank line before each utterance. Digit and speaker are
    told by position: the first tenth of the utterances is the digit 0, the last tenth the digit
    9, and within a digit every ten are by one speaker. (Some are there twice, always by the same
    speaker.)

    Returns:
        The utterances; their groups are the speakers.

    Raises:
        DataCorrupted: if a frame is short, or the utterances are no multiple of ten.
    """
    text = path.read_text("latin-1").strip()
    lengths = [block.count("\n") + 1 for block in re.split(r"\n\s*\n", text)]
    if len(lengths) % DIGITS:
        raise DataCorrupted(path, f"its {len(lengths)} utterances are not equally many a digit")
    position = torch.arange(len(lengths))
    per_digit = len(lengths) // DIGITS
    flat = parse_numbers(text, " ", path)
    series = _pad(flat, lengths, COEFFICIENTS, position // per_digit, path, channel_major=False)
    return replace(series, groups=position % per_digit // REPETITIONS)


def _pad(
    flat: NDArray[np.float64],
    lengths: Sequence[int],
    channels: int,
    y: Tensor,
    path: Path,
    *,
    channel_major: bool,
) -> Series:
    """Lay consecutive series, each ``[C, L]`` or ``[L, C]``, out as ``[N, L, C]`` with NaN."""
    if len(flat) != sum(lengths) * channels:
        raise DataCorrupted(
            path, f"it has {len(flat)} values, not {sum(lengths)} observations of {channels}"
        )
    x = np.full((len(lengths), max(lengths), channels), np.nan, np.float32)
    start = 0
    for row, length in zip(x, lengths, strict=True):
        values = flat[start : start + length * channels]
        start += length * channels
        if channel_major:
            row[:length] = values.reshape(channels, length).T
        else:
            row[:length] = values.reshape(length, channels)
    return Series(torch.from_numpy(x), y, torch.tensor(lengths))
