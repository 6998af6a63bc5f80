"""The recording of one iteration.

A :class:`Recording` registers hooks on the model's layers and observers on its blocks, and sums
what they report. Closing it removes them.

**Which backward passes belong together.** The sums belong to the gradients in ``.grad``. Passes
whose gradients accumulate there are batches of one iteration. A pass that finds no gradient there
starts new sums: the previous gradient was used by a step or discarded, or an exception interrupted
the pass. A call of the model is a batch only if a gradient reaches it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.graph import register_multi_grad_hook

from snopt.adjoint.observer import NodeObserver
from snopt.base.compiler import uncompiled
from snopt.base.copies import Inert, no_hook
from snopt.base.transforms import transforming
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
from snopt.kronecker.sampling import PathSample, Seen, path_sample
from snopt.kronecker.sums import IterationSums, Slot
from snopt.second_order.terminal import leaves_of, terminal_factors

__all__ = ["Block", "Recording"]

#: A module with a ``field`` and an ``observer``: :class:`snopt.NeuralODE`, or one like it.
Block = Any


class PathObserver(NodeObserver, Protocol):
    """An observer of the layers of a field; see :class:`snopt.kronecker.FieldObserver`."""

    layers: dict[str, nn.Module]
    solve_weight: float
    nested: bool


class Recording:
    """Sums the reports of layers and solves until it is closed.

    Args:
        model: the model.
        slots: weights to record, by name.
        sizes: block sizes of each slot's modes.
        observers: blocks, each with the observer of its field.
        options: how factors are formed.
        seed: seed of the draws of ``terminal="sampled"`` (the global state is not changed); also
            selects which solves, nodes and examples are used.
        seen: counts of the previous recording.

    Attributes:
        sums: the sums so far.
        paths: for each field, named after its first layer, which solves and nodes are used.
        dropped: calls of a layer that were skipped because they were not finite.
        missed: for each layer with a call that did not count, the reason.
        observed: layers of vector fields that were evaluated at a node.
        outer: weight of the node at which an inner solve is being recorded, or None.
    """

    def __init__(
        self,
        model: nn.Module,
        slots: Mapping[str, Slot],
        sizes: Mapping[str, Sequence[Sequence[int]]],
        observers: Sequence[tuple[Block, PathObserver]],
        options: KroneckerOptions,
        seed: int,
        seen: Seen,
    ) -> None:
        self.sums = IterationSums.of(slots)
        self.paths: dict[str, PathSample] = {}
        self._before, self._expected = seen, dict(seen.rows)
        self._rows, self._calls = dict.fromkeys(slots, 0.0), dict.fromkeys(slots, 0)
        self.dropped = 0
        self.missed: dict[str, str] = {}
        self.observed: set[str] = set()
        self.outer: float | None = None
        self._slots, self._sizes, self._options, self._seed = slots, sizes, options, seed
        self._slot_of = {user: key for key, slot in slots.items() for user in slot.users}
        self._modules = {name: model.get_submodule(name) for name, _ in self._slot_of}
        self._task = -1
        # The sums for reports of a pass with a terminal factor, and whether to count inputs.
        self._sending: tuple[IterationSums, bool] | None = None
        self._attached = ExitStack()
        # It cleans up after the recording is deleted, so it must not refer to the recording.
        weakref.finalize(self, self._attached.close)
        self._attach(model, observers)

    def _attach(self, model: nn.Module, observers: Sequence[tuple[Block, PathObserver]]) -> None:
        for block, observer in observers:
            join(block, observer)
            path = self.path_of(observer)
            if path is not None:
                observer.solve_weight = path.solves.weight
                handle = block.register_forward_pre_hook(_BlockHook(path, observer))
                self._attached.callback(handle.remove)
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

    def path_of(self, observer: PathObserver) -> PathSample | None:
        """Return which solves and nodes of an observer's field are used; None for all."""
        if self._options.sample is None or observer.nested:
            return None
        name = next(iter(observer.layers), "")
        if name not in self.paths:
            members = {key for (user, _), key in self._slot_of.items() if user in observer.layers}
            self.paths[name] = path = path_sample(
                name, members, self._slots, self._before, self._options.sample, self._seed
            )
            for key in members & self._expected.keys():
                self._expected[key] /= path.weight
        return self.paths[name]

    @property
    def seen(self) -> Seen:
        """Estimated counts of the full data, without sampling."""
        solves = {name: path.seen_solves for name, path in self.paths.items()}
        nodes = {name: path.seen_nodes for name, path in self.paths.items()}
        weights = {key: path.weight for path in self.paths.values() for key in path.members}
        return Seen(solves, nodes, {k: n * weights.get(k, 1.0) for k, n in self._rows.items()})

    def close(self) -> None:
        """Remove hooks and observers from the model."""
        self._attached.close()

    # ------------------------------------------------------------------ reports

    @property
    def listening(self) -> bool:
        """Whether the running backward pass counts.

        With ``terminal="gradient"`` the user's passes count, otherwise those of the recording.
        """
        return self._options.terminal == "gradient" or self._sending is not None

    def report(
        self, name: str, arguments: Arguments, gradients: Gradients, *, weight: float = 1.0
    ) -> None:
        """Count one call of a layer.

        Args:
            name: the layer's name.
            arguments: the arguments of the call.
            gradients: gradients with respect to its outputs.
            weight: quadrature weight.
        """
        if not self.listening or all(g is None for g in gradients):
            return
        if not any(g.numel() for g in gradients if g is not None):
            self.miss(name, "called with empty batches only")
            return
        # Autocast is active in the backward pass of a solve and would round the factors.
        device = next(g.device.type for g in gradients if g is not None)
        with torch.autocast(device, enabled=False):
            try:
                with torch.enable_grad():
                    readings = readings_of(self._modules[name], arguments, gradients)
            except CannotRead as reason:
                self.miss(name, str(reason))
                return
            # Autograd disables gradients in hooks; a solve may not.
            with torch.no_grad():
                for matrix, z, g in readings:
                    self._count(name, matrix, z, g, weight)

    def _count(self, name: str, matrix: str, z: Tensor, g: Tensor, weight: float) -> None:
        key = self._slot_of.get((name, matrix))
        if key is None or not self._slots[key].view.parameters[0].requires_grad:
            return
        view = self._slots[key].view
        sums, inputs = self._sending or (self._current(), True)
        options, batch, shared = self._options, *view.output_gradients(g).shape[1:3]
        # Calls take turns, as refreshes do: different nodes use different examples.
        call = sampled_factors(
            view, z, g, sample=options.sample, turn=self._seed + self._calls[key],
            rows=self._expected.get(key, 0.0),
            sharing=options.sharing, sizes=self._sizes[key], inputs=inputs,
        )  # fmt: skip
        self._calls[key] += 1
        if inputs:
            self._rows[key] += batch * shared
        if not sums.layers[key].add(call, weight=weight):
            self.dropped += 1
            self.miss(name, "inputs or output gradients not finite")
        sums.saw(batch)

    def miss(self, name: str, reason: str) -> None:
        """Store why a call of a layer does not count."""
        self.missed[name] = reason

    def why_missing(self, key: str) -> str:
        """Return the reason why nothing was recorded for a slot.

        Args:
            key: name of the slot.
        """
        slot = self._slots[key]
        reasons = [self.missed[name] for name in slot.modules if name in self.missed]
        if reasons:
            return reasons[0]
        if slot.in_field and not self.observed.intersection(slot.modules):
            return (
                "its vector field was not observed; solve it with snopt.NeuralODE, or with "
                "snopt.odeint(..., observer=optimizer.observer(field))"
            )
        return "never called as a module; its weights are used directly"

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
        """Process a training call of the model, which is a batch if a gradient reaches its outputs.

        Args:
            args: its arguments.
            outputs: its outputs.
        """
        tensors = [tensor for tensor in tensors_in(outputs) if tensor.requires_grad]
        if not tensors:
            return
        sums = None if self._options.terminal == "gradient" else self._terminal_sums(outputs)
        arrived = _weakly(self._differentiated, leading_size(args), sums)
        register_multi_grad_hook(tensors, arrived, mode="any")

    def _differentiated(self, examples: int, sums: IterationSums | None, _: Tensor) -> None:
        if torch.is_grad_enabled():  # create_graph=True (see Tap)
            return
        current = self._current()
        current.calls += 1
        current.examples += examples
        if sums is not None:
            current.add(sums)

    def _current(self) -> IterationSums:
        """Return the sums of the running backward pass; see the module's docstring."""
        task = torch._C._current_graph_task_id()
        if task != self._task and self.outer is None:  # inner solves belong to the running pass
            self._task = task
            params = [p for slot in self._slots.values() for p in slot.view.parameters]
            if not any(p.grad is not None and bool(p.grad.any()) for p in params):
                self.sums = IterationSums.of(self._slots)
            self.sums.rows.append(0)
        return self.sums

    @contextmanager
    def inside(self, weight: float) -> Iterator[None]:
        """Record solves inside a vector field, as parts of a node with this weight."""
        before, self.outer = self.outer, weight
        try:
            yield
        finally:
            self.outer = before

    # ------------------------------------------------------------------ terminal factors

    @contextmanager
    def _sending_to(self, sums: IterationSums, *, inputs: bool) -> Iterator[None]:
        self._sending = (sums, inputs)
        try:
            yield
        finally:
            self._sending = None

    def _terminal_sums(self, outputs: object) -> IterationSums:
        """Pull each factor of the terminal curvature back through the model in a separate pass."""
        if not isinstance(outputs, Tensor):
            raise TypeError(
                f"terminal={self._options.terminal!r} requires a model that returns one tensor, "
                f"the input of the loss; it returned {type(outputs).__name__}. Use "
                "terminal='gradient'"
            )
        assert self._options.loss is not None
        generator = torch.Generator().manual_seed(self._seed)
        ys = terminal_factors(outputs, self._options.terminal, self._options.loss, generator)
        # Not only the parameters: a solve with adjoint="direct" reports its nodes when a gradient
        # reaches its initial state, which may not depend on a parameter.
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
    """Call a method with these first arguments, or do nothing after its object is deleted."""
    ref = weakref.WeakMethod(method)

    def call(*args: object) -> None:
        bound = ref()
        if bound is not None:
            bound(*first, *args)

    return call


class _BlockHook(Inert):
    """A hook before a block's calls that attaches the observer for the selected solves."""

    in_copies = staticmethod(no_hook)

    def __init__(self, path: PathSample, observer: PathObserver) -> None:
        self.path, self.observer = path, observer

    @uncompiled
    def __call__(self, block: Block, args: Any) -> None:
        if block.training and torch.is_grad_enabled() and not transforming():
            leave(block, self.observer)
            if self.path.takes_solve():
                join(block, self.observer)


class _ModelHook(Inert):
    """A forward hook of the model that reports its training calls."""

    in_copies = staticmethod(no_hook)

    def __init__(self, report: Callable[..., None]) -> None:
        self.report = report

    @uncompiled
    def __call__(self, module: nn.Module, args: Any, kwargs: Any, outputs: object) -> None:
        if training_call(module):
            self.report((args, kwargs), outputs)
