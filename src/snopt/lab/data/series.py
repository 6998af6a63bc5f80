"""SpokenArabicDigits, ArticularyWordRecognition and CharacterTrajectories."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from snopt.lab.data.errors import DataCorrupted
from snopt.lab.data.prepare import series_splits
from snopt.lab.data.sources import Found
from snopt.lab.data.spec import Batch, Preprocessing, Splits
from snopt.lab.data.text import filled, parse_rows

#: SpokenArabicDigits: classes, numbers per frame, and how often a speaker says each digit.
DIGITS, COEFFICIENTS, REPETITIONS = 10, 13, 10
#: Values of the largest padded array.
LARGEST_ARRAY = 1 << 28


def uea(found: Found, preprocessing: Preprocessing) -> Splits:
    """Load a data set of the UEA archive: one ``.ts`` file for training and one for testing."""
    (train, classes), (test, test_classes) = map(read_ts, found.paths)
    if classes != test_classes:
        raise DataCorrupted(found.paths[1], f"it has classes {test_classes}, not {classes}")
    return series_splits(found, train, test, len(classes), preprocessing)


def spoken_arabic_digits(found: Found, preprocessing: Preprocessing) -> Splits:
    """Load spoken digits, 13 cepstral coefficients per frame, from UCI's text or UEA's files."""
    if found.paths[0].suffix == ".ts":
        return uea(found, preprocessing)
    (train, speakers), (test, _) = map(read_utterances, found.paths)
    return series_splits(found, train, test, DIGITS, preprocessing, groups=speakers)


# ------------------------------------------------------------------------------ readers


def read_ts(path: Path) -> tuple[Batch, tuple[str, ...]]:
    """Read a UEA ``.ts`` file.

    The file has a header of ``#`` comments and ``@`` settings up to ``@data``, then one line per
    example: channels separated by colons, values by commas, ``?`` for a missing value, the class
    last. Series may differ in length, but the channels of one series may not.

    Returns:
        the series, and the names of the classes in the order of their numbers.

    Raises:
        DataCorrupted: a line does not match the header, or a value is not a number.
    """
    # Comments may be in any encoding; settings and data are ASCII.
    header, mark, body = path.read_text("latin-1").partition("@data")
    if not mark:
        raise DataCorrupted(path, "it has no line @data")
    number = {name: i for i, name in enumerate(_class_names(header, path))}
    examples, y, channels = [], [], None
    for line, row in filled(body.split("\n"), header.count("\n") + 1):
        *values, label = row.strip().split(":")
        channels = channels or len(values)
        lengths = {channel.count(",") + 1 for channel in values}
        if len(values) != channels or len(lengths) != 1 or label.strip() not in number:
            has = f"{len(values)} channels of lengths {sorted(lengths)} and class {label[:20]!r}"
            raise DataCorrupted(path, f"it has {has}: cut short?", line=line)
        examples.append(_parse_example(values, lengths.pop(), path, line))
        y.append(number[label.strip()])
    if not examples:
        raise DataCorrupted(path, "there is nothing after @data")
    series = _pad(examples, torch.tensor(y), path)
    if series.x.isnan().all(1).all(0).any():
        raise DataCorrupted(path, "a channel has no value in any series")
    return series, tuple(number)


def _class_names(header: str, path: Path) -> list[str]:
    lines = [line.split() for line in header.split("\n") if line.startswith("@")]
    settings = {words[0][1:].lower(): words[1:] for words in lines}
    if settings.get("timestamps") == ["true"]:
        raise DataCorrupted(path, "series with time stamps are not supported")
    flag, *names = settings.get("classlabel") or ["false"]
    if flag != "true" or not names:
        raise DataCorrupted(path, "its header names no classes (@classLabel true ...)")
    return names


def _parse_example(channels: Sequence[str], length: int, path: Path, line: int) -> Tensor:
    """Parse the channels of one series to ``[L, C]``, NaN where ``?`` marks a missing value."""
    missing = None
    if any("?" in channel for channel in channels):
        words = [[word.strip() for word in channel.split(",")] for channel in channels]
        channels = [",".join("0" if word == "?" else word for word in row) for row in words]
        missing = torch.tensor([[word == "?" for word in row] for row in words])
    table = parse_rows([(line, channel) for channel in channels], length, path, ",")
    x = torch.from_numpy(table).float().T
    return x if missing is None else x.masked_fill(missing.T, float("nan"))


def read_utterances(path: Path) -> tuple[Batch, Tensor]:
    """Read UCI's text of SpokenArabicDigits.

    The file has one line of 13 coefficients per frame, and a blank line before each utterance. The
    position of an utterance gives its digit and speaker: the first tenth of the utterances is the
    digit 0, the last tenth the digit 9, and within a digit every ten are by one speaker. (Some
    utterances occur twice, always by the same speaker.)

    Returns:
        the utterances, and the speaker of each.

    Raises:
        DataCorrupted: a frame is not 13 numbers, or the utterances are not a multiple of ten.
    """
    lines = path.read_text("latin-1").split("\n")
    blocks = groupby(lines, key=lambda line: bool(line.strip()))
    lengths = [len(list(block)) for filled, block in blocks if filled]
    if not lengths or len(lengths) % DIGITS:
        raise DataCorrupted(path, f"its {len(lengths)} utterances are not equally many per digit")
    position = torch.arange(len(lengths))
    per_digit = len(lengths) // DIGITS
    frames = torch.from_numpy(parse_rows(filled(lines), COEFFICIENTS, path)).float()
    series = _pad(frames.split(lengths), position // per_digit, path)
    return series, position % per_digit // REPETITIONS


def _pad(examples: Sequence[Tensor], y: Tensor, path: Path) -> Batch:
    """Join series ``[L, C]`` of different lengths, padded with NaN."""
    lengths = torch.tensor([len(example) for example in examples])
    values = len(lengths) * int(lengths.max()) * examples[0].shape[1]
    if values > LARGEST_ARRAY:
        longest = int(lengths.max())
        raise DataCorrupted(
            path, f"a series of {longest} observations makes the padded array too large"
        )
    x = pad_sequence(list(examples), batch_first=True, padding_value=float("nan"))
    return Batch(x, y, lengths)
