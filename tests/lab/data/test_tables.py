from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from snopt.lab.data import DataCorrupted, load
from snopt.lab.data.tables import (
    drop_correlated,
    read_air_quality,
    read_ethylene,
    read_table,
    tenth,
)
from tests.lab.data.files import (
    in_folder,
    random,
    sensors,
    write_air_quality,
    write_ethylene,
    write_hdf,
)


def sizes(splits):
    return len(splits.train), len(splits.valid), len(splits.test)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_npy_gives_back_what_was_written(tmp_path, dtype):
    table = (random().standard_normal((5, 3)) * 100).astype(dtype)
    np.save(tmp_path / "a.npy", table)
    assert read_table(tmp_path / "a.npy").tolist() == table.tolist()


def test_hdf_gives_back_its_one_table_whatever_its_name(tmp_path):
    table = random().standard_normal((5, 3))
    write_hdf(tmp_path / "a.h5", **{"group/block0_values": table, "axis": np.arange(5)})
    assert read_table(tmp_path / "a.h5").tolist() == table.tolist()


def test_hdf_with_two_tables_is_refused(tmp_path):
    write_hdf(tmp_path / "a.h5", one=np.zeros((2, 2)), two=np.zeros((2, 2)))
    with pytest.raises(DataCorrupted, match="it contains 2 tables"):
        read_table(tmp_path / "a.h5")


class Bomb:
    """What a pickle may do to whoever opens it."""

    def __reduce__(self):
        return (pytest.fail, ("the file was unpickled",))


def test_a_pickle_inside_npy_is_not_opened(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[Bomb()]], dtype=object), allow_pickle=True)
    with pytest.raises(DataCorrupted, match="cannot be read as a table"):
        read_table(tmp_path / "a.npy")


@pytest.mark.parametrize("suffix", ["npy", "h5"])
def test_a_cut_table_is_refused_by_name(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    table = random().standard_normal((500, 3))
    np.save(path, table) if suffix == "npy" else write_hdf(path, data=table)
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(DataCorrupted, match=rf"a\.{suffix} cannot be used"):
        read_table(path)


@pytest.mark.parametrize("table", [np.zeros(3), np.zeros((2, 2), complex), np.zeros((0, 3))])
def test_what_is_no_table_of_numbers_is_refused(tmp_path, table):
    np.save(tmp_path / "a.npy", table)
    with pytest.raises(DataCorrupted, match="cannot be read as a table"):
        read_table(tmp_path / "a.npy")


@pytest.mark.parametrize("value", [np.inf, np.nan, 1e300])
@pytest.mark.parametrize("suffix", ["npy", "h5"])
def test_a_value_that_is_no_usable_number_is_named_with_its_row(tmp_path, value, suffix):
    path = tmp_path / f"a.{suffix}"
    table = random().standard_normal((5, 3))
    table[3, 1] = value
    np.save(path, table) if suffix == "npy" else write_hdf(path, data=table)
    with pytest.raises(DataCorrupted, match=rf"a\.{suffix} .*row 3 has the value"):
        read_table(path)


def test_a_header_that_promises_too_much_allocates_nothing(tmp_path):
    path = tmp_path / "a.npy"
    with path.open("wb") as stream:
        shape = (1 << 40, 8)
        header = {"descr": "<f8", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)
    with pytest.raises(DataCorrupted, match="cannot be read as a table"):
        read_table(path)


# ------------------------------------------------------------- HDF5 and other files


def soft_link(file: h5py.File, secret: Path) -> None:
    file["table"] = np.zeros((2, 2))
    file["link"] = h5py.SoftLink("/table")


def external_link(file: h5py.File, secret: Path) -> None:
    file["link"] = h5py.ExternalLink(str(secret), "/table")


def external_storage(file: h5py.File, secret: Path) -> None:
    file.create_dataset("table", (2, 2), "u1", external=[(str(secret), 0, 4)])


def virtual(file: h5py.File, secret: Path) -> None:
    layout = h5py.VirtualLayout((2, 2), "f8")
    layout[:] = h5py.VirtualSource(str(secret), "table", (2, 2))
    file.create_virtual_dataset("table", layout)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (soft_link, "it contains a link, link"),
        (external_link, "it contains a link, link"),
        (external_storage, "stored in other files"),
        (virtual, "stored in other files"),
    ],
)
def test_hdf_reads_no_other_file(tmp_path, make, reason):
    write_hdf(tmp_path / "secret", table=np.ones((2, 2)))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        make(file, tmp_path / "secret")
    with pytest.raises(DataCorrupted, match=reason):
        read_table(tmp_path / "a.h5")


