"""diffrax trained by optax's Adam: one iteration of a workload, and learning the digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from torch import Tensor, nn

from benchmarks.peers.diffrax_trials import (
    ADJOINTS,
    DiffraxTrial,
    Params,
    array,
    cross_entropy,
    params_of,
    solve,
)

ADJOINT = "diffrax_checkpoint"


def adam_iteration(case: str, form: str) -> Callable[[], object]:
    """One jitted iteration at learning rate zero: gradient, Adam's update, new parameters."""
    trial = DiffraxTrial(ADJOINT, case, form)
    update = optax.adam(0.0)
    state: list[Any] = [trial.params, update.init(trial.params)]

    @jax.jit
    def step(params: Params, memory: Any, inputs: jax.Array) -> tuple[Params, Any]:
        gradient = jax.grad(trial.loss)(params, inputs)
        change, memory = update.update(gradient, memory)
        return optax.apply_updates(params, change), memory

    def run() -> None:
        state[:] = jax.block_until_ready(step(*state, trial.inputs))

    return run


class DigitsLearner:
    """``benchmarks.optimizer.small.digits_model`` for JAX, with the same first weights."""

    def __init__(self, model: nn.Module, lr: float, tolerance: float = 1e-3) -> None:
        self.params = params_of(model)
        update = optax.adam(lr)
        self.memory = update.init(self.params)
        count = len(model[0].field.layers)

        def field(t: jax.Array, x: jax.Array, p: Params) -> jax.Array:
            for i in range(count):
                key = f"0.field.layers.{i}"
                x = x @ p[f"{key}.weight"].T + p[f"{key}.bias"]
                x = jnp.tanh(x) if i < count - 1 else x
            return x

        def logits(p: Params, x: jax.Array) -> jax.Array:
            end = solve(field, ADJOINTS[ADJOINT](), tolerance, x, p)
            return end @ p["1.weight"].T + p["1.bias"]

        def step(p: Params, memory: Any, x: jax.Array, y: jax.Array) -> tuple[Params, Any]:
            gradient = jax.grad(lambda p: cross_entropy(logits(p, x), y))(p)
            change, memory = update.update(gradient, memory)
            return optax.apply_updates(p, change), memory

        self._logits, self._step = jax.jit(logits), jax.jit(step)

    def compile(self, x: Tensor, y: Tensor) -> None:
        """Compile the step, which is not part of learning, and learn nothing."""
        jax.block_until_ready(self._step(self.params, self.memory, array(x), array(y)))

    def learn(self, x: Tensor, y: Tensor) -> None:
        """Take one step on a batch."""
        made = self._step(self.params, self.memory, array(x), array(y))
        self.params, self.memory = jax.block_until_ready(made)

    def accuracy(self, x: Tensor, y: Tensor) -> float:
        """Percentage of right answers."""
        right = self._logits(self.params, array(x)).argmax(1) == array(y)
        return 100.0 * float(right.mean())
