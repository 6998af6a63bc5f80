"""Memory that a piece of work takes."""

import subprocess
import sys

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="the peak can be forgotten on Linux only")
def test_the_rise_is_what_the_work_takes():
    # In a process of its own: one that has run for long has memory to spare, and takes no more.
    body = """if True:
        import torch
        from snopt.lab.paper.peak import rise
        taken = rise(lambda: torch.ones(30_000_000))  # 114 MiB
        assert 100 < taken < 200, taken
    """
    subprocess.run([sys.executable, "-c", body], check=True)
