"""Running a case under an adjoint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import snopt
from snopt.adjoint.quadrature import PerStep
from tests.fuzz.cases import Case
from tests.fuzz.fields import FuzzField, context_of, flat, hung, initial_parts, loss_of

#: Attempted steps after which a case is not worth its time.
MOST_STEPS = 60
#: The class of a solve's counts, wherever it is defined.
Stats = type(snopt.NeuralODE(nn.Identity()).stats)


@dataclass
class Outcome:
    """What a run gave: states, gradients by name, and what it left behind."""

    outputs: list[Tensor]
    gradients: dict[str, Tensor] = field(default_factory=dict)
    buffers: dict[str, Tensor] = field(default_factory=dict)
    accepted: int = 0
    rejected: int = 0
    step: float = 0.0  # the step that each solve ended with, added up


@dataclass
class Recorder:
    """An observer that adds weights up."""

    quadrature: PerStep
    weight: float = 0.0
    nodes: list[tuple[float, float]] = field(default_factory=list)
    finite: bool = True

    def observe(self, t: Tensor, weight: float, x: Any, Q_x: Any, *context: Any) -> None:
        self.weight += weight
        self.nodes.append((float(t), weight))
        self.finite &= all(bool(torch.isfinite(part).all()) for part in flat(x) + flat(Q_x))


def options_of(case: Case) -> dict[str, Any]:
    """The solver's options."""
    options: dict[str, Any] = {"max_num_steps": MOST_STEPS}
    if case.first_step is not None:
        options["first_step"] = case.first_step * abs(case.span)
    if case.step_size is not None:
        options["step_size"] = case.step_size * abs(case.span)
    if case.grid:  # which says itself where steps end
        options["grid_constructor"] = bent_grid
    elif case.jump == "told":
        options["jump_t"] = [case.jump_time]
    return options


def bent_grid(field: Any, x0: Any, t: Tensor) -> Tensor:
    """A grid of unequal steps, on which inner outputs do not lie."""
    parts = torch.linspace(0.0, 1.0, 9, dtype=t.dtype) ** 1.3
    grid = t[0].detach() + (t[-1] - t[0]).detach() * parts
    return torch.cat([grid[:-1], t[-1:].detach()])


def call(
    case: Case,
    model: FuzzField,
    parts: Sequence[Tensor],
    times: Any,
    observer: Any = None,
    context: Any = None,
    **settings: Any,
) -> tuple[list[Tensor], list[Any]]:
    """Solve through the case's entry; the stacked states and the counts of each solve."""
    x0 = hung(case, list(parts))
    if case.entry in ("block", "horizon"):
        return _call_block(case, model, x0, times, observer, context, settings)
    stats = Stats()
    more = {"observer": observer, "stats": stats, "context": context, **settings}
    function: Any = model
    if case.entry == "closure":
        more["adjoint_params"] = tuple(model.parameters())
        function = lambda t, x, *given: model(t, x, *given)  # noqa: E731
    if case.entry == "odeint_adjoint":
        del more["adjoint"]
        return flat(snopt.odeint_adjoint(function, x0, times, **more)), [stats]
    return flat(snopt.odeint(function, x0, times, **more)), [stats]


def _call_block(case: Case, model: FuzzField, x0: Any, times: Any, observer: Any, context: Any,
                settings: dict[str, Any]) -> tuple[list[Tensor], list[Any]]:  # fmt: skip
    """Solve by a block, perhaps twice; outputs of several calls lie side by side."""
    block = snopt.NeuralODE(model, horizon=case.times[-1], t0=case.times[0], **settings)
    block.train(case.training)
    block.observer = observer
    return call_block(case, block, x0, times, context)


def call_block(case: Case, block: Any, x0: Any, times: Any,
               context: Any) -> tuple[list[Tensor], list[Any]]:  # fmt: skip
    """Call a block as often as the case says."""
    outputs: list[Tensor] = []
    counts = []
    for _ in range(case.calls):
        if case.entry == "horizon":
            outputs += [part[None] for part in flat(block(x0, context=context))]
        else:
            outputs += flat(block(x0, times, context=context))
        counts.append(block.stats)
    return outputs, counts


