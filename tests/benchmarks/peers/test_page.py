"""The tables against peers: all from complete results, and fewer from partial ones."""

from functools import partial

import pytest

from benchmarks.files import environment, save_figure
from benchmarks.peers.figures import draw_growth, draw_peers
from benchmarks.peers.page import number, tables, versions

CASES = ("image", "ode_rnn")

SPREAD = {"lower": 1.5, "median": 2.0, "upper": 2.5}
ENVIRONMENT = {"date": "today", "packages": {"torch": "2.13.0"}}
OVER = {"snopt_checkpoint": SPREAD, "snopt_compiled": SPREAD}


def contender(**more):
    return {"error": {"parameters": 2e-5, "inputs": 3e-5}, **more}


ENGINES = {
    "image": {
        "form": "plain",
        "rounds": 5,
        "reference_error": {"parameters": 1e-6, "inputs": 1e-6},
        "contenders": {
            "snopt_checkpoint": contender(forward=SPREAD, both=SPREAD),
            "torchode_autodiff": contender(
                forward=SPREAD, both=SPREAD, forward_over=OVER, both_over=OVER
            ),
            "diffrax_checkpoint": contender(both=SPREAD),
        },
        "cannot_run": {"diffrax_backsolve": "not tried"},
        "environment": ENVIRONMENT,
    }
}
MEMORY = {
    "image": {
        "megabytes": {"snopt_checkpoint": 100.0, "torchode_autodiff": 250.0},
        "cannot_run": {"diffrax_backsolve": "not tried"},
        "environment": ENVIRONMENT,
    }
}
OPTIMIZERS = {
    "ode_rnn": {
        "form": "plain",
        "contenders": {"soap": {"seconds": SPREAD, "over_adam": SPREAD, "refresh_every": 10}},
        "cannot_run": {"singd": "ImportError: no singd"},
        "environment": ENVIRONMENT,
    }
}
REACHED = {"iterations": 30, "seconds": 1.25, "reached": 3, "seeds": [None] * 3}
MISSED = {"iterations": None, "seconds": None, "reached": 2, "seeds": [None] * 3}
TARGETS = {
    "digits": {
        "seeds": [0, 1, 2],
        "limit": 150,
        "look_every": 5,
        "contenders": {"adam": {"rate": 0.01, "targets": {"90": REACHED, "95": MISSED}}},
        "cannot_run": {},
        "environment": ENVIRONMENT,
    }
}
PROFILE = {
    "ode_rnn": {
        "unit": "interval",
        "units": 92,
        "operators": {
            "calls": 9200,
            "kinds": {"elementwise": 0.25, "views": 0.75},
        },
        "environment": ENVIRONMENT,
    }
}
GROWN = {
    "axes": {
        "batch": {
            "sizes": [64, 128],
            "contenders": {"adam": {"milliseconds": [1.0, 2.0], "megabytes": [3.0, 12.0]}},
        }
    },
}
PARTS = {
    "engines": ENGINES,
    "memory": MEMORY,
    "optimizers": OPTIMIZERS,
    "targets": TARGETS,
    "profile": PROFILE,
}
ROWS = {
    "engines": "| `torchode_autodiff` | 2 (2) / 2e-05 /",
    "memory": "/ 250 |",
    "optimizers": "| `soap` | 10 | **2.00** (1.50–2.50) |",
    "targets": "| `adam` | 0.01 | 30 (1.25 s) | 2 of 3 seeds |",
    "profile": "| elementwise | 25 % |",
    "growth": "| batch, 64 to 128 | 1.00 / 2.00 |",
}


def text(peers, grown):
    return "\n\n".join(tables(peers, grown).values())


def test_there_is_a_row_of_every_part():
    whole = text(PARTS, GROWN)
    for row in ROWS.values():
        assert row in whole
    assert "today: torch 2.13.0." in whole
    assert "`singd` on `ode_rnn`: ImportError: no singd." in whole


def test_short_table_has_each_library_at_its_fastest():
    assert "| `image` | eager, 2 s | – | – | 2.00 (autodiff) | – |" in text(PARTS, GROWN)


@pytest.mark.parametrize("part", PARTS)
def test_part_that_was_not_measured_has_no_table(part):
    found = text({name: found for name, found in PARTS.items() if name != part}, GROWN)
    assert ROWS[part] not in found
    # Memory is a part of the cells of the engines.
    others = [other for other in ROWS if other != part and (part, other) != ("engines", "memory")]
    assert all(ROWS[other] in found for other in others)


def test_nothing_measured_makes_no_table():
    assert tables({}, {}) == {}


def test_engine_that_ran_once_has_no_time_of_the_loss_alone():
    assert "| `diffrax_checkpoint` | 2 / 2e-05 / – |" in text({"engines": ENGINES}, {})


def test_error_of_the_reference_is_shown():
    assert "| error of the reference | 1e-06 |" in text({"engines": ENGINES}, {})


def test_rows_of_a_table_have_one_length():
    for block in text(PARTS, GROWN).split("\n\n"):
        if block.startswith("|"):
            assert len({line.count("|") for line in block.splitlines()}) == 1, block


def test_figures_are_drawn_where_an_engine_is_slow_or_missing(tmp_path):
    engines = {case: {"contenders": dict(ENGINES["image"]["contenders"])} for case in CASES}
    for found in engines.values():
        found["contenders"]["torchdiffeq_adjoint"] = contender(both=SPREAD)
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
    assert f"torch {environment()['packages']['torch']}" in versions(environment())


def test_numbers_have_three_digits_and_no_exponent_when_large():
    assert [number(value) for value in (0.012345, 2.5, 1234.5, None)] == [
        "0.0123",
        "2.5",
        "1234",
        "–",
    ]
