from pathlib import Path

import numpy as np
import pytest

from snopt.lab.data import DataCorrupted
from snopt.lab.data.text import parse_numbers


def test_numbers_are_read_to_the_last_digit():
    numbers = np.random.default_rng(0).standard_normal(100)
    text = ",".join(map(repr, numbers.tolist()))
    assert parse_numbers(text, ",", Path("x")).tolist() == numbers.tolist()


def test_any_white_space_separates():
    assert parse_numbers(" 1 2\n\n3\r\n4\t-5e-1 ", " ", Path("x")).tolist() == [1, 2, 3, 4, -0.5]


def test_a_question_mark_is_a_missing_value():
    assert np.isnan(parse_numbers("1,?,3", ",", Path("x"))).tolist() == [False, True, False]


@pytest.mark.parametrize("text", ["1,2,x,4", "1,2,3.4.5", "hello"])
def test_anything_else_is_refused(text):
    with pytest.raises(DataCorrupted, match=r"some file cannot be used.*not a number"):
        parse_numbers(text, ",", Path("some file"))
