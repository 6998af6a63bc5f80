"""One update of the parameters, its cost, and evaluation."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from snopt.adjoint.block import NeuralODE
from snopt.adjoint.blocks import blocks_of
from snopt.base.errors import MaxStepsExceeded, SolveError
from snopt.lab.train.parallel import ALONE, World
from snopt.lab.train.seeding import isolated
from snopt.lab.train.task import Examples, Metrics, Parts, Task
from snopt.ode.blackbox import EVALUATIONS_PER_STEP
from snopt.ode.controller import Controller
from snopt.ode.settings import Settings
from snopt.optim import SNOpt

if sys.platform != "win32":
    import resource


def to_device(batch: Any, device: torch.device) -> Any:
    """Move a batch: anything with ``.to``, or nested tuples, lists and dictionaries of it.

    Example:
        >>> to_device((torch.ones(1), None), torch.device("cpu"))
        (tensor([1.]), None)
    """
    return tree_map(lambda part: part.to(device) if hasattr(part, "to") else part, batch)


class _NotFinite(Exception):
    """The loss is not finite; the message has the reason."""


def needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether an optimizer evaluates the loss itself, as LBFGS does.

    Example:
        >>> params = [nn.Parameter(torch.ones(1))]
        >>> needs_closure(torch.optim.LBFGS(params)), needs_closure(torch.optim.Adam(params))
        (True, False)
    """
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


