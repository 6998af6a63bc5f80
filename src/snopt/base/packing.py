"""Conversion between nested states and the single tensor that the solver integrates.

A single tensor keeps its shape and is not copied. A nested tuple is flattened and concatenated to
one vector. Unpacking keeps leading axes, so the states at many times unpack in one call.
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
    """Return the nesting of a state with shapes (``torch.Size``) instead of tensors."""
    if isinstance(state, Tensor):
        return state.shape
    return tuple(_layout(part) for part in state)


def _build(layout: Any, pieces: Iterator[Tensor], lead: torch.Size) -> State:
    # Not a closure: a recursive closure is a reference cycle that keeps the pieces alive.
    if isinstance(layout, torch.Size):
        return next(pieces).reshape(lead + layout)
    return tuple(_build(part, pieces, lead) for part in layout)


def _parts(state: State) -> list[Tensor]:
    """Return the tensors of a nested state, which must be of one dtype and on one device."""
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
            "the tensors of the initial state differ in dtype or device: "
            f"{sorted(map(str, kinds))}; convert them, for example with `.to(x[0])`."
        )
    return parts


@dataclass(frozen=True)
class Packing:
    """The mapping between one structure of states and packed tensors.

    Attributes:
        layout: ``torch.Size`` for a single tensor, otherwise nested tuples of them.
        sizes: number of entries of every leaf, left to right.
    """

    layout: Any
    sizes: tuple[int, ...]

    @staticmethod
    def of(state: State) -> Packing:
        """Return the packing of a state, after checking that it can be integrated.

        Example:
            >>> Packing.of((torch.zeros(2, 3), torch.zeros(2))).sizes
            (6, 2)
        """
        parts = [state] if isinstance(state, Tensor) else _parts(state)
        dtype = parts[0].dtype
        if not (dtype.is_floating_point or dtype.is_complex):
            raise InvalidState(
                f"the initial state has dtype {dtype}; use `.float()` or `.double()`."
            )
        return Packing(_layout(state), tuple(part.numel() for part in parts))

    @property
    def single(self) -> bool:
        """Whether the state is a single tensor, which needs no packing."""
        return isinstance(self.layout, torch.Size)

    def pack(self, state: State) -> Tensor:
        """Return a single tensor unchanged, and a nested state as one vector.

        Example:
            >>> state = (torch.zeros(2), torch.ones(1))
            >>> Packing.of(state).pack(state)
            tensor([0., 0., 1.])
        """
        if self.single:
            return state  # type: ignore[no-any-return]
        return torch.cat([leaf.reshape(-1) for leaf in leaves(state)])

    def unpack(self, packed: Tensor) -> State:
        """Undo :meth:`pack`; every leaf keeps additional leading axes of ``packed``.

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
        """Return a field on packed tensors for a field on nested states."""
        if self.single:
            return field

        def packed_field(t: Tensor, x: Tensor) -> Tensor:
            return self.pack(field(t, self.unpack(x)))

        return packed_field

    def check_output(self, out: State, x: State, *, cast: bool = False) -> None:
        """Raise FieldOutputError unless ``out`` has structure, shapes, dtype and device of ``x``.

        With ``cast=True`` (autocast is active) the dtype may differ.
        """
        kinds = Tensor if isinstance(x, Tensor) else (tuple, list)
        if not isinstance(out, kinds):
            raise FieldOutputError(
                f"the field returned a {type(out).__name__} for a state that is a "
                f"{type(x).__name__}; return dx/dt in the structure of the state."
            )
        outs, states = list(leaves(out)), list(leaves(x))
        if len(outs) != len(states):
            raise FieldOutputError(
                f"the field returned {len(outs)} tensors for a state of {len(states)}; "
                "return one derivative per tensor of the state."
            )
        for i, (k, part) in enumerate(zip(outs, states, strict=True)):
            place = f" (tensor {i})" if len(states) > 1 else ""
            if k.shape != part.shape:
                raise FieldOutputError(
                    f"the field returned shape {tuple(k.shape)} for a state of shape "
                    f"{tuple(part.shape)}{place}; dx/dt has the shape of x."
                )
            if k.device != part.device:
                raise FieldOutputError(
                    f"the field returned a tensor on {k.device}, the state is on {part.device}"
                    f"{place}; move the field with `.to({part.device})`."
                )
            if k.dtype != part.dtype and not cast:
                raise FieldOutputError(
                    f"the field returned {k.dtype} for a state of {part.dtype}{place}; "
                    "use one dtype for both, for example with `field.to(x.dtype)`."
                )
