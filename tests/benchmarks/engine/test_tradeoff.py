"""Adjoints against the default."""

import json

import pytest

from benchmarks.command import parse
from benchmarks.engine import tradeoff

CASE, OTHER = "cnf_miniboone_small", "Checkpoint(keep=0)"


@pytest.mark.parametrize("slow", [1e9, 0.0])
def test_command_writes_ratios_to_the_default(tmp_path, monkeypatch, slow):
    monkeypatch.setattr(tradeoff, "peak", lambda make, name, *rest: float(len(name)))
    # With no limit of seconds for the other one, it runs once.
    monkeypatch.setattr(
        tradeoff, "too_slow", lambda name, seconds: name == OTHER and seconds > slow
    )
    out = tmp_path / "tradeoff.json"
    flags = ["--cases", CASE, "--adjoints", OTHER, "--repeats", "2", "--out", str(out)]
    module, chosen = parse("benchmarks.engine", ["tradeoff", *flags])
    module.main(chosen)
    found = json.loads(out.read_text())[CASE]["contenders"]
    other, usual = found[OTHER], found[tradeoff.DEFAULT]
    assert usual["time"]["median"] == usual["memory"] == 1.0
    assert other["rounds"] == (2 if slow else 1)
    assert other["memory"] == len(OTHER) / len(tradeoff.DEFAULT)
    assert other["evaluations"][0] >= usual["evaluations"][0]  # one run has not settled
    assert other["evaluations"][1] == 6 * other["steps"] > usual["evaluations"][1]
