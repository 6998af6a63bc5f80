"""Nested states in, one tensor for the solver out, and back.

The solver integrates one tensor. A lone tensor keeps its shape (nothing is copied);
a nested tuple is laid end to end in one vector. The leading axes of a packed tensor
survive unpacking, so the states at many times unpack in one call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from snopt.base.errors import FieldOutputError, InvalidState
from snopt.base.types import Field, State, TensorField, leaves


def _layout(state: State) -> Any:
    """The nesting of a state with shapes in place of tensors (``torch.Size`` marks a leaf)."""
    if isinstance(state, Tensor):
        return state.shape
    return tuple(_layout(part) for part in state)


def _build(layout: Any, pieces: Iterator[Tensor], lead: torch.Size) -> State:
    """Hang pieces into a layout.

    A function of its own: a recursive closure would be a cycle that keeps the pieces alive.
    """
    if isinstance(layout, torch.Size):
        return next(pieces).reshape(lead + layout)
    return tuple(_build(part, pieces, lead) for part in layout)


@dataclass(frozen=True)
class Packing:
    """How one nested state maps to the solver's tensor.

    Attributes:
        layout: ``torch.Size`` for a lone tensor, nested tuples of them otherwise.
        sizes: Numbers of entries of the leaves, left to right.
    """

    layout: Any
    sizes: tuple[int, ...]

    @staticmethod
    def of(state: State) -> Packing:
        """Read the packing off an example state, checking that it can be integrated.

        Args:
            state: A floating-point or complex tensor, or nested tuples of them.

        Returns:
            The packing.

        Raises:
            InvalidState: No tensor, mixed dtypes or devices, or integer entries.

        Example:
            >>> Packing.of((torch.zeros(2, 3), torch.zeros(2))).sizes
            (6, 2)
        """
        try:
            parts = list(leaves(state))
        except (TypeError, RecursionError):
            parts = []
        if not parts or not all(isinstance(part, Tensor) for part in parts):
            raise InvalidState(
                f"the initial state is a {type(state).__name__}; pass a tensor or a (nested) "
                "tuple of tensors."
            )
        kinds = {(part.dtype, str(part.device)) for part in parts}
        if len(kinds) > 1:
            raise InvalidState(
                "the parts of the initial state differ in dtype or device: "
                f"{sorted(map(str, kinds))}; bring them to one, for example with `.to(x[0])`."
            )
        dtype = parts[0].dtype
        if not (dtype.is_floating_point or dtype.is_complex):
            raise InvalidState(
                f"the initial state has dtype {dtype}; use `.float()` or `.double()`."
            )
        return Packing(_layout(state), tuple(part.numel() for part in parts))

    @property
    def single(self) -> bool:
        """Whether the state is a lone tensor, which is passed through untouched."""
        return isinstance(self.layout, torch.Size)

    def pack(self, state: State) -> Tensor:
        """Lay a nested state end to end.

        Args:
            state: A state of this layout.

        Returns:
            The state itself if it is a lone tensor, else a vector.

        Example:
            >>> state = (torch.zeros(2), torch.ones(1))
            >>> Packing.of(state).pack(state)
            tensor([0., 0., 1.])
        """
        if self.single:
            return state  # type: ignore[no-any-return]
        return torch.cat([leaf.reshape(-1) for leaf in leaves(state)])

    def unpack(self, packed: Tensor) -> State:
        """Undo :meth:`pack`; leading axes beyond the packed ones are kept on every leaf.

        Args:
            packed: A tensor made by :meth:`pack`, or several stacked on leading axes.

        Returns:
            The nested state, its leaves views of ``packed``.

        Example:
            >>> state = (torch.zeros(2), torch.ones(1))
            >>> packing = Packing.of(state)
            >>> [leaf.shape for leaf in packing.unpack(torch.stack([packing.pack(state)] * 4))]
            [torch.Size([4, 2]), torch.Size([4, 1])]
        """
        if self.single:
            return packed
        pieces = iter(packed.split(self.sizes, dim=-1))
        return _build(self.layout, pieces, packed.shape[:-1])

    def wrap(self, field: Field) -> TensorField:
        """Turn a field on nested states into a field on packed tensors.

        Args:
            field: The user's field.

        Returns:
            The field itself for a lone tensor, else one that unpacks and packs around it.
        """
        if self.single:
            return field

        def packed_field(t: Tensor, x: Tensor) -> Tensor:
            out = field(t, self.unpack(x))
            return torch.cat([leaf.reshape(-1) for leaf in leaves(out)])

        return packed_field

    def check_output(self, out: State, x: State, *, cast: bool = False) -> None:
        """Check once a solve that the field returned a derivative of the state.

        Args:
            out: What the field returned for ``x``.
            x: The state.
            cast: Whether a lower precision is fine because autocast is on.

        Raises:
            FieldOutputError: Structure, shape, dtype or device differ from the state's.
        """
        if isinstance(x, Tensor) != isinstance(out, Tensor) or (
            not isinstance(out, (Tensor, tuple, list))
        ):
            raise FieldOutputError(
                f"the field returned a {type(out).__name__} for a state that is a "
                f"{type(x).__name__}; return dx/dt in the state's own structure."
            )
        outs, states = list(leaves(out)), list(leaves(x))
        if len(outs) != len(states):
            raise FieldOutputError(
                f"the field returned {len(outs)} tensors for a state of {len(states)}; "
                "return one derivative for each part of the state."
            )
        for i, (k, part) in enumerate(zip(outs, states, strict=True)):
            if k.shape != part.shape:
                raise FieldOutputError(
                    f"the field returned shape {tuple(k.shape)} for a state of shape "
                    f"{tuple(part.shape)} (part {i}); dx/dt has the shape of x."
                )
            if k.device != part.device:
                raise FieldOutputError(
                    f"the field returned a tensor on {k.device}, the state is on {part.device} "
                    f"(part {i}); move the field with `.to({part.device})`."
                )
            if k.dtype != part.dtype and not cast:
                raise FieldOutputError(
                    f"the field returned {k.dtype} for a state of {part.dtype} (part {i}); "
                    "give field and state one dtype, for example `field.to(x.dtype)`."
                )
