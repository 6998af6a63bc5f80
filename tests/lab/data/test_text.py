from pathlib import Path

import numpy as np
import pytest

from snopt.lab.data import DataCorrupted
from snopt.lab.data.text import parse_rows


def parse(text: str, columns: int, separator: str | None = None) -> list[list[float]]:
    lines = list(enumerate(text.split("\n"), 5))
    return parse_rows(lines, columns, Path("some file"), separator).tolist()


def test_numbers_are_read_to_the_last_digit():
    numbers = np.random.default_rng(0).standard_normal((20, 5)).tolist()
    text = "\n".join(",".join(map(repr, row)) for row in numbers)
    assert parse(text, 5, ",") == numbers


def test_any_white_space_separates():
    assert parse(" 1  2\t-5e-1 \n3 4 5\r", 3) == [[1, 2, -0.5], [3, 4, 5]]


@pytest.mark.parametrize(
    "word", ["inf", "-inf", "nan", "1e300", "1e5000", "x", "1_0", "3.4.5", "?"]
)
def test_a_word_that_is_no_number_is_named_with_its_line(word):
    with pytest.raises(DataCorrupted, match="some file cannot be used: line 6: ") as caught:
        parse(f"1 2 3\n4 {word} 6\n7 8 9", 3)
    assert repr(word) in str(caught.value)


def test_rows_must_all_have_the_right_number_of_columns():
    with pytest.raises(DataCorrupted, match="line 6: it has 2 numbers instead of 3"):
        parse("1 2 3\n4 5\n6 7 8 9", 3)
    with pytest.raises(DataCorrupted, match="line 5: it has 3 numbers instead of 2"):
        parse("1 2 3\n4 5 6", 2)


def test_an_empty_cell_is_refused():
    with pytest.raises(DataCorrupted, match="line 5: '' is not a number"):
        parse("1;;3", 3, ";")
