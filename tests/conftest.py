"""Fixtures that every test may use."""

import functools
import os
import signal
from pathlib import Path

import pytest
import torch


def pytest_configure(config: pytest.Config) -> None:
    """Give each worker of pytest-xdist one thread, so that they do not fight for cores."""
    if hasattr(config, "workerinput"):
        torch.set_num_threads(1)
    # Started in the background or by nohup, a process ignores these signals, and so would every
    # process that a test starts and interrupts.
    for name, usual in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
        which = getattr(signal, name, None)  # Windows has no SIGHUP
        if which is not None and signal.getsignal(which) is signal.SIG_IGN:
            signal.signal(which, usual)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Every test starts from the same random state, whatever ran before it."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of data sets named by SNOPT_DATA; tests that need it skip without."""
    named = os.environ.get("SNOPT_DATA")
    if not named:
        pytest.skip("SNOPT_DATA is not set: it names the folder that holds the data sets")
    root = Path(named)
    if not root.is_dir():
        pytest.skip(f"SNOPT_DATA names {named!r}, which is not a folder")
    return root


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trace as the compiler does, but run the traced graph: seconds instead of minutes."""
    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