def test_a_small_hdf_file_with_a_huge_table_is_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("table", (1 << 29, 8), "f8", chunks=(1 << 10, 8), compression="gzip")
    with pytest.raises(DataCorrupted, match="too large"):
        read_table(tmp_path / "a.h5")


def test_columns_are_dropped_from_the_left_until_none_are_alike():
    a, b, c = torch.randn(3, 50).double()
    table = torch.stack([a, b, a + 0.01 * b, -c, c, 2 * c], dim=1)
    assert drop_correlated(table).equal(table[:, [1, 2, 3, 5]])


def test_ethylene_text_gives_its_sensors_in_any_number_of_pieces(tmp_path):
    table = sensors(30)
    write_ethylene(tmp_path / "ethylene_CO.txt", table)
    whole = read_ethylene(tmp_path / "ethylene_CO.txt")
    assert whole.shape == (30, 16)
    np.testing.assert_allclose(whole, table, rtol=1e-6)
    assert read_ethylene(tmp_path / "ethylene_CO.txt", chunk=500).equal(whole)


@pytest.mark.parametrize("damage", [lambda text: text[:-40], lambda text: text[:20]])
def test_a_cut_ethylene_text_is_refused(tmp_path, damage):
    path = tmp_path / "ethylene_CO.txt"
    write_ethylene(path, sensors(30))
    path.write_text(damage(path.read_text()))
    with pytest.raises(DataCorrupted, match=r"ethylene_CO\.txt cannot be used"):
        read_ethylene(path)


def test_gas_from_text_is_a_quarter_of_the_rows(tmp_path, small_sizes):
    write_ethylene(in_folder(tmp_path / "gas/ethylene_CO.txt"), sensors(400))
    splits = load("gas", tmp_path)
    assert sizes(splits) == (81, 9, 10)
    assert splits.spec.shape == (8,)


@pytest.mark.parametrize("columns", [8, 16, 19])
@pytest.mark.parametrize("suffix", ["npy", "h5"])
def test_gas_from_a_converted_table_keeps_the_last_sensors(tmp_path, columns, suffix, small_sizes):
    table = sensors(100)
    wanted = table[:, 8:]
    table = np.concatenate([np.zeros((100, 3)), table], axis=1)[:, -columns:]
    path = in_folder(tmp_path / f"gas/ethylene_CO.{suffix}")
    np.save(path, table) if suffix == "npy" else write_hdf(path, data=table)
    x = load("gas", tmp_path).test.tensors.x.double()
    train = torch.from_numpy(wanted[:81])
    last = (torch.from_numpy(wanted[90:]) - train.mean(0)) / train.std(0, unbiased=False)
    torch.testing.assert_close(x.sort(0).values, last.sort(0).values, atol=1e-5, rtol=1e-4)


def test_gas_with_other_columns_is_refused(tmp_path):
    np.save(in_folder(tmp_path / "gas/ethylene_CO.npy"), np.random.rand(100, 5))
    with pytest.raises(DataCorrupted, match="5 columns instead of 8"):
        load("gas", tmp_path)


def test_the_papers_tenth_of_gas_has_the_rows_that_it_counts():
    # 10 % of the rows of MAF's parts, which the appendix counts.
    assert [len(tenth(torch.empty(rows, 0))) for rows in (852_174, 105_206)] == [85_217, 10_520]


def test_gas_as_in_the_paper_is_a_tenth_scaled_by_all_rows(tmp_path, small_sizes):
    table = sensors(100)[:, 8:]
    table[-10:] += 1000  # what is tested is seen in the scale
    np.save(in_folder(tmp_path / "gas/ethylene_CO.npy"), table)
    paper = load("gas", tmp_path, preprocessing="paper")
    standard = load("gas", tmp_path)
    assert sizes(paper) == (8, 1, 1)
    assert paper.test.tensors.x.max() < 5 < standard.test.tensors.x.max()


def test_air_quality_leaves_out_rows_with_a_missing_value(tmp_path):
    table = random().standard_normal((6, 8)).round(4)
    table[2, 3] = -200
    write_air_quality(tmp_path / "a.csv", table)
    rows = read_air_quality(tmp_path / "a.csv")
    np.testing.assert_allclose(rows, np.delete(table, 2, axis=0))


