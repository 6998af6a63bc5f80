import re

import numpy as np
import pytest
import torch

from snopt.lab.data import DataCorrupted, load
from snopt.lab.data.series import read_ts, read_utterances
from tests.lab.data.files import SIZES, random_series, write_ts, write_uea, write_utterances


def test_ts_gives_back_what_was_written(tmp_path):
    written = random_series(6, 3, (2, 9))
    write_ts(tmp_path / "a.ts", written, ["b", "a", "c", "a", "b", "c"])
    series, classes = read_ts(tmp_path / "a.ts")
    assert classes == ("a", "b", "c")
    assert series.y.tolist() == [1, 0, 2, 0, 1, 2]
    assert series.lengths.tolist() == [x.shape[1] for x in written]
    assert series.x.shape == (6, 9, 3)
    for got, x in zip(series.x, written, strict=True):
        np.testing.assert_array_equal(got[: x.shape[1]], x.T.astype(np.float32))
        assert got[x.shape[1] :].isnan().all()


def test_missing_values_become_a_mask(tmp_path, small_sizes):
    for part, count in zip(("TRAIN", "TEST"), SIZES["character_trajectories"], strict=True):
        written = random_series(count, 3, (6, 18))
        for x in written:
            x[1, 2] = np.nan
        path = tmp_path / f"CharacterTrajectories/CharacterTrajectories_{part}.ts"
        write_ts(path, written, [str(i % 4) for i in range(count)])
    batch = load("character_trajectories", tmp_path).train.tensors
    assert not batch.mask[:, 2, 1].any()
    assert batch.mask[:, 2, 0].all()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text[: text.index("@data")], "no line @data"),
        (lambda text: text[: text.index("@data") + 6], "nothing after @data"),
        (lambda text: text[:-30], "line 11: .*cut short"),
        (lambda text: text.replace(":", "", 1), "line [67]: .*cut short"),
        (lambda text: text.replace(":a\n", ":z\n"), "class 'z'"),
        (lambda text: text.replace("1,", "1!,"), "line [67]: .*not a number"),
        (lambda text: text.replace("timeStamps false", "timeStamps true"), "time stamps"),
        (lambda text: text.replace("classLabel true", "classLabel false"), "names no classes"),
    ],
)
def test_a_damaged_ts_file_is_refused_by_name(tmp_path, damage, reason):
    path = tmp_path / "a.ts"
    write_ts(path, random_series(6, 3, (5, 9)), ["b", "a", "c", "a", "b", "c"])
    path.write_text(damage(path.read_text("latin-1")), "latin-1")
    with pytest.raises(DataCorrupted, match=reason) as caught:
        read_ts(path)
    assert str(path) in str(caught.value)


def test_channels_of_one_series_must_have_one_length(tmp_path):
    path = tmp_path / "a.ts"
    path.write_text("@classLabel true a\n@data\n1,2,3:1,2:a\n")
    with pytest.raises(DataCorrupted, match=r"lengths \[2, 3\]"):
        read_ts(path)


@pytest.mark.parametrize("word", ["inf", "NaN", "1e300", "", "x"])
def test_a_value_that_is_no_usable_number_is_named_with_its_line(tmp_path, word):
    path = tmp_path / "a.ts"
    path.write_text(f"@classLabel true a\n@data\n1,2:3,4:a\n1,2:{word},4:a\n")
    with pytest.raises(DataCorrupted, match=rf"a\.ts .*line 4: {word!r} is not a number"):
        read_ts(path)


def test_a_channel_without_any_value_is_refused(tmp_path):
    path = tmp_path / "a.ts"
    path.write_text("@classLabel true a\n@data\n1,2:?,?:a\n3:?:a\n")
    with pytest.raises(DataCorrupted, match="no value in any series"):
        read_ts(path)


def test_one_very_long_series_is_refused_before_all_are_padded_to_it(tmp_path):
    path = tmp_path / "a.ts"
    long = ",".join(["1"] * 200_000)
    path.write_text("@classLabel true a\n@data\n" + "1:a\n" * 2000 + f"{long}:a\n")
    with pytest.raises(DataCorrupted, match="200000 observations"):
        read_ts(path)


def lose_the_last(path):
    path.write_bytes(b"\n".join(path.read_bytes().splitlines()[:-1]))


@pytest.mark.parametrize(
    ("part", "change", "reason"),
    [
        (
            "TEST",
            lambda path: write_ts(
                path, random_series(12, 2, (6, 18)), [f"{i % 4}.0" for i in range(12)]
            ),
            r"TEST.ts .*2 channels, not 3",
        ),
        (
            "TEST",
            lambda path: write_ts(path, random_series(12, 3, (6, 18)), ["x"] * 12),
            r"classes \('x',\)",
        ),
        ("TRAIN", lose_the_last, "39 examples to train"),
    ],
    ids=["channels", "classes", "a series lost"],
)
def test_both_files_must_fit(tmp_path, small_sizes, part, change, reason):
    write_uea(tmp_path, "CharacterTrajectories", 3, (6, 18), SIZES["character_trajectories"])
    change(tmp_path / f"CharacterTrajectories/CharacterTrajectories_{part}.ts")
    with pytest.raises(DataCorrupted, match=reason):
        load("character_trajectories", tmp_path)


