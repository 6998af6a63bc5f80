"""The recording of one iteration.

A :class:`Recording` puts hooks on the model's layers and observers on its blocks, and sums what
they report. Closing it removes them.

**Which backward passes belong together.** The sums belong to the gradients in ``.grad``. Passes
whose gradients accumulate there are batches of one iteration. A pass that finds no gradient there
starts new sums: the gradient of the pass before was used by a step, or discarded, or an exception
interrupted it. Only calls of the model that a gradient reaches are batches.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import register_multi_grad_hook

from snopt.adjoint.observer import NodeObserver
from snopt.base.compiler import uncompiled
from snopt.base.copies import Inert, no_hook
from snopt.kronecker.calls import (
    Arguments,
    Gradients,
    Tap,
    leading_size,
    tensors_in,
    training_call,
)
from snopt.kronecker.composite import readings_of
from snopt.kronecker.factors import sampled_factors
from snopt.kronecker.observers import join, leave
from snopt.kronecker.options import KroneckerOptions
from snopt.kronecker.readings import CannotRead
from snopt.kronecker.sums import IterationSums, Slot
from snopt.second_order.terminal import leaves_of, terminal_factors

__all__ = ["Block", "Recording"]

#: A module with a ``field`` and an ``observer``: :class:`snopt.NeuralODE`, or one like it.
Block = Any


class Recording:
    """Sums what layers and solves report until it is closed.

    Args:
        model: the model.
        slots: weights to record, by name.
        sizes: block sizes of each slot's modes.
        observers: blocks, each with the observer of its field.
        options: how factors are formed.
        seed: of the draws of ``terminal="sampled"``; the global state is not touched.

    Attributes:
        sums: the sums so far.
        dropped: calls of a layer that were skipped because they were not finite.
        missed: for layers with a call that did not count, why it did not.
        observed: layers of vector fields that were evaluated at a node.
    """

    def __init__(
        self,
        model: nn.Module,
        slots: Mapping[str, Slot],
        sizes: Mapping[str, Sequence[Sequence[int]]],
        observers: Sequence[tuple[Block, NodeObserver]],
        options: KroneckerOptions,
        seed: int = 0,
    ) -> None:
        self.sums = IterationSums.of(slots)
        self.dropped = 0
        self.missed: dict[str, str] = {}
        self.observed: set[str] = set()
        self._slots, self._sizes, self._options, self._seed = slots, sizes, options, seed
        self._slot_of = {user: key for key, slot in slots.items() for user in slot.users}
        self._modules = {name: model.get_submodule(name) for name, _ in self._slot_of}
        self._task = -1
        # Where reports of a pass with a terminal factor go, and whether inputs are to be counted.
        self._sending: tuple[IterationSums, bool] | None = None
        self._attached = ExitStack()
        # It cleans up after a recording that is deleted, so it must not refer to it.
        weakref.finalize(self, self._attached.close)
        self._attach(model, observers)

    def _attach(self, model: nn.Module, observers: Sequence[tuple[Block, NodeObserver]]) -> None:
        for block, observer in observers:
            join(block, observer)
            self._attached.callback(_leave_living, weakref.ref(block), observer)
        outside = {name for s in self._slots.values() if not s.in_field for name in s.modules}
        hooks: list[tuple[nn.Module, Inert]] = [
            (module, Tap(_weakly(self.report, name), _weakly(self.miss, name)))
            for name, module in self._modules.items()
            if name in outside
        ]
        for module, hook in [*hooks, (model, _ModelHook(_weakly(self.called)))]:
            handle = module.register_forward_hook(hook, with_kwargs=True)  # type: ignore[arg-type]
            self._attached.callback(handle.remove)

    def close(self) -> None:
        """Remove hooks and observers from the model."""
        self._attached.close()

    # ------------------------------------------------------------------ reports

    @property
    def listening(self) -> bool:
        """Whether the running backward pass counts.

        With ``terminal="gradient"`` the user's passes count, otherwise the recording's own.
        """
        return self._options.terminal == "gradient" or self._sending is not None

    def report(
        self, name: str, arguments: Arguments, gradients: Gradients, *, weight: float = 1.0
    ) -> None:
        """Count one call of a layer.

        Args:
            name: the layer's name.
            arguments: what it was called with.
            gradients: with respect to its outputs.
            weight: quadrature weight.
        """
        if not self.listening or all(g is None for g in gradients):
            return
        # Autocast, on during the backward pass of a solve, would round the factors.
        device = next(g.device.type for g in gradients if g is not None)
        with torch.autocast(device, enabled=False):
            try:
                with torch.enable_grad():
                    readings = readings_of(self._modules[name], arguments, gradients)
            except CannotRead as reason:
                self.miss(name, str(reason))
                return
            # Autograd runs hooks with gradients off, a solve may not.
            with torch.no_grad():
                for matrix, z, g in readings:
                    self._count(name, matrix, z, g, weight)

    def _count(self, name: str, matrix: str, z: Tensor, g: Tensor, weight: float) -> None:
        key = self._slot_of.get((name, matrix))
        if key is None or not self._slots[key].view.parameters[0].requires_grad:
            return
        view = self._slots[key].view
        sums, inputs = self._sending or (self._current(), True)
        options = self._options
        call = sampled_factors(
            view, z, g, sample=options.sample, turn=self._seed,
            sharing=options.sharing, sizes=self._sizes[key], inputs=inputs,
        )  # fmt: skip
        if not sums.layers[key].add(call, weight=weight):
            self.dropped += 1
            self.miss(name, "inputs or output gradients not finite")
        sums.saw(view.output_gradients(g).shape[1])

    def miss(self, name: str, reason: str) -> None:
        """Note why a call of a layer does not count."""
        self.missed[name] = reason

    def why_missing(self, key: str) -> str:
        """Say why nothing was recorded of a slot.

        Args:
            key: name of the slot.
        """
        slot = self._slots[key]
        reasons = [self.missed[name] for name in slot.modules if name in self.missed]
        if reasons:
            return reasons[0]
        if slot.in_field and not self.observed.intersection(slot.modules):
            return (
                "its vector field was not observed; solve it by a snopt.NeuralODE, or by "
                "snopt.odeint(..., observer=optimizer.observer(field))"
            )
        return "never called as a module; its weights are used in another way"

    def passed(self, names: set[str], weight: float, x: object) -> None:
        """Count a node of a solve.

        Args:
            names: the layers called there.
            weight: the node's quadrature weight.
            x: state there.
        """
        sums, inputs = self._sending or (self._current(), True)
        if inputs:
            for key in {key for (name, _), key in self._slot_of.items() if name in names}:
                sums.layers[key].duration += weight
        sums.saw(leading_size(x))

    def called(self, args: object, outputs: object) -> None:
        """Watch a training call of the model: it is a batch if a gradient reaches its outputs.

        Args:
            args: its arguments.
            outputs: what it returned.
        """
        tensors = [tensor for tensor in tensors_in(outputs) if tensor.requires_grad]
        if not tensors:
            return
        sums = None if self._options.terminal == "gradient" else self._terminal_sums(outputs)
        arrived = _weakly(self._differentiated, leading_size(args), sums)
        register_multi_grad_hook(tensors, arrived, mode="any")

    def _differentiated(self, examples: int, sums: IterationSums | None, _: Tensor) -> None:
        if torch.is_grad_enabled():  # a pass that is itself to be differentiated (see Tap)
            return
        current = self._current()
        current.calls += 1
        current.examples += examples
        if sums is not None:
            current.add(sums)

    def _current(self) -> IterationSums:
        """The sums that the running backward pass belongs to; see the module's docstring."""
        task = torch._C._current_graph_task_id()
        if task != self._task:
            self._task = task
            params = [p for slot in self._slots.values() for p in slot.view.parameters]
            if not any(p.grad is not None and bool(p.grad.any()) for p in params):
                self.sums = IterationSums.of(self._slots)
            self.sums.rows.append(0)
        return self.sums

    # ------------------------------------------------------------------ terminal factors

    @contextmanager
    def _sending_to(self, sums: IterationSums, *, inputs: bool) -> Iterator[None]:
        self._sending = (sums, inputs)
        try:
            yield
        finally:
            self._sending = None

    def _terminal_sums(self, outputs: object) -> IterationSums:
        """Send each factor of the terminal curvature back through the model in its own pass."""
        if not isinstance(outputs, Tensor):
            raise TypeError(
                f"terminal={self._options.terminal!r} needs the model to return one tensor, the "
                f"loss's input; it returned {type(outputs).__name__}: use terminal='gradient'"
            )
        assert self._options.loss is not None
        generator = torch.Generator().manual_seed(self._seed)
        ys = terminal_factors(outputs, self._options.terminal, self._options.loss, generator)
        # Not the parameters alone: a solve with adjoint="direct" reports its nodes when a gradient
        # arrives at its start, which may not depend on a parameter.
        ends = leaves_of(outputs)
        sums = IterationSums.of(self._slots)
        sums.rows = [0]
        for i, y in enumerate(ys):
            with self._sending_to(sums, inputs=i == 0):
                torch.autograd.grad(outputs, ends, y, retain_graph=True, allow_unused=True)
        return sums


def _leave_living(block: weakref.ref[Any], observer: NodeObserver) -> None:
    living = block()
    if living is not None:
        leave(living, observer)


def _weakly(method: Callable[..., None], *first: object) -> Callable[..., None]:
    """Call a method with these first arguments for as long as its object lives."""
    ref = weakref.WeakMethod(method)

    def call(*args: object) -> None:
        bound = ref()
        if bound is not None:
            bound(*first, *args)

    return call


class _ModelHook(Inert):
    """A forward hook of the model that reports its training calls."""

    in_copies = staticmethod(no_hook)

    def __init__(self, report: Callable[..., None]) -> None:
        self.report = report

    @uncompiled
    def __call__(self, module: nn.Module, args: Any, kwargs: Any, outputs: object) -> None:
        if training_call(module):
            self.report((args, kwargs), outputs)
