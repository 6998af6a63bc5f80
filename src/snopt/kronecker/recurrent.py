"""Readings of recurrent cells and recurrent layers; see :mod:`snopt.kronecker.composite`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from snopt.kronecker.calls import Arguments, Gradients, map_tensors
from snopt.kronecker.readings import CannotRead, Reading, pulled

__all__ = ["cell_matrices", "cell_readings", "sequence_matrices", "sequence_readings"]

#: Hidden state, and the cell state of an LSTM.
State: TypeAlias = tuple[Tensor, ...]
#: From W_ih x, W_hh h and the state to the next state.
Step: TypeAlias = Callable[[Tensor, Tensor, State], State]


def _gru(i: Tensor, h: Tensor, state: State) -> State:
    (r_i, z_i, n_i), (r_h, z_h, n_h) = i.chunk(3, -1), h.chunk(3, -1)
    n = torch.tanh(n_i + torch.sigmoid(r_i + r_h) * n_h)
    return (n + torch.sigmoid(z_i + z_h) * (state[0] - n),)


def _lstm(i: Tensor, h: Tensor, state: State) -> State:
    enter, forget, new, out = (i + h).chunk(4, -1)
    c = torch.sigmoid(forget) * state[1] + torch.sigmoid(enter) * torch.tanh(new)
    return torch.sigmoid(out) * torch.tanh(c), c


def _step_of(module: nn.RNNBase | nn.RNNCellBase) -> Step:
    if isinstance(module, nn.GRU | nn.GRUCell):
        return _gru
    if isinstance(module, nn.LSTM | nn.LSTMCell):
        return _lstm
    activation = torch.tanh if module.nonlinearity == "tanh" else torch.relu
    return lambda i, h, state: (activation(i + h),)


def _product(x: Tensor, module: nn.Module, weight: str, bias: str) -> Tensor:
    """Return W x + b as a tensor that requires a gradient; the parameters are detached."""
    b = getattr(module, bias, None)
    W: Tensor = getattr(module, weight)
    out = functional.linear(x, W.detach(), None if b is None else b.detach())
    return out if out.requires_grad else out.requires_grad_()


def _initial(hx: Any, like: Tensor, shape: Sequence[int], lstm: bool) -> State:
    if hx is None:
        return (like.new_zeros(shape),) * (1 + lstm)
    return tuple(h.to(like.dtype) for h in (hx if lstm else (hx,)))


def _input_and_state(arguments: Arguments, weight: Tensor) -> tuple[Tensor, State | Tensor | None]:
    args, kwargs = arguments
    given = {**dict(zip(("input", "hx"), args, strict=False)), **kwargs}
    if not isinstance(given["input"], Tensor):
        raise CannotRead("packed sequences are not supported; pad them instead")
    return given["input"].to(weight.dtype), given.get("hx")


def _named(ends: Sequence[str], bias: bool) -> dict[str, str]:
    return {f"weight_{end}": f"bias_{end}" if bias else "" for end in ends}


def cell_matrices(module: nn.RNNCellBase) -> dict[str, str]:
    """Return the names of a cell's matrices, each with its bias."""
    return _named(["ih", "hh"], module.bias)


def cell_readings(
    module: nn.RNNCellBase, arguments: Arguments, gradients: Gradients
) -> list[Reading]:
    """Evaluate a cell again and pull gradients back to its matrix products."""
    x, hx = _input_and_state(arguments, module.weight_ih)
    shape = (*x.shape[:-1], module.hidden_size)
    state = _initial(hx, x, shape, isinstance(module, nn.LSTMCell))
    i = _product(x, module, "weight_ih", "bias_ih")
    h = _product(state[0], module, "weight_hh", "bias_hh")
    g_ih, g_hh = pulled(_step_of(module)(i, h, state), gradients, [i, h])
    return [("weight_ih", x, g_ih), ("weight_hh", state[0], g_hh)]


def sequence_matrices(module: nn.RNNBase) -> dict[str, str]:
    """Return the names of a layer's matrices; none with dropout, whose masks are not known."""
    if module.dropout or module.proj_size:
        return {}
    ways = ("", "_reverse") if module.bidirectional else ("",)
    ends = [f"_l{layer}{way}" for layer in range(module.num_layers) for way in ways]
    return _named([f"{w}{end}" for end in ends for w in ("ih", "hh")], module.bias)


@dataclass
class _Pass:
    """One pass over a sequence, in one direction through one layer; tensors are time-major.

    Attributes:
        outputs: hidden state after each step.
        final: state after the last step.
        hidden: hidden state before each step.
        products: W_ih x of all steps, then W_hh h of each step.
    """

    outputs: Tensor
    final: State
    hidden: Tensor
    products: list[Tensor]


def _pass_over(module: nn.RNNBase, end: str, x: Tensor, state: State) -> _Pass:
    step, i = _step_of(module), _product(x, module, f"weight_ih{end}", f"bias_ih{end}")
    times = range(len(x))[:: -1 if end.endswith("_reverse") else 1]
    before, after, products = {}, {}, {}
    for t in times:
        before[t] = state[0]
        products[t] = _product(state[0], module, f"weight_hh{end}", f"bias_hh{end}")
        state = step(i[t], products[t], state)
        after[t] = state[0]
    hidden, outputs = (torch.stack([at[t] for t in range(len(x))]) for at in (before, after))
    return _Pass(outputs, state, hidden, [i, *(products[t] for t in range(len(x)))])


def sequence_readings(
    module: nn.RNNBase, arguments: Arguments, gradients: Gradients
) -> list[Reading]:
    """Evaluate a recurrent layer again, step by step, and pull gradients back."""
    x, hx = _input_and_state(arguments, module.weight_ih_l0)  # type: ignore[arg-type]
    if x.dim() == 2:  # one sequence without a batch axis
        x, hx, gradients = map_tensors(lambda value: value[:, None], (x, hx, gradients))
    elif module.batch_first:
        time_major = map_tensors(lambda value: value.transpose(0, 1), (x, gradients[0]))
        x, gradients = time_major[0], [time_major[1], *gradients[1:]]
    ends = [name.removeprefix("weight_ih") for name in sequence_matrices(module) if "ih" in name]
    width = len(ends) // module.num_layers
    shape = (len(ends), x.shape[1], module.hidden_size)
    initial = _initial(hx, x, shape, isinstance(module, nn.LSTM))
    passes: list[_Pass] = []
    inputs: list[Tensor] = []
    for k, end in enumerate(ends):
        if k and k % width == 0:  # the next layer
            x = torch.cat([done.outputs for done in passes[-width:]], -1)
        inputs.append(x)
        passes.append(_pass_over(module, end, x, tuple(s[k] for s in initial)))
    out = torch.cat([done.outputs for done in passes[-width:]], -1)
    final = [torch.stack(states) for states in zip(*(done.final for done in passes), strict=True)]
    found = iter(pulled([out, *final], gradients, [p for d in passes for p in d.products]))
    readings = []
    for end, x, done in zip(ends, inputs, passes, strict=True):
        g_ih, *g_hh = (next(found) for _ in done.products)
        pairs = ("ih", x, g_ih), ("hh", done.hidden, torch.stack(g_hh))
        readings += [
            (f"weight_{w}{end}", z.transpose(0, 1), g.transpose(0, 1)) for w, z, g in pairs
        ]
    return readings