def test_utterances_give_back_what_was_written(tmp_path):
    written = [x.T for x in random_series(40, 13, (2, 7))]
    write_utterances(tmp_path / "a.txt", written)
    series, _ = read_utterances(tmp_path / "a.txt")
    assert series.lengths.tolist() == [len(x) for x in written]
    assert series.y.tolist() == [i // 4 for i in range(40)]
    for got, x in zip(series.x, written, strict=True):
        np.testing.assert_array_equal(got[: len(x)], x.astype(np.float32))


def test_utterances_of_a_speaker_are_a_group(tmp_path):
    write_utterances(tmp_path / "a.txt", [x.T for x in random_series(200, 13, (2, 3))])
    _, speakers = read_utterances(tmp_path / "a.txt")
    assert speakers.tolist() == ([0] * 10 + [1] * 10) * 10


def test_line_ends_of_windows_change_nothing(tmp_path):
    write_utterances(tmp_path / "a.txt", [x.T for x in random_series(20, 13, (2, 5))])
    one, _ = read_utterances(tmp_path / "a.txt")
    (tmp_path / "b.txt").write_bytes((tmp_path / "a.txt").read_bytes().replace(b"\n", b"\r\n"))
    two, _ = read_utterances(tmp_path / "b.txt")
    assert one.lengths.equal(two.lengths)
    assert one.x.nan_to_num().equal(two.x.nan_to_num())


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text[:-20], "line [0-9]+: it has 12 numbers instead of 13"),
        (lambda text: text.rsplit("            \n", 1)[0], "19 utterances"),
        (lambda text: "", "utterances"),
        (lambda text: re.sub(r"(\S) \n", r"\1 0 \n", text, count=1), "line 2: it has 14"),
        (lambda text: re.sub(r"\n\S+", "\ninf", text, count=1), "line 2: 'inf' is not a number"),
        (lambda text: re.sub(r"(\S+) \n(\S)", r"\n\1 \2", text, count=1), "line 2: it has 12"),
    ],
)
def test_damaged_utterances_are_refused_by_name(tmp_path, damage, reason):
    path = tmp_path / "Train_Arabic_Digit.txt"
    write_utterances(path, [x.T for x in random_series(20, 13, (2, 5))])
    path.write_text(damage(path.read_text()))
    with pytest.raises(DataCorrupted, match=reason) as caught:
        read_utterances(path)
    assert str(path) in str(caught.value)


def test_spoken_digits_can_come_from_the_uea_archive(tmp_path, small_sizes):
    write_uea(tmp_path, "SpokenArabicDigits", 13, (4, 9), SIZES["spoken_arabic_digits"])
    splits = load("spoken_arabic_digits", tmp_path)
    assert splits.spec.shape == (9, 13)


# ---------------------------------------------------------------------------- real files


@pytest.mark.parametrize(
    ("name", "classes", "train", "test"),
    [
        ("spoken_arabic_digits", 10, (6600, 13, 4, 93), (2200, 13, 7, 83)),
        ("articulary_word_recognition", 25, (275, 9, 144, 144), (300, 9, 144, 144)),
        ("character_trajectories", 20, (1422, 3, 60, 182), (1436, 3, 60, 182)),
    ],
)
def test_real_series_are_as_many_and_as_long_as_published(data_root, name, classes, train, test):
    splits = load(name, data_root)
    assert splits.spec.classes == classes
    assert splits.spec.completeness == "whole"

    def measure(*parts):
        lengths = torch.cat([part.tensors.lengths for part in parts])
        channels = parts[0].tensors.x.shape[2]
        return len(lengths), channels, lengths.min().item(), lengths.max().item()

    got = measure(splits.train, splits.valid), measure(splits.test)
    if name == "character_trajectories":
        # The shortest and the longest are known of both parts together.
        assert [g[:2] for g in got] == [train[:2], test[:2]]
        assert (min(g[2] for g in got), max(g[3] for g in got)) == (60, 182)
    else:
        assert got == (train, test)
    counts = splits.test.tensors.y.bincount()
    if name != "character_trajectories":
        assert counts.tolist() == [len(splits.test) // classes] * classes
    paper = {"spoken_arabic_digits": 27, "articulary_word_recognition": 19}.get(name, 7)
    assert 2 * splits.spec.shape[1] + 1 == paper  # the channels in the paper's table
