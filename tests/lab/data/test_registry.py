import sys

import pytest

from snopt.base.errors import UnknownName
from snopt.lab.data import (
    REGISTRY,
    DataNotFound,
    Entry,
    File,
    Form,
    available,
    load,
    names,
    register,
)
from snopt.lab.data.toy import circle
from tests.lab.data.files import write_mnist

PAPER = [
    "mnist",
    "svhn",
    "cifar10",
    "spoken_arabic_digits",
    "articulary_word_recognition",
    "character_trajectories",
    "circle",
    "gas",
    "miniboone",
]


def test_the_nine_data_sets_of_the_paper_and_the_small_ones_are_there():
    assert set(names()) == {*PAPER, "two_moons", "spirals", "digits"}


def test_an_unknown_name_gets_a_suggestion():
    with pytest.raises(UnknownName, match="unknown data set 'mnsit'; did you mean 'mnist'"):
        load("mnsit")
    with pytest.raises(UnknownName, match="Valid names: paper, standard"):
        load("circle", preprocessing="raw")


def test_a_registered_data_set_is_loaded_and_listed(monkeypatch):
    entry = Entry("two circles again", "table", circle)
    monkeypatch.setitem(REGISTRY, "rings", entry)  # and is taken out again
    register("rings", entry)  # the same once more is no fault
    assert load("rings").train.tensors.x.equal(load("circle").train.tensors.x)
    assert load("rings").spec.name == "rings"
    assert "rings" in [row.name for row in available("nowhere") if row.state == "generated"]


def test_a_registered_data_set_that_needs_files_asks_for_them(monkeypatch, tmp_path):
    form = Form((File("rings.csv"),), "whole", "One file.")
    monkeypatch.setitem(REGISTRY, "rings", Entry("rings", "table", circle, (form,)))
    with pytest.raises(DataNotFound, match=r"missing rings\.csv"):
        load("rings", tmp_path)
    (tmp_path / "rings.csv").touch()
    assert load("rings", tmp_path).spec.completeness == "whole"


def test_a_name_that_is_taken_is_refused():
    with pytest.raises(ValueError, match="'mnist' already"):
        register("mnist", Entry("something else", "table", circle))


def test_missing_files_are_named_with_folder_and_source(tmp_path):
    write_mnist(tmp_path)
    (tmp_path / "mnist/t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataNotFound) as caught:
        load("mnist", tmp_path)
    message = str(caught.value)
    assert f"mnist is not in {tmp_path}: missing mnist/t10k-labels-idx1-ubyte.gz." in message
    assert "https://ossci-datasets.s3.amazonaws.com/mnist/t10k-labels" in message
    assert "snopt.lab.data.fetch('mnist')" in message
    assert "SNOPT_DATA" in message


def test_other_files_that_would_do_are_named_too(tmp_path):
    with pytest.raises(DataNotFound, match=r"gas/ethylene_CO\.txt \(it can also be read from gas/"):
        load("gas", tmp_path)


def test_the_folder_is_that_of_the_variable(small_files, small_sizes, monkeypatch, tmp_path):
    monkeypatch.setenv("SNOPT_DATA", str(small_files))
    assert len(load("mnist").test) == 20
    with pytest.raises(DataNotFound):
        load("mnist", tmp_path)


def test_files_that_are_there_need_no_pooch(small_files, small_sizes, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    for name in names():
        assert len(load(name, small_files).train) > 0


def test_without_variable_the_folder_is_the_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("SNOPT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(DataNotFound, match="snopt: missing mnist/"):
        load("mnist")
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match="SNOPT_DATA"):
        load("mnist")


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_loading_twice_gives_the_same(name, small_files, small_sizes):
    one, two = load(name, small_files), load(name, small_files)
    for part in ("train", "valid", "test"):
        assert getattr(one, part).tensors.x.equal(getattr(two, part).tensors.x)
    assert one.spec == two.spec


def test_list_says_what_is_there(small_files, tmp_path):
    rows = {row.name: row for row in available(small_files)}
    assert list(rows) == list(names())
    assert {rows[name].state for name in PAPER if name != "circle"} == {"whole"}
    assert rows["circle"].state == "generated"
    nothing = {row.name: row for row in available(tmp_path)}
    assert nothing["cifar10"].state == "missing"
    assert nothing["cifar10"].sources == (
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    )


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_entry_is_described(name):
    entry = REGISTRY[name]
    assert entry.summary
    for form in entry.forms:
        assert form.note.endswith(".")
        for file in form.files:
            assert not file.path.startswith("/")
            for checksum in (file.checksum, file.origin and file.origin.checksum):
                if checksum:
                    algorithm, _, value = checksum.rpartition(":")
                    assert len(value) == {"": 64, "md5": 32}[algorithm]
    if any(form.files for form in entry.forms):
        assert any(form.downloadable for form in entry.forms)
