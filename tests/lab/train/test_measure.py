import subprocess
import sys

import pytest
import torch

from snopt.lab.train.measure import Meter
from tests.lab.train.problems import small_model

CPU = torch.device("cpu")


def test_counts_are_of_all_blocks_since_the_reset():
    model = torch.nn.Sequential(small_model(), small_model())
    meter, x = Meter(model, CPU), torch.randn(4, 2, dtype=torch.float64)
    for _ in range(2):
        meter.reset()
        model(x).sum().backward()
        counts = meter.read()
        blocks = [model[0][0], model[1][0]]
        assert counts["nfe_forward"] == sum(b.stats.nfe_forward for b in blocks) > 0
        assert counts["horizon"] == [1.0, 1.0]


def test_model_without_blocks_has_no_horizon():
    assert "horizon" not in Meter(torch.nn.Linear(1, 1), CPU).read()


@pytest.mark.skipif(sys.platform != "linux", reason="the peak can be forgotten on Linux only")
def test_memory_is_the_peak_since_the_reset():
    # In a process of its own: one that has run for long has memory to spare, and takes no more.
    body = """if True:
        import torch
        from snopt.lab.train.measure import Meter
        meter = Meter(torch.nn.Linear(1, 1), torch.device("cpu"))
        meter.reset()
        quiet = meter.memory()
        torch.ones(30_000_000)  # 114 MiB, which are given back at once
        assert meter.memory() > quiet + 100
        meter.reset()
        assert meter.memory() < quiet + 50
    """
    subprocess.run([sys.executable, "-c", body], check=True)