class _Bounded(Controller):
    """A controller that limits the evaluations of all solves of several blocks together.

    The remaining number is computed from the blocks' totals, so it counts from their last reset
    and includes the solves of a backward pass.
    """

    _shared: tuple[int, Sequence[NeuralODE], int, int]

    def __init__(self, own: Settings, most: int, blocks: Sequence[NeuralODE]) -> None:
        per_step = own.tableau.stages if own.tableau else EVALUATIONS_PER_STEP
        shared = (most, blocks, per_step, own.controller.max_steps)
        vars(self).update(vars(own.controller), _shared=shared)

    @property
    def max_steps(self) -> int:
        most, blocks, per_step, own = self._shared
        return max(1, min((most - evaluations(blocks)) // per_step, own))


def evaluations(blocks: Sequence[NeuralODE]) -> int:
    """Return the evaluations in forward and backward passes since the totals were reset."""
    return sum(block.totals.nfe_forward + block.totals.nfe_backward for block in blocks)


class Update:
    """Evaluate the loss of a batch and its gradient, then step the optimizers and the horizon.

    If the loss is not finite or a solve fails, no parameter changes. Only :class:`snopt.SNOpt` is
    still stepped, with a loss of NaN, because it may roll back to earlier values.

    Args:
        loss: loss of a batch.
        parts: the optimizers and the horizon.
        clip: largest norm of the gradient.
        world: the processes that train together.

    Example:
        >>> model = nn.Linear(1, 1)
        >>> parts = Parts(model, torch.optim.SGD(model.parameters(), lr=0.1))
        >>> update = Update(lambda batch: model(batch).square().mean(), parts)
        >>> first, second = update(torch.ones(2, 1)), update(torch.ones(2, 1))
        >>> second[0] < first[0]
        True
        >>> update(torch.full((2, 1), torch.nan))
        (nan, 'the loss is nan')
    """

    def __init__(
        self,
        loss: Callable[[Any], Tensor],
        parts: Parts,
        *,
        clip: float | None = None,
        world: World = ALONE,
    ) -> None:
        self.loss, self.clip, self.world = loss, clip, world
        self.horizon = parts.horizon
        self.optimizers = [(o, needs_closure(o)) for o in parts.optimizers]
        groups = [group for o in parts.optimizers for group in o.param_groups]
        self.parameters = [param for group in groups for param in group["params"]]
        self._blocks = [(block, block._settings) for block in blocks_of(parts.model)]
        self._most: int | None = None

    def bound(self, most: int | None) -> None:
        """Limit the evaluations of every later update; None keeps the blocks' own limits."""
        self._most = most
        for block, own in self._blocks:
            bounded = None if most is None else _Bounded(own, most, [b for b, _ in self._blocks])
            block._settings = own if bounded is None else own.replaced(controller=bounded)

    def __call__(self, batch: Any) -> tuple[float, str | None]:
        """Make one update.

        Returns:
            the loss before the update, averaged over processes; and why no update was made, or
            None.
        """
        losses: list[float] = []

        def closure() -> float:
            for optimizer, _ in self.optimizers:
                optimizer.zero_grad()
            losses.append(self._differentiate(batch))
            return losses[-1]

        before = self._snapshot()
        skipped = self._skipped()
        try:
            if not all(closing for _, closing in self.optimizers):
                closure()
            for optimizer, closing in self.optimizers:
                optimizer.step(closure) if closing else optimizer.step()
        except _NotFinite as reason:
            self._abandon(before)
            return (losses or [math.nan])[0], str(reason)
        if self._skipped() > skipped:
            return losses[0], "a gradient is not finite"
        if self.horizon is not None:
            self.horizon.step()
        return losses[0], None

    def _differentiate(self, batch: Any) -> float:
        """Compute the gradients; return the loss."""
        reason = ""
        try:
            loss = self.loss(batch)
            value = float(loss.detach())
        except SolveError as error:
            value, reason = math.nan, self._reason(error)
        # All processes decide here, before the collectives of the backward pass.
        value = self.world.mean(value)
        if not math.isfinite(value):
            raise _NotFinite(reason or f"the loss is {value}")
        try:
            loss.backward()
        except SolveError as error:
            if self.world.size > 1:
                raise
            raise _NotFinite(self._reason(error)) from None
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip)
        return value

    def _reason(self, error: SolveError) -> str:
        controllers = [(block._settings.controller, own.controller) for block, own in self._blocks]
        tighter = any(now.max_steps < own.max_steps for now, own in controllers)
        if tighter and isinstance(error, MaxStepsExceeded):
            return (
                f"an update took more than {self._most} evaluations of the field, far more than "
                "usual: the field has become stiff"
            )
        return f"a solve failed: {error}".rstrip(".")

    def _snapshot(self) -> list[Tensor]:
        """Copy the parameters if an optimizer changes them before it evaluates the loss."""
        if any(closing for _, closing in self.optimizers):
            return [p.detach().clone() for p in self.parameters]
        return []

    @torch.no_grad()
    def _abandon(self, before: list[Tensor]) -> None:
        """Undo an update that failed."""
        for param, value in zip(self.parameters, before, strict=False):
            param.copy_(value)
        for optimizer, closing in self.optimizers:
            optimizer.zero_grad()
            if closing:
                # Its history contains a loss that is not finite.
                optimizer.state.clear()
            elif isinstance(optimizer, SNOpt):
                optimizer.step(lambda: math.nan)

    def _skipped(self) -> int:
        return sum(o.counts.skipped for o, _ in self.optimizers if isinstance(o, SNOpt))


class Meter:
    """Count evaluations of a model's blocks, and measure peak memory.

    On a GPU this is the memory allocated by torch, elsewhere the resident memory of the process.

    Example:
        >>> class Decay(nn.Module):
        ...     def forward(self, t, x):
        ...         return -x
        >>> from snopt.adjoint import NeuralODE
        >>> block = NeuralODE(Decay(), horizon=1.0)
        >>> meter = Meter(block, torch.device("cpu"))
        >>> meter.reset()
        >>> _ = block(torch.ones(1, 2))
        >>> counts = meter.read()
        >>> counts["nfe_forward"] == block.stats.nfe_forward, counts["horizon"]
        (True, [1.0])
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self.blocks = blocks_of(model)
        self.device = device

    def reset(self) -> None:
        """Reset the counts and the peak."""
        for block in self.blocks:
            block.totals.reset()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            # Linux can reset the peak of a process; other systems cannot.
            with suppress(OSError), open("/proc/self/clear_refs", "wb", buffering=0) as file:
                file.write(b"5")

    def read(self) -> dict[str, Any]:
        """Return the counts and the peak memory since the last reset, for a record."""
        counts: dict[str, Any] = {
            "nfe_forward": sum(block.totals.nfe_forward for block in self.blocks),
            "nfe_backward": sum(block.totals.nfe_backward for block in self.blocks),
            "memory_mb": self.memory(),
        }
        if self.blocks:
            counts["horizon"] = [block.horizon for block in self.blocks]
        return counts

    def memory(self) -> float | None:
        """Return the peak memory in megabytes, None if the system does not report it."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / 2**20
        if sys.platform == "win32":
            return None
        with suppress(OSError, StopIteration):
            # ru_maxrss would include the memory of the process before it executed this program.
            status = Path("/proc/self/status").read_text("ascii").splitlines()
            line = next(line for line in status if line.startswith("VmHWM:"))
            return round(int(line.split()[1]) / 2**10, 1)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)


