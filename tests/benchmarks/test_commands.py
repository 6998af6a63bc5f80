"""Every command of every group, at its smallest size."""

import json
import os
import shutil
from pathlib import Path

import pytest

import snopt
from benchmarks import engine, optimizer, peers, theory
from benchmarks.command import parse
from benchmarks.files import DOCS

pytest.importorskip("matplotlib")
SOURCE = Path(snopt.__file__).parents[1]
GROUPS = {"engine": engine, "optimizer": optimizer, "peers": peers, "theory": theory}

SMALLEST = {
    "engine measure": "--cases cnf_miniboone_small --forms tangent --quick "
    "--contenders snopt_checkpoint --parts work --out {out}",
    "engine memory": "--steps 2 --out {out}",
    "engine choosing": None,  # writes docs; seconds long: its parts are tested by the page
    "engine limit": "--cases cnf_miniboone_small --repeats 1 --eager --out {out}",
    "engine tradeoff": "--cases cnf_miniboone_small --adjoints Checkpoint() --repeats 1 "
    "--out {out}",
    "optimizer race": "--split tune --tasks digits circle --methods snopt adam --rates 0.01 "
    "--seeds 1 --updates 2 --scale smoke --out {folder}",
    "optimizer cost": "--cases cnf_miniboone_small --repeats 1",
    "optimizer releases": "--against {source} --tasks two_moons --seeds 1 --updates 1 --no-adam "
    "--out {out}",
    "optimizer sensitivity": "--only default --iterations 1 --out {out}",
    "optimizer scaling": "--repeats 1 --out {out}",
    "optimizer page": None,
    "peers measure": "--parts memory --only ode_rnn --contenders torchdiffeq_direct --out {out}",
    "peers equal": "--only cnf_gas --contenders torchdiffeq_direct --rounds 2 --out {out}",
    "peers growth": "--axes steps --sizes 2 --repeats 1 --out {out}",
    "peers page": "--out {folder}",
    "theory figures": "--iterations 25 --out {folder}",
    "theory errors": "--cases mlp_2d --methods rk4 --coarsest --out {out}",
    "theory memory": "--axes steps --methods SNOpt --sizes 2 --out {out}",
    "theory horizon": "--tasks mnist --seeds 0 --out {out} --set model.width=2 "
    "train.batch_size=4 train.iterations=1 train.evaluate_every=1",
}
SLOW = {
    "engine memory", "engine tradeoff", "optimizer cost", "optimizer releases",
    "optimizer scaling", "peers equal", "peers measure", "theory figures", "theory memory",
}  # fmt: skip
FAST = [
    pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
    for name, flags in SMALLEST.items()
    if flags is not None
]


def test_every_command_is_tried():
    assert set(SMALLEST) == {f"{g} {name}" for g, m in GROUPS.items() for name in m.COMMANDS}


@pytest.mark.parametrize("command", FAST)
def test_command_runs_at_its_smallest_size(command, tmp_path, request):
    group, name = command.split()
    if command == "theory horizon":
        request.getfixturevalue("data_root")
    if name == "page":
        shutil.copy(DOCS / "peers.md", tmp_path)
    out = tmp_path / "out.json"
    places = {"out": out, "folder": tmp_path, "source": SOURCE}
    flags = [word.format(**places) for word in SMALLEST[command].split()]
    module, chosen = parse(f"benchmarks.{group}", [name, *flags])
    module.main(chosen)
    if command != "optimizer cost":
        assert os.listdir(tmp_path)
    if out.exists():
        assert json.loads(out.read_text())


@pytest.mark.parametrize("group", GROUPS)
def test_group_without_a_command_is_its_first_one(group):
    module, _ = parse(f"benchmarks.{group}", [])
    assert module.__name__ == f"benchmarks.{group}.{GROUPS[group].COMMANDS[0]}"


def test_unknown_command_is_refused_with_those_there_are():
    with pytest.raises(SystemExit, match="no command 'mesure'; it has measure, limit"):
        parse("benchmarks.engine", ["mesure"])
