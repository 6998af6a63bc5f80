"""The registry of views by layer class."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from snopt.kronecker.calls import map_tensors, tensors_in
from snopt.kronecker.composite import composite_of, readings_of
from snopt.kronecker.conv import ConvForm, ConvView
from snopt.kronecker.linear import LinearView
from snopt.kronecker.normalised import is_normalised, matrix_of
from snopt.kronecker.view import LayerView

__all__ = [
    "VIEWS",
    "MakeView",
    "check_view",
    "is_covered",
    "matrices_of",
    "register_layer",
    "view_of",
]


class MakeView(Protocol):
    """A function that returns the view of a layer; usually a subclass of :class:`LayerView`."""

    def __call__(self, module: Any, *, bias: bool) -> LayerView:
        """Return the view of ``module``, with its bias if ``bias`` is True and there is one."""
        ...


#: Views by kind of layer; the first match in the layer's method resolution order counts.
VIEWS: dict[type[nn.Module], MakeView] = {
    nn.Linear: LinearView,
    nn.Conv1d: ConvView,
    nn.Conv2d: ConvView,
    nn.Conv3d: ConvView,
}


def register_layer(kind: type[nn.Module], view: MakeView) -> None:
    """Register a view for a kind of layer; optimizers created afterwards use it.

    The layer must have its matrix, or matrices, in one parameter called ``weight`` and a ``bias``
    that is a parameter or None. It must take and return one tensor. Its view has two modes, outputs
    and inputs: ``mode_sizes = (out, in)``, ``target_modes = ((0, 1),)``. :func:`check_view` tests
    it.

    Args:
        kind: class of the layers; subclasses are covered too.
        view: called as ``view(module, bias=...)``.

    Raises:
        TypeError: ``kind`` is not a class of modules.

    Example:
        >>> class Scaled(nn.Linear):
        ...     def forward(self, input):
        ...         return 3 * super().forward(input)
        >>> class ScaledView(LinearView):
        ...     def output_gradients(self, g):
        ...         return 3 * super().output_gradients(g)
        >>> register_layer(Scaled, ScaledView)
        >>> check_view(Scaled(4, 2), torch.ones(5, 4))
        >>> del VIEWS[Scaled]
    """
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise TypeError(f"{kind!r} is not a class of modules; register the layer's class")
    VIEWS[kind] = view


def matrices_of(module: nn.Module) -> dict[str, tuple[nn.Parameter, nn.Parameter | None]]:
    """Return the matrices of a layer that have a view, by name, each with its bias.

    A layer with a parametrisation other than those of :mod:`snopt.kronecker.normalised` has none,
    because torch does not keep the gradient of its weight. Complex matrices have none either.

    Example:
        >>> list(matrices_of(nn.Linear(2, 2))), list(matrices_of(nn.GRUCell(2, 2)))
        (['weight'], ['weight_ih', 'weight_hh'])
    """
    composite, make = composite_of(module), _maker(module)
    if composite is not None:
        found = {
            name: (attrgetter(name)(module), attrgetter(bias)(module) if bias else None)
            for name, bias in composite.matrices(module).items()
        }
        return {} if any(matrix.is_complex() for matrix, _ in found.values()) else found
    weight = matrix_of(module)
    if make is None or weight is None or weight.is_complex():
        return {}
    if not is_normalised(module):
        return {"weight": (weight, module.bias)}  # type: ignore[dict-item]
    return {"weight": (weight, None)} if make in (LinearView, ConvView) else {}


def is_covered(module: nn.Module) -> bool:
    """Return whether a layer is covered by default: it has a view and is not recurrent.

    Example:
        >>> is_covered(nn.Linear(2, 2)), is_covered(nn.GRUCell(2, 2))
        (True, False)
    """
    composite = composite_of(module)
    return not (composite and composite.recurrent) and bool(matrices_of(module))


def view_of(
    module: nn.Module, matrix: str = "weight", *, bias: bool = True, conv_form: ConvForm = "kfc"
) -> LayerView:
    """Return the view of a layer, or of one of its matrices.

    Args:
        module: a linear layer, a convolution, a recurrent layer or cell, attention, or a layer of a
            registered kind.
        matrix: name of the matrix, for layers that have several.
        bias: whether the view covers the bias.
        conv_form: form of a convolution's view.

    Raises:
        TypeError: the layer has no view.

    Example:
        >>> view_of(nn.Conv1d(2, 3, 5)).mode_sizes
        (3, 11)
        >>> view_of(nn.GRUCell(2, 3), "weight_hh").mode_sizes
        (9, 4)
    """
    composite, make, found = composite_of(module), _maker(module), matrices_of(module)
    if composite is not None and matrix in found:
        return composite.view(module, matrix, bias=bias and found[matrix][1] is not None)
    if make is None or matrix not in found:
        kinds = ", ".join(kind.__name__ for kind in VIEWS)
        raise TypeError(
            f"{type(module).__name__} has no view of {matrix!r} (views exist for {kinds}, "
            f"recurrent layers and attention; this layer has: {list(found) or 'none'}); train it "
            "with the optimizer's fallback, or register a view with "
            "snopt.kronecker.register_layer"
        )
    if make is ConvView:
        return ConvView(module, bias=bias, form=conv_form)  # type: ignore[arg-type]
    return make(module, bias=bias)


def check_view(module: nn.Module, *inputs: Any) -> None:
    r"""Check that a layer's views have the right gradient and that unpacking undoes packing.

    The right gradient of the weights is :math:`\sum g z^\top`, as autograd computes it.

    Args:
        module: a layer, preferably in double precision.
        *inputs: its arguments, with more than one example.

    Raises:
        ValueError: a view does not pass the check.

    Example:
        >>> check_view(nn.Conv2d(4, 6, 3, groups=2), torch.ones(2, 4, 5, 5))
    """
    name, views = type(module).__name__, {m: view_of(module, m) for m in matrices_of(module)}
    if not views:
        view_of(module)
    outputs = list(tensors_in(module(*inputs)))
    # All entries of the gradient differ, to detect exchanged axes.
    gs = [torch.arange(1, y.numel() + 1).sin().to(y).view_as(y) for y in outputs]
    arguments = map_tensors(Tensor.detach, inputs)
    readings = {m: (z, g) for m, z, g in readings_of(module, (arguments, {}), [*gs])}
    for matrix, view in views.items():
        gradients = torch.autograd.grad(outputs, view.parameters, gs, retain_graph=True)
        label = name if matrix == "weight" else f"{name}.{matrix}"
        _check_readings(label, view, gradients, *readings[matrix])


def _check_readings(
    name: str, view: LayerView, gradients: tuple[Tensor, ...], z: Tensor, g: Tensor
) -> None:
    packed = view.pack(gradients[0], gradients[1] if view.bias else None)
    rows = torch.einsum("gbso,gbsi->goi", view.output_gradients(g), view.inputs(z))
    target = packed[0].flatten(2)
    if rows.shape != target.shape:
        raise ValueError(
            f"the view of {name}: output gradients and inputs give a gradient of shape "
            f"{list(rows.shape)}, but pack returns {list(packed[0].shape)}; both must be "
            f"[groups, out, in], here {[view.groups, *view.mode_sizes]}"
        )
    if not torch.allclose(rows, target, rtol=1e-4, atol=1e-5 * float(target.abs().max())):
        raise ValueError(
            f"the view of {name}: Σ g zᵀ differs from autograd's gradient by "
            f"{float((rows - target).abs().max()):.2g} (largest entry "
            f"{float(target.abs().max()):.2g}); axes may be exchanged, or the constant feature of "
            "a bias may be missing"
        )
    for found, gradient in zip(view.unpack(packed), gradients, strict=False):
        if found is None or not torch.equal(found, gradient):
            raise ValueError(f"the view of {name}: unpack does not undo pack")


def _maker(module: nn.Module) -> MakeView | None:
    return next((VIEWS[kind] for kind in type(module).__mro__ if kind in VIEWS), None)