def test_a_cut_air_quality_file_is_refused(tmp_path):
    write_air_quality(tmp_path / "a.csv", random().standard_normal((6, 8)))
    text = (tmp_path / "a.csv").read_text()
    for broken, reason in (
        (text[: text.index(";;;;") - 30], "line 7: it has 12 columns instead of 17"),
        (text.replace("PT08.S1", "S1"), "columns are not those of Air Quality"),
        ("", "columns are not those of Air Quality"),
    ):
        (tmp_path / "a.csv").write_text(broken)
        with pytest.raises(DataCorrupted, match=reason):
            read_air_quality(tmp_path / "a.csv")


@pytest.mark.parametrize("word", ["inf", "nan", "1e300", "", "1,2,3"])
def test_air_quality_refuses_a_cell_that_is_no_number(tmp_path, word):
    write_air_quality(tmp_path / "a.csv", np.full((6, 8), 7.25))
    text = (tmp_path / "a.csv").read_text().split("\n")
    text[3] = text[3].replace("7,2500", word, 1)
    (tmp_path / "a.csv").write_text("\n".join(text))
    with pytest.raises(DataCorrupted, match=r"line 4: .* is not a number"):
        read_air_quality(tmp_path / "a.csv")


def test_ethylene_refuses_lines_whose_numbers_only_add_up(tmp_path):
    path = tmp_path / "ethylene_CO.txt"
    write_ethylene(path, sensors(30))
    lines = path.read_text().split("\n")
    *lines[4:5], moved = lines[4].rsplit(" ", 1)
    lines[5] += f" {moved}"
    path.write_text("\n".join(lines))
    with pytest.raises(DataCorrupted, match="line 5: it has 18 numbers instead of 19"):
        read_ethylene(path)


def test_gas_falls_back_to_its_stand_in_and_says_so(tmp_path):
    write_air_quality(
        in_folder(tmp_path / "gas_standin/AirQualityUCI.csv"), random().standard_normal((100, 8))
    )
    splits = load("gas", tmp_path)
    assert splits.spec.completeness == "stand-in"
    assert "not results on Gas" in splits.spec.note
    assert sizes(splits) == (81, 9, 10)


def test_miniboone_is_split_in_order_and_scaled_by_its_training_rows(small_files, small_sizes):
    rows = torch.from_numpy(np.load(small_files / "miniboone/data.npy"))
    for preprocessing, fitted in (("standard", rows[:81]), ("paper", rows[:90])):
        splits = load("miniboone", small_files, preprocessing=preprocessing)
        assert sizes(splits) == (81, 9, 10)
        wanted = (rows[90:] - fitted.mean(0)) / fitted.std(0, unbiased=False)
        got = splits.test.tensors.x.double()
        torch.testing.assert_close(got.sort(0).values, wanted.sort(0).values, atol=1e-5, rtol=1e-4)


def test_miniboone_without_its_training_rows_is_fitted_on_the_validation_rows(tmp_path):
    valid, test = random(1).standard_normal((3284, 43)), random(2).standard_normal((3648, 43))
    np.save(in_folder(tmp_path / "miniboone/val.npy"), valid)
    np.save(in_folder(tmp_path / "miniboone/test.npy"), test)
    standard = load("miniboone", tmp_path)
    assert standard.spec.completeness == "part"
    assert "training rows are missing" in standard.spec.note
    assert sizes(standard) == (2956, 328, 3648)
    paper = load("miniboone", tmp_path, preprocessing="paper").test.tensors.x
    assert paper.sort(0).values.equal(torch.from_numpy(test).float().sort(0).values)


# ---------------------------------------------------------------------------- real files


def test_real_miniboone_part_is_standardised_and_43_wide(data_root):
    splits = load("miniboone", data_root, preprocessing="paper")
    if splits.spec.completeness != "part":
        pytest.skip("the whole data set is there")
    assert sizes(splits) == (2956, 328, 3648)
    assert splits.spec.shape == (43,)
    assert splits.test.tensors.x.mean(0).abs().max() < 0.2


def test_real_stand_in_of_gas_has_8991_complete_rows(data_root):
    splits = load("gas", data_root)
    if splits.spec.completeness != "stand-in":
        pytest.skip("Gas itself is there")
    assert sum(sizes(splits)) == 8991
    assert splits.spec.shape == (8,)
