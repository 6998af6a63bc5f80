"""Blocks that are compiled once and then given many random cases."""

from __future__ import annotations

import functools
from typing import Any

import torch

import snopt
from tests.fuzz.cases import Case
from tests.fuzz.fields import FuzzField, context_of, hung, initial_parts
from tests.fuzz.solve import MOST_STEPS, Outcome, call_block, finished

#: Structures of field and state, each with the method that it is compiled for.
FAMILIES = (
    Case(kind="tanh", width=2, hidden=4, drive=3.0, gain=2.0, unused=True, method="dopri5"),
    Case(kind="tanh", width=3, hidden=3, state="pair", drive=8.0, shared=True, method="tsit5"),
)


def problem(case: Case) -> Case:
    """The case's data and times in its family's structure."""
    family = FAMILIES[case.family]
    names = ("kind", "width", "hidden", "drive", "gain", "unused", "shared", "state", "method")
    return case.but(**{name: getattr(family, name) for name in names})


@functools.cache
def _field(family: int) -> FuzzField:
    """The one field of a family, whose parameters change from case to case."""
    return FuzzField(problem(Case(family=family)))


@functools.cache
def compiled_block(family: int, keep: int | None) -> Any:
    """The compiled block of a family."""
    return _made(_field(family), family, adjoint=snopt.Checkpoint(keep=keep), compile=True)


def _made(field: FuzzField, family: int, **more: Any) -> Any:
    return snopt.NeuralODE(
        field, method=FAMILIES[family].method, rtol=1e-4, atol=1e-5,
        options={"max_num_steps": MOST_STEPS}, **more,
    )  # fmt: skip


def run(case: Case, *, compile: bool) -> Outcome:
    """Run a case by its compiled block, or by backpropagation."""
    case = problem(case)
    fresh, parts = FuzzField(case), initial_parts(case)
    if compile:
        block = compiled_block(case.family, case.keep)
        # In place: other tensors would be compiled anew.
        with torch.no_grad():
            for mine, its in zip(block.field.parameters(), fresh.parameters(), strict=True):
                mine.copy_(its)
        block.set_number("carried", 0.0)
    else:
        block = _made(fresh, case.family, adjoint="direct")
    block.t0, block.horizon = case.times[0], case.times[-1]
    context, rate = context_of(case)
    outputs, counts = call_block(case, block, hung(case, parts), list(case.times), context)
    leaves = {f"x{i}": part for i, part in enumerate(parts)} | dict(block.field.named_parameters())
    leaves |= rate
    return finished(case, outputs, leaves, block.field, counts)
