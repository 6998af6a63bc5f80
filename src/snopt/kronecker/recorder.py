"""Kronecker curvature of a model, recorded during the backward pass.

    Ā_n = ∫ z zᵀ dt,    B̄_n = ∫ g gᵀ dt,    g = (∂F/∂h_n)ᵀ Q_x        (eq. ``q-kfac``, R = 1)

Inside a vector field, a :class:`FieldObserver` receives quadrature nodes on the path, evaluates the
field again at each node while recording, and pulls Q_x back through it. Outside, each training call
of a layer counts once, as in ordinary K-FAC. A :class:`KroneckerRecorder` holds the layers and
opens a :class:`snopt.kronecker.recording.Recording` for each refresh iteration.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from snopt.adjoint.blocks import blocks_of
from snopt.adjoint.quadrature import Quadrature
from snopt.base.backprop import backpropagate
from snopt.base.context import Context
from snopt.base.copies import Inert
from snopt.base.isolation import preserving
from snopt.base.types import State, leaves
from snopt.kronecker.calls import recorded_calls
from snopt.kronecker.factors import block_sizes
from snopt.kronecker.options import KroneckerOptions
from snopt.kronecker.recording import Block, Recording
from snopt.kronecker.sampling import Seen
from snopt.kronecker.sums import Slot

__all__ = ["FieldObserver", "KroneckerRecorder"]


class FieldObserver(Inert):
    """Records the layers of one vector field at quadrature nodes.

    It does nothing if its recorder has no open recording or was deleted.

    A field may contain blocks of its own. Their layers are recorded at nodes of the inner solves
    that belong to a node of the outer solve, with the product of both weights; inner solves in
    evaluations by the outer solver do not count.

    Attributes:
        quadrature: the rule that places the nodes.
        layers: the layers it records, by name.
        solve_weight: weight of the solves that it observes.
        nested: whether its solves are inside another observed field.
        encloses: whether its field contains blocks.
    """

    def __init__(
        self,
        recorder: KroneckerRecorder,
        vector_field: nn.Module,
        layers: Mapping[str, nn.Module],
        quadrature: Quadrature,
    ) -> None:
        self.quadrature = quadrature
        self.solve_weight, self.nested = 1.0, False
        self.encloses = bool(blocks_of(vector_field))
        self._recorder = weakref.ref(recorder)
        self._field = vector_field
        self.layers = dict(layers)

    def observe(self, t: Tensor, weight: float, x: State, Q_x: State, *context: Context) -> None:
        """Evaluate the field at a node and count every call of a layer.

        Args:
            t: time of the node.
            weight: its quadrature weight.
            x: state there.
            Q_x: adjoint there.
            *context: further arguments of the field.
        """
        recorder = self._recorder()
        recording = None if recorder is None else recorder.recording
        if recording is None or not recording.listening:
            return
        if self.nested:
            if recording.outer is None:
                return
            weight *= recording.outer
        recording.observed.update(self.layers)
        path = recording.path_of(self)
        if path is not None:
            if not path.takes_node(self.solve_weight):
                return
            weight *= self.solve_weight * path.nodes.weight
        with preserving(self._field, t.device), torch.enable_grad():
            x = _leaf(x)
            with recorded_calls(self.layers) as calls:
                dx = self._field(t, x, *context)
        pairs = [
            (value, adjoint.to(value.dtype))
            for value, adjoint in zip(leaves(dx), leaves(Q_x), strict=True)
            if value.requires_grad
        ]
        if not pairs or not (calls or self.encloses):
            return
        values, adjoints = zip(*pairs, strict=True)
        edges: list[Any] = [edge for call in calls for edge in call.outputs if edge is not None]
        # The gradient at x passes through all inner solves.
        starts = list(leaves(x)) if self.encloses else []
        with recording.inside(weight):
            found = iter(backpropagate(values, edges + starts, adjoints))
        for call in calls:
            gradients = [None if edge is None else next(found) for edge in call.outputs]
            recording.report(call.name, call.arguments, gradients, weight=weight)
        recording.passed({call.name for call in calls}, weight, x)


def _leaf(state: State) -> State:
    """Detach a state; its tensors require gradients, for fields that compute divergences."""
    if isinstance(state, Tensor):
        return state.detach().requires_grad_()
    return tuple(_leaf(part) for part in state)


class KroneckerRecorder:
    """Records the covered layers of a model on demand.

    Args:
        model: the model.
        slots: weights to record, by name.
        blocks: the model's blocks.
        options: how factors are formed.
        seen: counts of an earlier recording.

    Attributes:
        slots: see above.
        options: see above.
        seen: see above; set it after a recording was used.
        sizes: block sizes of each slot's modes.
        recording: the open recording, or None.
    """

    def __init__(
        self,
        model: nn.Module,
        slots: Mapping[str, Slot],
        blocks: list[Block],
        options: KroneckerOptions,
        seen: Seen | None = None,
    ) -> None:
        self._model = model
        self.seen = seen or Seen()
        self.slots = dict(slots)
        self.options = options
        self.sizes = {
            name: [block_sizes(size, options.max_size) for size in slot.view.mode_sizes]
            for name, slot in self.slots.items()
        }
        self.recording: Recording | None = None
        observers = [(block, self.observer(block.field)) for block in blocks]
        inner = {id(part) for block in blocks for part in blocks_of(block.field)}
        for block, observer in observers:
            observer.nested = id(block) in inner
        self._observers = [(b, o) for b, o in observers if o.layers or o.encloses]

    def observer(self, vector_field: nn.Module) -> FieldObserver:
        """Return the observer of one vector field, for a solve.

        Args:
            vector_field: a module whose layers are among the slots.
        """
        inside = {id(module) for module in vector_field.modules()}
        for block in blocks_of(vector_field):  # they have their own observers
            inside -= {id(module) for module in block.field.modules()}
        layers = {
            name: self._model.get_submodule(name) for s in self.slots.values() for name in s.modules
        }
        mine = {name: module for name, module in layers.items() if id(module) in inside}
        return FieldObserver(self, vector_field, mine, self.options.quadrature)

    def arm(self, seed: int = 0) -> Recording:
        """Open a recording for the next iteration, which is a refresh.

        Args:
            seed: seed of the draws of ``terminal="sampled"`` (the global state is not changed);
                also selects which solves, nodes and examples are used.

        Returns:
            the open recording, or a new one.
        """
        if self.recording is None:
            self.recording = Recording(
                self._model, self.slots, self.sizes, self._observers, self.options, seed, self.seen
            )
        return self.recording

    def disarm(self) -> None:
        """Close the recording and discard it."""
        if self.recording is not None:
            self.recording.close()
            self.recording = None
