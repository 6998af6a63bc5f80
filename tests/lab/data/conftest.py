"""Folders of small files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.data.files import small_registry, write_all


@pytest.fixture(scope="session")
def small_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every data set in small."""
    return write_all(tmp_path_factory.mktemp("data"))


@pytest.fixture
def small_sizes() -> Iterator[None]:
    """The registry takes the small files for whole data sets."""
    with small_registry():
        yield
