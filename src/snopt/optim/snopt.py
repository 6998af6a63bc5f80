"""SNOpt: the second-order Neural ODE optimizer, as an ordinary torch optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from snopt.adjoint.blocks import blocks_of
from snopt.base.distributed import world_size
from snopt.base.finite import all_finite
from snopt.kronecker import (
    FieldObserver,
    KroneckerOptions,
    KroneckerRecorder,
    LayerFactors,
    Recording,
    Seen,
    Slot,
)
from snopt.optim.agreement import all_ranks_ok
from snopt.optim.averaging import hide_averages, move_, refuse_averages, show_averages
from snopt.optim.config import (
    Config,
    check_arguments,
    checked_group,
    group_defaults,
    refresh_gap,
)
from snopt.optim.coverage import Scope, cover, unwrapped
from snopt.optim.fallback import fallback_step, plain_directions
from snopt.optim.guard import Counts, Guard, OnDivergence
from snopt.optim.parallel import average_sums
from snopt.optim.refresh import factors_of, renew, warn_of_unrecorded
from snopt.optim.state import STATE_VERSION, checked_extra, in_our_order, on_device
from snopt.optim.summary import Summary, summarise, warn_of_cut_factors
from snopt.optim.update import Hyper, LayerState, Rule, Update, slot_updates
from snopt.optim.watch import ModelWatch, field_list, with_names

__all__ = ["SNOpt"]


class SNOpt(torch.optim.Optimizer):
    r"""Second-order Neural ODE optimizer: schedule-free Adam in the basis of Kronecker factors.

    The default rule is related to EKFAC (George et al. 2018), Shampoo (Gupta et al. 2018) and SOAP
    (Vyas et al. 2024). The difference is the basis: it comes from curvature that is integrated
    along the path of each solve. Steps are averaged (Defazio et al. 2024), so no schedule is
    needed; :meth:`eval` shows the average. The paper's rule is ``rule="amortized"``.

    On refresh iterations the backward pass also integrates the Kronecker factors of every covered
    layer (Algorithm 1, lines 4 to 9); ``step`` then updates the eigenbases. On every iteration the
    gradient is rotated into the eigenbasis, scaled, and rotated back.

    =============  ==========================================================================
    rule           in the eigenbasis
    =============  ==========================================================================
    ``adam``       :math:`X \leftarrow X / (\sqrt v + \varepsilon)`, averaging instead of momentum
    ``amortized``  Algorithm 2: :math:`S^* \leftarrow \alpha S^* + (1 - \alpha) N X^2`,
                   :math:`X \leftarrow X / (S^* + \varepsilon)`, for a batch of N
    ``kronecker``  (35): :math:`X \leftarrow X / (\Sigma_A \otimes \Sigma_B + \varepsilon)`
    =============  ==========================================================================

    Linear layers, convolutions (also weight- and spectral-normalised) and attention are covered,
    inside vector fields and outside (ordinary K-FAC); recurrent layers with
    ``KroneckerOptions(recurrent=True)``. All other parameters use the rule ``adam`` without a
    basis, or torch's Adam with the other rules; see :meth:`summary`.

    Args:
        model: the model, plain or wrapped in ``DistributedDataParallel``.
        params: parameters or groups to train; default all parameters of the model.
        lr: learning rate η.
        rule: update rule in the eigenbasis.
        momentum: β of the averaging for ``adam``, heavy-ball momentum for the other rules.
        weight_decay: γ. For ``adam`` 0.3: a step d of a weight θ towards zero is longer by
            γ |θ| (|d| + √K - 1), a form of cautious weight decay (Chen et al. 2025), for a kernel
            of K positions (1 for a matrix); the part without d fades after 300 steps. For the
            others 0; they follow the paper's Remark, Q_u + γ θ and Q_uu + γ I.
        damping: ε.
        decay: α of Algorithm 2; for ``adam`` the largest value of β₂, which grows with the steps.
        refresh_every: the longest interval between refreshes of the factors, in iterations.
        refresh_first: the first interval; it grows to ``refresh_every`` during training. Set both
            to the same number for a fixed interval.
        scope: cover ``"all"`` layers, or those of vector fields only (``"ode"``).
        curvature: how factors are formed.
        fields: vector fields that are not solved by a :class:`snopt.NeuralODE`; pass
            :meth:`observer` of each to :func:`snopt.odeint`.
        fallback_lr: learning rate of all other parameters; schedulers scale it with ``lr``.
        on_divergence: what to do when a gradient or the loss is not finite: ``"skip"`` the update,
            ``"rollback"`` to the parameters of the last refresh and continue with more damping
            (smaller steps for ``adam``), or ``"raise"``.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
        >>> optimizer = SNOpt(model, lr=1e-2)
        >>> x, y = torch.randn(16, 3), torch.randn(16, 1)
        >>> for _ in range(3):
        ...     optimizer.zero_grad()
        ...     loss = (model(x) - y).square().mean()
        ...     loss.backward()
        ...     _ = optimizer.step()
        >>> optimizer.factors["0"].A.shape, optimizer.factors["0"].B.shape
        (torch.Size([4, 4]), torch.Size([8, 8]))
    """

    def __init__(
        self,
        model: nn.Module,
        params: Iterable[Any] | None = None,
        lr: float | None = None,
        *,
        rule: Rule = "adam",
        momentum: float | None = None,
        weight_decay: float | None = None,
        damping: float | None = None,
        decay: float | None = None,
        refresh_every: int = 100,
        refresh_first: int = 5,
        scope: Scope = "all",
        curvature: KroneckerOptions | None = None,
        fields: nn.Module | Iterable[nn.Module] = (),
        fallback_lr: float | None = None,
        on_divergence: OnDivergence = "skip",
    ) -> None:
        check_arguments(model, params)
        self.config = Config(
            rule, refresh_every, refresh_first, scope,
            KroneckerOptions() if curvature is None else curvature, on_divergence,
        )  # fmt: skip
        self.model = unwrapped(model)
        self.fields = field_list(self.model, fields)
        self.guard = Guard(on_divergence)
        self.batch_size = 1
        self.next_refresh, self.seen = 0, Seen()
        self._recorder: KroneckerRecorder | None = None
        given = {
            "lr": lr, "momentum": momentum, "weight_decay": weight_decay, "damping": damping,
            "decay": decay, "fallback_lr": fallback_lr,
        }  # fmt: skip
        named = self.model.named_parameters() if params is None else params
        super().__init__(named, group_defaults(rule, given))
        self._attach()
        warn_of_cut_factors(self.recorder)

    def _attach(self) -> None:
        """Find the layers to cover, and start recording if the next iteration is a refresh."""
        if self._recorder is not None:
            self._recorder.disarm()
        group_of = {id(p): i for i, g in enumerate(self.param_groups) for p in g["params"]}
        blocks, options = blocks_of(self.model), self.config.curvature
        fields = [block.field for block in blocks] + self.fields
        slots = cover(self.model, group_of, fields, self.config.scope, options)
        self._group_of, self._watch = group_of, ModelWatch(self.model)
        self._slots_of: list[list[Slot]] = [[] for _ in self.param_groups]
        for slot in slots.values():
            self._slots_of[group_of[id(slot.view.parameters[0])]].append(slot)
        self._recorder = KroneckerRecorder(self.model, slots, list(blocks), options, self.seen)
        self._arm()

    def _arm(self) -> None:
        if self.counts.iterations >= self.next_refresh:
            self.recorder.arm(seed=self.counts.refreshes)
        else:
            self.recorder.disarm()

    @property
    def recorder(self) -> KroneckerRecorder:
        """The recorder of the curvature."""
        assert self._recorder is not None
        return self._recorder

    def observer(self, field: nn.Module) -> FieldObserver:
        """Return the observer of one of the ``fields``, for ``snopt.odeint(..., observer=...)``."""
        if not any(field is known for known in self.fields):
            raise ValueError(
                f"{type(field).__name__} is not a known vector field, so its layers are not "
                "integrated over time; create the optimizer with fields=[that module]"
            )
        return self.recorder.observer(field)

    @property
    def factors(self) -> dict[str, LayerFactors]:
        """Kronecker factors ``.A`` and ``.B`` by layer name, after a refresh."""
        found = {n: factors_of(self._state_of(s)) for n, s in self.recorder.slots.items()}
        return {name: factors for name, factors in found.items() if factors is not None}

    def summary(self) -> Summary:
        """Return which parameters are covered, the sizes of factors and the memory, to print."""
        recorder, begun = self.recorder, self.counts.iterations > 0
        lost = {n for n, s in recorder.slots.items() if begun and "bases" not in self._state_of(s)}
        return summarise(self.model, recorder, self._group_of, self.config, lost)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, for example of layers that were frozen so far."""
        group = checked_group(param_group, self.defaults)
        super().add_param_group(with_names(self.model, self.param_groups, group))
        if self._recorder is not None:
            self._attach()
            warn_of_cut_factors(self.recorder)

    def _state_of(self, slot: Slot) -> LayerState:
        state: LayerState = self.state[slot.view.parameters[0]]
        return state

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters.

        With several processes, each must call it. If a gradient or the loss of one process is not
        finite, all skip the update.

        Args:
            closure: re-evaluates the model and returns the loss, which is returned here too.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._begin(loss):
            covered: set[int] = set()
            for i, group in enumerate(self.param_groups):
                self._apply(group, self._directions(i), covered)
            for group in self.param_groups:
                self._fall_back(group, covered)
        self._end()
        return loss

    @torch.no_grad()
    def eval(self) -> None:
        """Put the averaged weights into the model, to evaluate or save it; see :meth:`train`.

        The rule ``adam`` computes gradients near the average of its steps. The average itself
        usually has the lower loss. Other rules do not average, and nothing changes.
        """
        show_averages(self.param_groups, self.state)

    @torch.no_grad()
    def train(self) -> None:
        """Return to the weights for training, after :meth:`eval`, exactly as they were."""
        hide_averages(self.state)

    @torch.no_grad()
    def precondition_(self) -> None:
        """Replace the gradients of covered parameters by their directions, and update nothing.

        For use with another optimizer, between ``backward`` and that optimizer's ``step``.
        """
        if self._begin(None):
            for i in range(len(self.param_groups)):
                for params, directions in self._directions(i):
                    for param, direction in zip(params, directions, strict=True):
                        if param.grad is not None:
                            param.grad.copy_(direction)
        self._end()

    def _begin(self, loss: object) -> bool:
        """Check the gradients and refresh the factors if due; return False to skip the update."""
        self._watch.check()
        refuse_averages(self.state)
        params = [p for group in self.param_groups for p in group["params"]]
        self._watch.refuse_sparse(params)
        numbers = [p.grad for p in params if p.grad is not None]
        numbers += [] if loss is None else [torch.as_tensor(loss)]
        if not all_ranks_ok(all_finite(numbers)):
            self.recorder.disarm()
            self.guard.diverged(self.state)
            return False
        if self.recorder.recording is not None:
            self.guard.keep(params, self.state)
            self._renew(self.recorder.recording)
        return True

    def _end(self) -> None:
        self.counts.iterations += 1
        self._arm()

    def _renew(self, recording: Recording) -> None:
        recorder, sums = self.recorder, recording.sums
        self.counts.dropped_calls += recording.dropped
        recorder.disarm()
        average_sums(sums, recorder.slots, recorder.sizes, recorder.options)
        batch_size = sums.batch_size(recorder.options)
        found = sums.factors(recorder.slots, recorder.options)
        if found:
            self.batch_size = batch_size
            self.seen = recorder.seen = recording.seen
            renew(found, recorder.slots, self._state_of, recorder.options.averaging, self.counts)
            self.counts.refreshes += 1
            done, config = self.counts.iterations, self.config
            self.next_refresh = done + refresh_gap(done, config.refresh_first, config.refresh_every)
        warn_of_unrecorded(recording, recorder.slots, self._state_of, self.counts)

    def _directions(self, index: int) -> list[Update]:
        """Return the directions of the covered layers of one group."""
        due = [(slot, self._state_of(slot)) for slot in self._slots_of[index]]
        return slot_updates(due, self._hyper(self.param_groups[index]))

    def _hyper(self, group: Mapping[str, Any]) -> Hyper:
        adam = self.config.rule == "adam"
        # Convert the gradient of a sum, averaged over processes, to that of the mean.
        summed = self.config.curvature.reduction == "sum"
        return Hyper(
            self.config.rule, float(group["momentum"]), float(group["decay"]),
            damping=float(group["damping"]) * (1.0 if adam else self.guard.caution),
            weight_decay=0.0 if adam else float(group["weight_decay"]),
            batch_size=self.batch_size,
            scale=world_size() / self.batch_size if summed else 1.0,
        )  # fmt: skip

    def _lr(self, group: Mapping[str, Any]) -> float:
        # Damping does not shorten Adam's steps, so caution divides the learning rate.
        caution = self.guard.caution**0.5 if self.config.rule == "adam" else 1.0
        return float(group["lr"]) / caution

    def _apply(self, group: dict[str, Any], updates: list[Update], covered: set[int]) -> None:
        pairs = [pair for update in updates for pair in zip(*update, strict=True)]
        covered.update(id(param) for param, _ in pairs)
        pairs = [(param, direction) for param, direction in pairs if param.grad is not None]
        self._move([p for p, _ in pairs], [d for _, d in pairs], self._lr(group), group)

    def _move(
        self, params: list[Tensor], directions: list[Tensor], lr: float, group: Mapping[str, Any]
    ) -> None:
        """Subtract directions; the rule ``adam`` averages as well."""
        if self.config.rule == "adam":
            states = [self.state[param] for param in params]
            move_(params, states, directions, lr, group["momentum"], group["weight_decay"])
        elif params:
            torch._foreach_add_(params, directions, alpha=-lr)

    def _fall_back(self, group: dict[str, Any], covered: set[int]) -> None:
        rest = [p for p in group["params"] if p.grad is not None and id(p) not in covered]
        states = [self.state[param] for param in rest]
        lr = self._lr(group) * group["fallback_ratio"]
        if self.config.rule == "adam":
            settings = {name: group[name] for name in ("decay", "damping")}
            self._move(rest, plain_directions(rest, states, **settings), lr, group)
        else:
            fallback_step(rest, states, lr, group["weight_decay"])

    def rollback(self) -> bool:
        """Restore the parameters of the last refresh, and increase damping.

        Call it when a solve fails. Damping grows by a factor of four (``adam``: steps are halved),
        and momentum is reset.

        Returns:
            whether there was a copy to restore (``on_divergence="rollback"`` keeps one).
        """
        self.recorder.disarm()
        self._arm()
        self.train()
        return self.guard.roll_back(self.state)

    @property
    def counts(self) -> Counts:
        """Counts of iterations, refreshes, skipped updates, rollbacks and failed decompositions."""
        return self.guard.counts

    def state_dict(self) -> dict[str, Any]:
        """Return the state: tensors and plain numbers, which ``weights_only=True`` can load."""
        state: dict[str, Any] = super().state_dict()
        state["snopt"] = {
            "version": STATE_VERSION, "rule": self.config.rule,
            "conv": self.config.curvature.conv, "batch_size": self.batch_size,
            "next_refresh": self.next_refresh, "caution": self.guard.caution,
            "seen": self.seen.as_dict(), "counts": self.counts.as_dict(),
        }  # fmt: skip
        return state

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state from any device; training continues as if uninterrupted."""
        extra = checked_extra(state_dict, self.config)
        state_dict = in_our_order(state_dict, self.param_groups)
        super().load_state_dict(state_dict)
        # torch casts to the parameter's dtype; factors and moments keep their own precision.
        params = [p for g in self.param_groups for p in g["params"]]
        for index, state in state_dict["state"].items():
            self.state[params[index]] = on_device(state, params[index].device)
        self.batch_size, self.guard.caution = extra["batch_size"], extra["caution"]
        self.next_refresh, seen = extra["next_refresh"], extra.get("seen", {})
        self.seen = self.recorder.seen = Seen(**seen)
        self.guard.counts = Counts(**extra["counts"])
        self.recorder.disarm()
        self._arm()

    def __getstate__(self) -> dict[str, Any]:
        names = "defaults state param_groups config model fields guard batch_size next_refresh seen"
        return {name: getattr(self, name) for name in names.split()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "model" in state:
            # A copy records its own model. (torch also calls this when loading a state.)
            self._recorder = None
            self._attach()
