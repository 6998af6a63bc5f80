"""The tables of the page: all from complete results, and fewer from partial ones."""

from functools import partial

import pytest

from benchmarks.files import environment, save_figure
from benchmarks.peers.figures import draw_growth, draw_peers
from benchmarks.peers.page import FILES, TABLES, goals_table, stored, tables, versions

CASES = ("image", "ode_rnn")
SPREAD = {"lower": 1.5, "median": 2.0, "upper": 2.5}
OVER = {"snopt_checkpoint": SPREAD, "snopt_compiled": SPREAD}


def contender(**more):
    return {"error": {"parameters": 2e-5, "inputs": 3e-5}, **more}


ENGINES = {
    "image": {
        "form": "plain",
        "reference_error": {"parameters": 1e-6, "inputs": 1e-6},
        "contenders": {
            "snopt_checkpoint": contender(forward=SPREAD, both=SPREAD),
            "torchode_autodiff": contender(forward=SPREAD, both=SPREAD, both_over=OVER),
            "diffrax_checkpoint": contender(both=SPREAD),
        },
        "environment": environment(),
    }
}
MEMORY = {"image": {"megabytes": {"snopt_checkpoint": 100.0, "torchode_autodiff": 250.0}}}
PEERS = {"engines": ENGINES, "memory": MEMORY}
PARTS = {
    "time": {"contenders": {"snopt_checkpoint": {"ratio": {**SPREAD, "median": 0.05}}}},
    "work": {"contenders": {"snopt_checkpoint": {"forward": 25, "backward": 3}}},
    "accuracy": {"contenders": {"reference": {"parameters": 1e-9, "inputs": 2e-9}}},
}
ENGINE = {"image": {"plain": PARTS}}
GROWN = {
    "axes": {
        "batch": {
            "sizes": [64, 128],
            "contenders": {"adam": {"milliseconds": [1.0, 2.0], "megabytes": [3.0, 12.0]}},
        }
    },
}


def shown(**measured):
    return tables({name: {} for name in FILES} | measured)


def test_stored_results_make_every_table_with_rows_of_one_length():
    found = tables(stored())
    assert set(found) == set(TABLES)
    for table in (table for table in found.values() if table.startswith("|")):
        assert len({line.count("|") for line in table.splitlines()}) == 1, table


def test_nothing_measured_makes_no_table():
    assert shown() == {}


def test_short_table_has_each_library_at_its_fastest():
    faster = {ours: {**SPREAD, "median": 1.25} for ours in OVER}
    everyone = ENGINES["image"]["contenders"]
    everyone = {**everyone, "torchode_compiled": contender(both=SPREAD, both_over=faster)}
    engines = {"image": {**ENGINES["image"], "contenders": everyone}}
    table = shown(peers={"engines": engines})["peers-short"]
    assert "| `image` | eager, 2 s | - | - | 1.25 (compiled) | - |" in table


def test_engines_have_time_error_and_memory_where_they_were_measured():
    table = shown(peers=PEERS)["peers-engines"]
    assert "| `torchode_autodiff` | 2 (2) / 2e-05 / 250 |" in table
    assert "| `diffrax_checkpoint` | 2 / 2e-05 / - |" in table  # ran once, no memory
    assert "| error of the reference | 1e-06 |" in table


def test_parts_against_torchdiffeq_are_columns_and_missing_ones_are_dashes():
    table = shown(engine=ENGINE)["torchdiffeq"]
    assert "| `image` | `snopt_checkpoint` | **0.050** (1.500–2.500) | 25 + 3 | - | - |" in table
    assert "| `image` | `reference` | - | - | 1.0e-09 / 2.0e-09 | - |" in table


def test_growth_is_shown_by_exponents():
    assert "| batch, 64 to 128 | 1.00 / 2.00 |" in shown(growth=GROWN)["growth"]


@pytest.mark.parametrize(("median", "met"), [(1.10, "yes"), (1.101, "**no**")])
def test_goal_is_met_by_the_median(median, met):
    measured = stored()
    limit = {**measured["limit"]}
    ratio = {"bound": {"lower": 1.0, "median": median, "upper": 1.2}}
    limit["image"] = {"over": {"snopt_checkpoint": ratio}}
    table = goals_table(limit, measured["engine"], measured["peers"])
    (row,) = (line for line in table.splitlines() if "`image`, eager" in line)
    assert row.endswith(f"| {met} |")


def test_memory_is_compared_with_the_leanest_peer():
    measured = stored()
    used = measured["peers"]["memory"]["image"]["megabytes"]
    used.update(snopt_checkpoint=90.0, snopt_compiled=80.0, torchdyn_adjoint=100.0)
    table = goals_table(*(measured[name] for name in ("limit", "engine", "peers")))
    assert "`image`, `Checkpoint()` | 1.3 | **0.80** | yes |" in table


def test_figures_are_drawn_where_an_engine_is_slow_or_missing(tmp_path):
    engines = {case: {"contenders": dict(ENGINES["image"]["contenders"])} for case in CASES}
    slow = {name: 100 * value for name, value in SPREAD.items()}
    engines["image"]["contenders"]["diffrax_checkpoint"] = contender(both=slow)
    del engines["ode_rnn"]["contenders"]["torchode_autodiff"]
    save_figure(tmp_path / "peers.png", partial(draw_peers, engines=engines))
    adam = GROWN["axes"]["batch"]["contenders"]["adam"]
    both = {"batch": {"sizes": [64, 128], "contenders": {"adam": adam, "snopt": adam}}}
    save_figure(tmp_path / "growth.png", partial(draw_growth, axes=both))
    for name in ("peers.png", "growth.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_versions_are_those_of_the_environment():
    line = f"torch {environment()['packages']['torch']}"
    engine = {"image": {"plain": {"time": {"environment": environment()}}}}
    assert versions(PEERS, engine).count(line) == 2
