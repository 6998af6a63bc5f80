"""The workloads written for diffrax: jitted value and gradient, Dopri5, same tolerances.

The numbers (weights, inputs, labels, noise) are those of the PyTorch workload. Images are laid
out with channels last, as XLA prefers them; their gradients are laid out as PyTorch's again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.engine.cases import Gradients, Workload, build

Params = dict[str, jax.Array]
Loss = Callable[[Params, jax.Array], jax.Array]

ADJOINTS = {
    "diffrax_checkpoint": diffrax.RecursiveCheckpointAdjoint,
    "diffrax_backsolve": diffrax.BacksolveAdjoint,
}
MAX_STEPS = 64


class DiffraxTrial:
    """diffrax on one workload; the counterpart of :class:`benchmarks.engine.contenders.Trial`."""

    def __init__(self, contender: str, case: str, form: str) -> None:
        self.workload = build(case, form)
        self.loss, self.params, self.inputs = LOSSES[case](self.workload, ADJOINTS[contender]())
        self._value = jax.jit(self.loss)
        self._gradient = jax.jit(jax.value_and_grad(self.loss, argnums=(0, 1)))

    def evaluate(self) -> Any:
        """Return the loss alone, once it is computed."""
        return jax.block_until_ready(self._value(self.params, self.inputs))

    def run(self) -> Any:
        """Return loss and gradients, once they are computed."""
        self.latest = jax.block_until_ready(self._gradient(self.params, self.inputs))
        return self.latest

    def gradients(self) -> Gradients:
        """Return the gradients of the latest run as PyTorch lays them out, in float64."""
        of_params, of_inputs = self.latest[1]
        flat = [
            _tensor(of_params[f"field.{name}"], (3, 2, 0, 1)).flatten()
            for name, _ in self.workload.field.named_parameters()
        ]
        return {"parameters": torch.cat(flat), "inputs": _tensor(of_inputs, (0, 3, 1, 2))}


def _tensor(values: jax.Array, image_axes: tuple[int, ...]) -> Tensor:
    """Go back to PyTorch; four axes are an image's or a kernel's, put in the order given."""
    found = np.asarray(values, dtype=np.float64)
    return torch.from_numpy(found.transpose(image_axes) if found.ndim == 4 else found.copy())


def array(tensor: Tensor) -> jax.Array:
    return jnp.asarray(tensor.detach().numpy())


def params_of(module: nn.Module) -> Params:
    return {name: array(parameter) for name, parameter in module.named_parameters()}


def solve(field: Callable[..., Any], adjoint: Any, tolerance: float, x: Any, args: Any) -> Any:
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        diffrax.Dopri5(),
        t0=0.0,
        t1=1.0,
        dt0=None,
        y0=x,
        args=args,
        stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance),
        adjoint=adjoint,
        max_steps=MAX_STEPS,
    )
    return jax.tree.map(lambda path: path[-1], solution.ys)


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
    return -chosen.mean()


def _image(workload: Workload, adjoint: Any) -> tuple[Loss, Params, jax.Array]:
    labels = array(workload.labels)
    params = params_of(workload)
    for name in ("first", "second"):
        key = f"field.{name}.weight"
        params[key] = params[key].transpose(2, 3, 1, 0)

    def conv(name: str, t: jax.Array, x: jax.Array, p: Params) -> jax.Array:
        time = jnp.broadcast_to(t, (*x.shape[:3], 1)).astype(x.dtype)
        y = jax.lax.conv_general_dilated(
            jnp.concatenate((time, x), axis=-1),
            p[f"field.{name}.weight"],
            window_strides=(1, 1),
            padding="SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return y + p[f"field.{name}.bias"]

    def field(t: jax.Array, x: jax.Array, p: Params) -> jax.Array:
        return conv("second", t, jax.nn.relu(conv("first", t, x, p)), p)

    def loss(p: Params, x: jax.Array) -> jax.Array:
        end = solve(field, adjoint, workload.tolerance, x, p)
        pooled = jax.nn.relu(end).mean(axis=(1, 2))
        return cross_entropy(pooled @ p["head.weight"].T + p["head.bias"], labels)

    return loss, params, array(workload.inputs).transpose(0, 2, 3, 1)


def _ode_rnn(workload: Workload, adjoint: Any) -> tuple[Loss, Params, jax.Array]:
    labels = array(workload.labels)

    def field(t: jax.Array, x: jax.Array, p: Params) -> jax.Array:
        for i in (0, 2, 4):
            x = jnp.tanh(x @ p[f"field.net.{i}.weight"].T + p[f"field.net.{i}.bias"])
        return x @ p["field.net.6.weight"].T + p["field.net.6.bias"]

    def cell(p: Params, reading: jax.Array, x: jax.Array) -> jax.Array:
        from_reading = reading @ p["cell.weight_ih"].T + p["cell.bias_ih"]
        from_state = x @ p["cell.weight_hh"].T + p["cell.bias_hh"]
        reset_i, update_i, new_i = jnp.split(from_reading, 3, axis=1)
        reset_s, update_s, new_s = jnp.split(from_state, 3, axis=1)
        update = jax.nn.sigmoid(update_i + update_s)
        new = jnp.tanh(new_i + jax.nn.sigmoid(reset_i + reset_s) * new_s)
        return (1 - update) * new + update * x

    def loss(p: Params, readings: jax.Array) -> jax.Array:
        def interval(x: jax.Array, reading: jax.Array) -> tuple[jax.Array, None]:
            return solve(field, adjoint, workload.tolerance, cell(p, reading, x), p), None

        start = jnp.zeros((readings.shape[1], workload.width), readings.dtype)
        x, _ = jax.lax.scan(interval, start, readings)
        return cross_entropy(x @ p["head.weight"].T + p["head.bias"], labels)

    return loss, params_of(workload), array(workload.inputs)


def _cnf(workload: Workload, adjoint: Any) -> tuple[Loss, Params, jax.Array]:
    net = workload.field.net
    hidden = [f"field.net.layers.{i}" for i in range(len(net.layers))]
    activation = {"tanh": jnp.tanh, "softplus": jax.nn.softplus}[net.activation]
    noise = array(workload.field.noise)

    def network(t: jax.Array, x: jax.Array, p: Params) -> jax.Array:
        for key in (*hidden, "field.net.last"):
            gate = jax.nn.sigmoid(p[f"{key}.gate.weight"][:, 0] * t + p[f"{key}.gate.bias"])
            linear = x @ p[f"{key}.linear.weight"].T + p[f"{key}.linear.bias"]
            x = linear * gate + p[f"{key}.shift.weight"][:, 0] * t
            x = x if key == "field.net.last" else activation(x)
        return x

    def field(t: jax.Array, state: Any, args: Any) -> Any:
        p, e = args
        dx, along_noise = jax.jvp(lambda x: network(t, x, p), (state[0],), (e,))
        return dx, -(along_noise * e).sum(axis=1)

    def loss(p: Params, x: jax.Array) -> jax.Array:
        start = x, jnp.zeros(len(x), x.dtype)
        end, log_ratio = solve(field, adjoint, workload.tolerance, start, (p, noise))
        return -(jax.scipy.stats.norm.logpdf(end).sum(axis=1) - log_ratio).mean()

    return loss, params_of(workload), array(workload.inputs)


LOSSES = {"image": _image, "ode_rnn": _ode_rnn, "cnf_miniboone": _cnf, "cnf_gas": _cnf}