def adjoint_of(case: Case) -> Any:
    """The adjoint that a case names, with its options."""
    objects = {
        "checkpoint": snopt.Checkpoint(keep=case.keep),
        "reversible": snopt.Reversible(eta=case.eta),
    }
    return objects.get(case.adjoint, case.adjoint)


def run(case: Case, adjoint: Any, observer: Any = None, **changes: Any) -> Outcome:
    """Solve a case and differentiate its loss.

    The field and its random numbers are made anew from the case's seed, so that runs differ in
    nothing but the adjoint.
    """
    model, parts = FuzzField(case), initial_parts(case)
    context, rate = context_of(case)
    settings = {
        "method": case.method, "rtol": case.rtol, "atol": case.atol, "options": options_of(case),
        "adjoint": adjoint, **changes,
    }  # fmt: skip
    times: Any = list(case.times)
    if case.t_grad:
        times = torch.tensor(times, dtype=parts[0].dtype, requires_grad=True)
    torch.manual_seed(case.seed)
    outputs, counts = call(case, model, parts, times, observer, context, **settings)
    leaves = {f"x{i}": part for i, part in enumerate(parts)}
    leaves |= dict(model.named_parameters()) | rate
    if case.t_grad:
        leaves["t"] = times
    return finished(case, outputs, leaves, model, counts)


def finished(case: Case, outputs: list[Tensor], leaves: dict[str, Tensor], model: nn.Module,
             counts: Sequence[Any]) -> Outcome:  # fmt: skip
    """Run the backward pass and collect."""
    sought = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    loss = loss_of(case, outputs)
    if case.through == "state" and case.x_grad:
        sought = {name: leaf for name, leaf in sought.items() if name in ("x0", "x1", "x2")}
    elif case.through == "parameters" and set(sought) - {"x0", "x1", "x2"}:
        sought = {name: leaf for name, leaf in sought.items() if name not in ("x0", "x1", "x2")}
    gradients: dict[str, Tensor] = {}
    if loss.requires_grad:
        for turn in range(1 + case.again):
            keep = case.again and turn == 0
            found = derivatives(loss, sought, keep=keep, backward=case.through == "backward")
            gradients |= {name + "'" * turn: value for name, value in found.items()}
    return Outcome(
        [part.detach() for part in outputs],
        gradients,
        {name: buffer.clone() for name, buffer in model.named_buffers()},
        sum(stats.accepted for stats in counts),
        sum(stats.rejected for stats in counts),
        sum(stats.last_step or 0.0 for stats in counts),
    )


def derivatives(loss: Tensor, leaves: dict[str, Tensor], *, keep: bool,
                backward: bool) -> dict[str, Tensor]:  # fmt: skip
    """Gradients by name, zero where there is none."""
    if backward:
        loss.backward(retain_graph=keep)
        found = [leaf.grad for leaf in leaves.values()]
        for leaf in leaves.values():
            leaf.grad = None
    else:
        asked = list(leaves.values())
        found = list(torch.autograd.grad(loss, asked, retain_graph=keep, allow_unused=True))
    return {
        name: torch.zeros_like(leaf) if grad is None else grad
        for (name, leaf), grad in zip(leaves.items(), found, strict=True)
    }


def distance(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """The largest relative distance of two sets of tensors.

    Each tensor is measured by its own size, but by no less than a thousandth of all: what is
    left of large numbers that cancel is rounding.
    """
    if found.keys() != expected.keys():
        return math.inf
    sizes = {name: float(value.double().norm()) for name, value in expected.items()}
    floor = 1e-3 * max(sizes.values(), default=0.0)
    worst = 0.0
    for name, value in expected.items():
        gap = float((found[name].double() - value.double()).norm())
        if not gap <= 0.0:
            worst = max(
                worst, gap / max(sizes[name], floor, 1e-300), 0.0 if gap == gap else math.inf
            )
    return worst


def named(values: Sequence[Tensor]) -> dict[str, Tensor]:
    """Tensors in a row as tensors by name."""
    return {str(i): value for i, value in enumerate(values)}
