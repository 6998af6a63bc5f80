"""Two source trees side by side; here both are this one."""

from pathlib import Path

import pytest

import snopt
from benchmarks.engine import against

SOURCE = Path(snopt.__file__).parents[1]


def test_folder_without_the_package_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="holds no package snopt"):
        against.compare(tmp_path, ["image"], repeats=1)


def test_tree_that_loads_another_package_is_refused(tmp_path):
    package = tmp_path / "snopt"
    package.mkdir()
    (package / "__init__.py").write_text(f"__file__ = {str(SOURCE / 'snopt.py')!r}")
    with pytest.raises(RuntimeError, match="instead"):
        against.compare(tmp_path, ["image"], repeats=1)


def test_tree_without_what_is_needed_is_named(tmp_path):
    package = tmp_path / "snopt"
    package.mkdir()
    (package / "__init__.py").write_text("")
    found = against.compare(tmp_path, ["cnf_miniboone_small"], repeats=1)
    refused = found["workloads"]["cnf_miniboone_small"]["cannot_run"]
    assert refused["there"].startswith("AttributeError")


@pytest.mark.slow
def test_tree_over_itself_does_the_same_work():
    found = against.compare(SOURCE, ["cnf_miniboone_small"], repeats=2)
    result = found["workloads"]["cnf_miniboone_small"]
    here, there = result["first"]["here"], result["first"]["there"]
    assert here == there
    assert 0.2 < result["ratio"]["median"] < 5.0
