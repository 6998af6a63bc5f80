"""HorizonOptimizer: learns T together with any optimizer of the parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn

from snopt.adjoint.block import NeuralODE
from snopt.adjoint.blocks import blocks_of
from snopt.horizon.averages import Averages, Means
from snopt.horizon.counts import Counts
from snopt.horizon.measure import Listener
from snopt.horizon.policy import Bounds, Policy, PolicyFunction, policy_function
from snopt.horizon.terms import Penalty, penalty_slopes
from snopt.second_order.flat_problem import RunningCost

__all__ = ["HorizonOptimizer", "Record"]


class Record(NamedTuple):
    """One update of one horizon.

    Attributes:
        iteration: number of the call of ``step``.
        block: index of the block.
        horizon: T after the update.
        Q_T: derivative of the cost with respect to T.
        Q_TT: curvature of the cost in T.
        feedback: the feedback term Q_Tu δθ.
    """

    iteration: int
    block: int
    horizon: float
    Q_T: float
    Q_TT: float
    feedback: float


@dataclass
class _Learner:
    listener: Listener
    averages: Averages = field(default_factory=Averages)


class HorizonOptimizer:
    r"""Learns the horizon T of NeuralODE blocks together with their parameters.

    Call :meth:`step` after the step of the parameters' optimizer, which can be any optimizer. The
    cost is the loss plus a penalty on the length of the solve, :math:`\frac c2 (T - t_0)^2`, and
    every few iterations (``eq:feedback``)

    .. math:: T \leftarrow T - \eta\, \frac{Q_T + Q_{Tu}\,\delta\theta}{|Q_{TT}|}, \qquad
        Q_T = \bar s + \bar\ell + P', \qquad Q_{TT} = \bar s^2 + P'', \qquad
        Q_{Tu} = \bar s\, \bar Q_u

    with s = Φ_xᵀF, the slope of the loss in T. Bars are moving averages over iterations (decay
    0.99, without bias at the start), not reset by an update. The *average* is squared, since the
    square of a minibatch's slope is mostly noise. The cost is one evaluation of the field per
    iteration, at the end of the solve.

    ============  ===========================================================================
    policy        δT
    ============  ===========================================================================
    ``feedback``  (Q_T + Q_Tu δθ) / |Q_TT|; δθ is the parameters' change in this iteration
    ``newton``    Q_T / |Q_TT|
    ``gradient``  Q_T, the first-order baseline
    a function    its value at Q_T, Q_TT and Q_Tu δθ
    ============  ===========================================================================

    An update is skipped, counted in :attr:`counts` and warned about once if no gradient reached
    the block, a term is not finite, or there is no curvature. T is part of the model's
    ``state_dict``, everything else of this object's. In a process group terms are averaged over
    the ranks, so T is the same on all of them.

    Args:
        blocks: a :class:`snopt.NeuralODE`, several, or a model that contains some.
        lr: learning rate η.
        penalty: the weight c, or a function of T (a 0-d tensor) in torch operations. It is added to
            the loss, which should be a mean over examples; c then does not depend on the batch
            size. The default is 6e-4 · 128, from the authors' scripts.
        every: iterations between updates.
        policy: one of the names above, or a function.
        running_cost: ℓ(t, x, params), a number, if the cost has an integral over the path that is
            not part of the loss. (A cost carried in the block's state is part of it.)
        minimum: shortest length \|T - t0\|.
        maximum: longest length.
        max_change: largest relative change of the length in one update; None for no limit.

    Attributes:
        history: a :class:`Record` of every update.
        counts: numbers of updates and skipped updates.

    Example:
        >>> class Drift(nn.Module):
        ...     def forward(self, t, x):
        ...         return torch.ones_like(x)
        >>> block = NeuralODE(Drift(), horizon=0.5)
        >>> horizon = HorizonOptimizer(block, lr=1.0, penalty=0.25, every=1)
        >>> x = torch.zeros(4, 1, requires_grad=True)  # the target of x(T) = T is 1
        >>> for _ in range(30):
        ...     (0.5 * (block(x) - 1.0).square()).mean().backward()
        ...     horizon.step()
        >>> round(block.horizon, 3)  # 1 / (1 + c)
        0.8
    """

    def __init__(
        self,
        blocks: nn.Module | Iterable[nn.Module],
        lr: float = 0.1,
        penalty: Penalty = 0.0768,
        every: int = 50,
        policy: Policy | PolicyFunction = "feedback",
        *,
        running_cost: RunningCost | None = None,
        minimum: float = 0.01,
        maximum: float | None = None,
        max_change: float | None = 0.5,
    ) -> None:
        self._modules = [blocks] if isinstance(blocks, nn.Module) else list(blocks)
        self.lr, self.penalty, self.every = lr, penalty, every
        self.policy: Policy | PolicyFunction = policy
        self.running_cost = running_cost
        self.bounds = Bounds(
            minimum,
            math.inf if maximum is None else maximum,
            math.inf if max_change is None else max_change,
        )
        self.history: list[Record] = []
        self.counts = Counts()
        self._check()
        self._attach()
        for block in self.blocks:
            self.bounds.check(block.horizon, block.t0)

    def _check(self) -> None:
        policy_function(self.policy)
        low, high, change = self.bounds.minimum, self.bounds.maximum, self.bounds.max_change
        if not 0 < self.lr < math.inf:
            raise ValueError(f"lr = {self.lr} must be positive and finite")
        if not callable(self.penalty) and not 0 <= self.penalty < math.inf:
            raise ValueError(
                f"penalty = {self.penalty} must not be negative; for other penalties pass a "
                "function of T"
            )
        if int(self.every) != self.every or self.every < 1:
            raise ValueError(f"every = {self.every} must be a whole number, at least 1")
        if not 0 < low < high:
            raise ValueError(f"minimum = {low}, maximum = {high}: use 0 < minimum < maximum")
        if not change > 0:
            raise ValueError(f"max_change = {change} must be positive; None sets no limit")

    def _attach(self) -> None:
        self.blocks: list[NeuralODE] = blocks_of(*self._modules)
        if not self.blocks:
            names = [type(module).__name__ for module in self._modules]
            raise ValueError(
                f"no snopt.NeuralODE among {names}: pass a block, several, or a model that has "
                "some as submodules"
            )
        self._learners = [
            _Learner(Listener(block, self.running_cost, self._with_feedback))
            for block in self.blocks
        ]

    @property
    def _with_feedback(self) -> bool:
        """Whether the policy needs Q_Tu δθ, which requires a copy of the parameters."""
        return self.policy not in ("newton", "gradient")

    # ------------------------------------------------------------------ one iteration

    def step(self, *, loss_scale: float = 1.0) -> None:
        """Measure the iteration, and update the horizons every ``every`` iterations.

        Call it after the optimizer's ``step`` and before ``zero_grad``.

        Args:
            loss_scale: factor of the loss in ``backward`` (``scaler.get_scale()`` of a GradScaler,
                before ``scaler.update()``).
        """
        self.counts.iterations += 1
        with torch.no_grad():
            for learner in self._learners:
                self._measure(learner, loss_scale)
            if self.counts.iterations % self.every == 0:
                for i, (block, learner) in enumerate(zip(self.blocks, self._learners, strict=True)):
                    means = learner.averages.take(block.horizon, block.horizon_buffer.device)
                    if means is None:
                        self._skip(i, "nothing was measured")
                    else:
                        self._move(i, means)

    def _measure(self, learner: _Learner, loss_scale: float) -> None:
        measured = learner.listener.collect()
        if measured is None:
            self.counts.note(
                "uncalled",
                "no gradient reached a block since the last step: it was not called in training "
                "mode, or was called with times, or its output was not differentiated",
            )
            learner.averages.miss()
            return
        Q_u, change = [], []
        if self._with_feedback:
            params = learner.listener.params
            Q_u = _gradients(params)
            change = [p - before for p, before in zip(params, measured.before, strict=True)]
        if not learner.averages.add(measured.slope / loss_scale, measured.running, Q_u, change):
            self.counts.note(
                "not_finite",
                "a gradient, the field or a parameter is not finite: the horizon's averages skip "
                "this iteration",
            )

    def _move(self, i: int, means: Means) -> None:
        block, T = self.blocks[i], means.horizon
        P_T, P_TT = penalty_slopes(self.penalty, T, block.t0)
        Q_T, Q_TT = means.slope + means.running + P_T, means.slope**2 + P_TT
        feedback = means.slope * means.along
        if self.policy in ("feedback", "newton") and Q_TT == 0:
            return self._skip(i, "the cost has no curvature in T")
        step = self.lr * policy_function(self.policy)(Q_T, Q_TT, feedback)
        change = -step / (T - block.t0)
        if not math.isfinite(change):
            return self._skip(i, f"Q_T = {Q_T:g} and Q_TT = {Q_TT:g} do not give a finite step")
        block.horizon = self.bounds.move(T, block.t0, change)
        self.counts.updates += 1
        self.history.append(Record(self.counts.iterations, i, block.horizon, Q_T, Q_TT, feedback))
        return None

    def _skip(self, i: int, why: str) -> None:
        self.counts.note("skipped", f"{why}: skipping this update of horizon {i}")

    # ------------------------------------------------------------------ checkpoints and copies

    def state_dict(self) -> dict[str, Any]:
        """Return the state as tensors and plain numbers. T itself is in the model's state."""
        return {
            "lr": self.lr,
            "counts": self.counts.as_dict(),
            "history": [list(record) for record in self.history],
            "blocks": [dict(vars(learner.averages)) for learner in self._learners],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state, on any device; training continues as if uninterrupted."""
        if len(state["blocks"]) != len(self.blocks):
            raise ValueError(
                f"the state has {len(state['blocks'])} blocks, but this object has "
                f"{len(self.blocks)}: create it with the same blocks"
            )
        self.lr = state["lr"]
        self.counts = Counts(**state["counts"])
        self.history = [Record(*record) for record in state["history"]]
        for learner, saved in zip(self._learners, state["blocks"], strict=True):
            params = learner.listener.params if saved["Q_u"] else []
            Q_u = [part.to(p) for part, p in zip(saved["Q_u"], params, strict=True)]
            learner.averages = Averages(**{**saved, "Q_u": Q_u})
            learner.listener.collect()

    def __getstate__(self) -> dict[str, Any]:
        own = {k: v for k, v in vars(self).items() if k not in ("blocks", "_learners")}
        return {"own": own, "state": self.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy measures its own blocks.
        vars(self).update(state["own"])
        self._attach()
        self.load_state_dict(state["state"])

    def __repr__(self) -> str:
        horizons = ", ".join(f"{block.horizon:.4g}" for block in self.blocks)
        return (
            f"HorizonOptimizer(horizon={horizons}, policy={self.policy!r}, lr={self.lr:g}, "
            f"every={self.every}, updates={self.counts.updates}, skipped={self.counts.skipped})"
        )


def _gradients(params: list[nn.Parameter]) -> list[torch.Tensor]:
    trained = [p for p in params if p.requires_grad]
    if trained and all(p.grad is None for p in trained):
        raise RuntimeError(
            "policy='feedback' found no .grad on the field's parameters: call step() after the "
            "optimizer's step and before zero_grad, or choose policy='newton'"
        )
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