def weights_for(mode: Literal["train", "eval"], parts: Parts) -> None:
    """Let schedule-free optimizers exchange weights for training and averaged weights."""
    for optimizer in parts.optimizers:
        exchange = getattr(optimizer, mode, None)
        if callable(exchange):
            exchange()


def evaluate(
    task: Task,
    model: nn.Module,
    examples: Examples,
    *,
    batch_size: int,
    seed: int,
    world: World = ALONE,
) -> Metrics:
    """Average a task's metrics over examples, in evaluation mode.

    Evaluation uses separate random numbers, the same every time. Processes split the batches. If
    a solve fails, the loss and the task's metric are NaN.
    """
    totals: dict[str, float] = {}
    model.eval()
    try:
        with isolated(seed, "evaluation", world.rank), torch.no_grad():
            for start in range(world.rank * batch_size, len(examples), world.size * batch_size):
                indices = torch.arange(start, min(start + batch_size, len(examples)))
                batch = to_device(examples.batch(indices), world.device)
                for block in blocks_of(model):
                    block.totals.reset()  # the limit of an update applies to every batch
                for name, value in task.metrics(model, batch).items():
                    totals[name] = totals.get(name, 0.0) + float(value) * len(indices)
    except SolveError:
        totals = {"loss": math.nan, task.metric: math.nan}
    finally:
        model.train()
    parts = world.gather(totals)
    means = {
        name: sum(part.get(name, 0.0) for part in parts) / len(examples)
        for name in dict.fromkeys(name for part in parts for name in part)
    }
    missing = {"loss", task.metric} - set(means)
    if missing:
        raise ValueError(
            f"metrics of task {task.name!r} are {sorted(means)}; {sorted(missing)} is missing. "
            "Return 'loss' and the task's own metric."
        )
    return means


def advice(parts: Parts) -> str:
    """Return which settings to change after a run diverged, with their values.

    Example:
        >>> model = nn.Linear(1, 1)
        >>> advice(Parts(model, torch.optim.SGD(model.parameters(), lr=0.5)))
        'lower the learning rate (0.5)'
        >>> advice(Parts(model, SNOpt(model, rule="amortized", lr=0.5, damping=0.1)))
        'lower the learning rate (0.5) or raise the damping (0.1)'
    """
    said = []
    for optimizer in parts.optimizers:
        group = optimizer.param_groups[0]
        text = f"lower the learning rate ({group['lr']:g})"
        if isinstance(optimizer, SNOpt) and optimizer.config.rule == "amortized":
            text += f" or raise the damping ({group['damping']:g})"
        elif isinstance(optimizer, SNOpt):
            text += " or use on_divergence='rollback'"
        said.append(text)
    return ", ".join(dict.fromkeys(said))
