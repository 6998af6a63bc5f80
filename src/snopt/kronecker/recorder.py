"""Kronecker curvature of a model, recorded while it is being differentiated.

    Ā_n = ∫ z zᵀ dt,    B̄_n = ∫ g gᵀ dt,    g = (∂F/∂h_n)ᵀ Q_x        (eq. ``q-kfac``, R = 1)

Inside a vector field, a :class:`FieldObserver` is told of quadrature nodes on the path, evaluates
the field once more at each with recording on, and pulls Q_x back through it. Outside, each
training call of a layer counts once: ordinary K-FAC. A :class:`KroneckerRecorder` holds the sums
of both and makes factors of them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from snopt.adjoint.quadrature import Quadrature
from snopt.base.isolation import preserving
from snopt.base.types import State, leaves
from snopt.kronecker.factors import (
    FactorSums,
    LayerFactors,
    block_sizes,
    call_factors,
    finished,
)
from snopt.kronecker.observers import join, leave
from snopt.kronecker.options import KroneckerOptions
from snopt.kronecker.recording import Tap, recording
from snopt.kronecker.view import LayerView
from snopt.second_order.terminal import leaves_of, terminal_factors

__all__ = ["Block", "FieldObserver", "KroneckerRecorder", "Slot"]

#: A module with a ``field`` and an ``observer``: :class:`snopt.NeuralODE`, or one like it.
Block = Any


@dataclass
class Slot:
    """One set of weights whose curvature is recorded.

    Attributes:
        view: the layer in the canonical layout.
        in_field: whether the layer belongs to a vector field.
        modules: the layers that use these weights, by name (several if weights are tied).
        sums: what has been recorded since the last refresh.
    """

    view: LayerView
    in_field: bool
    modules: dict[str, nn.Module]
    sums: FactorSums = field(default_factory=FactorSums)


class FieldObserver:
    """Records the layers of one vector field at the nodes it is told of.

    It is inert in a copied or unpickled model (where it becomes None), and when the recorder
    it reports to is gone or not armed.

    Attributes:
        quadrature: where along the path it wants to be told.
        layers: the layers it records, by name.
    """

    def __init__(
        self,
        recorder: KroneckerRecorder,
        vector_field: nn.Module,
        layers: Mapping[str, nn.Module],
        quadrature: Quadrature,
    ) -> None:
        self.quadrature = quadrature
        self._recorder = weakref.ref(recorder)
        self._field = vector_field
        self.layers = dict(layers)

    def observe(self, t: Tensor, weight: float, x: State, Q_x: State) -> None:
        """Evaluate the field at a node with recording on, and count every call of a layer.

        Args:
            t: time of the node.
            weight: its quadrature weight.
            x: state there.
            Q_x: adjoint there.
        """
        recorder = self._recorder()
        if recorder is None or not recorder.counting:
            return
        device = t.device
        with preserving(self._field, device), torch.enable_grad():
            x = _leaf(x)
            with recording(self.layers) as calls:
                dx = self._field(t, x)
        pairs = [
            (value, adjoint.to(value.dtype))
            for value, adjoint in zip(leaves(dx), leaves(Q_x), strict=True)
            if value.requires_grad
        ]
        if not calls or not pairs:
            return
        values, adjoints = zip(*pairs, strict=True)
        gradients = torch.autograd.grad(
            values, [call.output for call in calls], adjoints, allow_unused=True
        )
        for call, g in zip(calls, gradients, strict=True):
            if g is not None:
                recorder.count(call.name, call.z, g, weight=weight)
        recorder.passed({call.name for call in calls}, weight)

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        return None

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def _mode_sizes(view: LayerView, options: KroneckerOptions) -> list[list[int]]:
    """Block sizes of each mode of a layer."""
    return [block_sizes(n, options.max_size) for n in view.mode_sizes]


def _leaf(state: State) -> State:
    """A detached copy of a state whose tensors are leaves that require gradients.

    Divergence code differentiates with respect to the state, so it has to be part of the graph.
    """
    if isinstance(state, Tensor):
        return state.detach().requires_grad_()
    return tuple(_leaf(part) for part in state)


class _Attachment:
    """Hooks and observers put on a model, and how to take them off again.

    Apart from the recorder, so that it can clean up after the recorder has died.
    """

    def __init__(self) -> None:
        self.handles: list[RemovableHandle] = []
        self.blocks: list[tuple[weakref.ref[Any], FieldObserver]] = []

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()
        for ref, observer in self.blocks:
            block = ref()
            if block is not None:
                leave(block, observer)
        self.handles, self.blocks = [], []


class KroneckerRecorder:
    """Collects the factors of all covered layers over one iteration.

    Args:
        model: the model; each of its training calls is one batch.
        slots: weights to record, by name.
        blocks: the model's blocks; each field's observer is set while armed.
        options: which curvature is wanted.
    """

    def __init__(
        self,
        model: nn.Module,
        slots: Mapping[str, Slot],
        blocks: list[Block],
        options: KroneckerOptions,
    ) -> None:
        self._model = model
        self.slots = dict(slots)
        self.options = options
        self.armed = False
        self.counting = False
        self.batches = 0
        self._inputs = True
        self._seed = 0
        self._slot_of = {name: key for key, slot in self.slots.items() for name in slot.modules}
        self.sizes = {key: _mode_sizes(slot.view, options) for key, slot in self.slots.items()}
        observers = [(block, self.observer(block.field)) for block in blocks]
        self._blocks = [(block, observer) for block, observer in observers if observer.layers]
        self._attached = _Attachment()
        weakref.finalize(self, self._attached.remove)

    def observer(self, vector_field: nn.Module) -> FieldObserver:
        """Make the observer of one vector field, to be handed to a solve.

        Args:
            vector_field: a module whose layers are among the slots.
        """
        inside = {id(module) for module in vector_field.modules()}
        layers = {
            name: module
            for slot in self.slots.values()
            for name, module in slot.modules.items()
            if id(module) in inside
        }
        return FieldObserver(self, vector_field, layers, self.options.quadrature)

    def arm(self, seed: int = 0) -> None:
        """Record from now on: the coming iteration is a refresh.

        Args:
            seed: of the draws of ``terminal="sampled"``; the global state is not touched.
        """
        if self.armed:
            return
        self.armed, self._seed = True, seed
        self.counting = self.options.terminal == "gradient"
        attached = self._attached
        for block, observer in self._blocks:
            join(block, observer)
            attached.blocks.append((weakref.ref(block), observer))
        for slot in self.slots.values():
            if slot.in_field:
                continue
            for name, module in slot.modules.items():
                tap = Tap(self._reporter(name))
                attached.handles.append(module.register_forward_hook(tap, with_kwargs=True))
        called = _ModelTap(weakref.WeakMethod(self._model_called))
        attached.handles.append(self._model.register_forward_hook(called))

    def disarm(self) -> None:
        """Stop recording and leave the model without hooks."""
        self.armed = self.counting = False
        self._attached.remove()

    def clear(self) -> None:
        """Forget what has been recorded."""
        self.batches = 0
        for slot in self.slots.values():
            slot.sums = FactorSums()

    def collect(self) -> dict[str, LayerFactors]:
        """Turn what has been recorded into factors, and forget it."""
        batches, N = max(1, self.batches), self.batch_size
        found = {}
        for key, slot in self.slots.items():
            scale = 1.0 if self.options.reduction == "mean" else 1.0 / max(1, N) ** 2
            if slot.in_field and slot.sums.duration > 0:
                scale /= slot.sums.duration / batches
            factors = finished(
                slot.sums, calls=batches, b_scale=scale, sharing=self.options.sharing
            )
            if factors is not None:
                found[key] = factors
        self.clear()
        return found

    @property
    def batch_size(self) -> int:
        """Examples of the iteration: the largest batch of a layer times the number of batches."""
        largest = max((slot.sums.batch for slot in self.slots.values()), default=0)
        return largest * max(1, self.batches)

    @property
    def dropped(self) -> int:
        """Calls that were left out because they were not finite."""
        return sum(slot.sums.dropped for slot in self.slots.values())

    def count(self, name: str, z: Tensor, g: Tensor, *, weight: float = 1.0) -> None:
        """Count one call of a layer.

        Args:
            name: the layer's name.
            z: its input.
            g: the gradient with respect to its output.
            weight: quadrature weight.
        """
        key = self._slot_of[name]
        slot = self.slots[key]
        if not self.counting or not slot.view.parameters[0].requires_grad:
            return
        # Autograd runs hooks with gradients off, a solve may not; and autocast, on during the
        # backward pass of a solve, would round the factors.
        with torch.no_grad(), torch.autocast(g.device.type, enabled=False):
            call = call_factors(
                slot.view,
                z,
                g,
                sharing=self.options.sharing,
                sizes=self.sizes[key],
                inputs=self._inputs,
            )
            batch = slot.view.output_gradients(g).shape[1]
            slot.sums.add(call, weight=weight, batch=batch)

    def passed(self, names: set[str], weight: float) -> None:
        """Add a node's weight to the duration of the layers called there, once each."""
        if self._inputs:
            for key in {self._slot_of[name] for name in names}:
                self.slots[key].sums.duration += weight

    def _reporter(self, name: str) -> Callable[[Tensor, Tensor], None]:
        ref = weakref.ref(self)

        def report(z: Tensor, g: Tensor) -> None:
            recorder = ref()
            if recorder is not None:
                recorder.count(name, z, g)

        return report

    def _model_called(self, module: nn.Module, outputs: object) -> None:
        if not (module.training and torch.is_grad_enabled()):
            return
        self.batches += 1
        if self.options.terminal != "gradient":
            self._send_terminal_factors(outputs)

    def _send_terminal_factors(self, outputs: object) -> None:
        """Send each factor of the terminal curvature back through the model in its own pass."""
        if not isinstance(outputs, Tensor):
            raise TypeError(
                f"terminal={self.options.terminal!r} needs the model to return one tensor, the "
                f"loss's input; it returned {type(outputs).__name__}: use terminal='gradient'"
            )
        if not outputs.requires_grad:
            return
        assert self.options.loss is not None
        generator = torch.Generator().manual_seed(self._seed)
        ys = terminal_factors(outputs, self.options.terminal, self.options.loss, generator)
        # Not the parameters alone: a solve with adjoint="direct" tells its nodes when a gradient
        # arrives at its start, which nothing trainable may precede.
        ends = leaves_of(outputs)
        try:
            self.counting = True
            for i, y in enumerate(ys):
                self._inputs = i == 0
                torch.autograd.grad(outputs, ends, y, retain_graph=True, allow_unused=True)
        finally:
            self.counting, self._inputs = False, True


class _ModelTap:
    """A forward hook of the model; inert in a copy, like :class:`snopt.kronecker.Tap`."""

    def __init__(self, method: weakref.WeakMethod[Any] | None) -> None:
        self.method = method

    def __call__(self, module: nn.Module, args: object, outputs: object) -> None:
        method = self.method() if self.method is not None else None
        if method is not None:
            method(module, outputs)

    def __deepcopy__(self, memo: dict[int, Any]) -> _ModelTap:
        return _ModelTap(None)

    def __reduce__(self) -> tuple[type[_ModelTap], tuple[None]]:
        return _ModelTap, (None,)
