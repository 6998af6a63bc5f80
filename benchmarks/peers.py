"""Measure the engine against diffrax, torchode and torchdyn on the four workloads.

    python -m benchmarks.peers [--cases ...] [--repeats N] [--out FILE]

One interleaved run a workload, forward plus backward. Run it in an environment with the
packages of ``benchmarks/requirements-peers.txt``. A peer that cannot run a workload is written
down with its reason.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.cases import CASES
from benchmarks.contenders import BASELINE, CONTENDERS, SETTLING, Trial
from benchmarks.environment import environment
from benchmarks.peer_diffrax import ADJOINTS, DiffraxTrial
from benchmarks.peer_torch import TORCH_PEERS
from benchmarks.timing import interleave, ratios, summary

RESULTS = Path(__file__).parent / "results"
OURS = ("snopt_checkpoint", "snopt_compiled")
MAKERS = {**CONTENDERS, **TORCH_PEERS}
NAMES = (*OURS, *ADJOINTS, *TORCH_PEERS, BASELINE)
# The form of the flows' field that every library, compilers included, can work with.
FORMS = {"cnf_miniboone": "tangent", "cnf_gas": "tangent"}


def trial(name: str, case: str, form: str) -> Any:
    """Prepare one library on one workload."""
    if name in ADJOINTS:
        return DiffraxTrial(name, case, form)
    return Trial(name, case, form, MAKERS)


def prepare(names: list[str], case: str, form: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Run everyone once; return those that can, and why the others cannot."""
    able, unable = {}, {}
    for name in names:
        try:
            candidate = trial(name, case, form)
            candidate.run()
        except Exception as error:  # noqa: BLE001 - a peer may fail in any way
            unable[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
            print(f"{case:14} {name:20} cannot run: {unable[name]}", flush=True)
        else:
            able[name] = candidate
    return able, unable


def measure(case: str, names: list[str], repeats: int) -> dict[str, Any]:
    """Time everyone able to run a workload, side by side."""
    form = FORMS.get(case, CASES[case].forms[0])
    able, unable = prepare(names, case, form)
    times = interleave({name: each.run for name, each in able.items()}, repeats, SETTLING)
    found = {
        name: {
            "seconds": summary(times[name]),
            **{f"{ours}_over": summary(ratios(times, ours, name)) for ours in OURS if ours in able},
        }
        for name in able
    }
    for name, figures in found.items():
        text = "  ".join(f"{key} {value['median']:.4g}" for key, value in figures.items())
        print(f"{case:14} {name:20} {text}", flush=True)
    return {"form": form, "rounds": repeats, "contenders": found, "cannot_run": unable}


def main() -> None:
    """Measure what the command line asks for, writing after each workload."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--contenders", nargs="+", default=list(NAMES), choices=NAMES)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS / "peers.json")
    chosen = parser.parse_args()
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    for case in chosen.cases:
        measured = measure(case, chosen.contenders, chosen.repeats)
        kept = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
        kept[case] = {**measured, "environment": environment()}
        chosen.out.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
