"""Solves in which every sample of the batch has its own step size.

Each sample is controlled by its own error norm, as if it were solved alone, but the stages of all
samples that have not reached the end are evaluated together. A stiff sample does not force small
steps on the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from snopt.base.types import TensorField, real_dtype
from snopt.ode.interpolation import polynomials
from snopt.ode.runge_kutta import first_guess, second_guess
from snopt.ode.settings import Settings
from snopt.ode.solution import SolveStats, Status
from snopt.ode.solve import StepControl, fit, outputs_in
from snopt.ode.step import StageList, Tolerance, combine_errors
from snopt.ode.tableau import Tableau


class _Sample:
    """Time and step control of one sample."""

    def __init__(self, index: int, settings: Settings, tableau: Tableau, t0: float,
                 eps: float) -> None:  # fmt: skip
        order = 8 if len(tableau.errors) == 2 else tableau.order
        self.control = StepControl(settings.controller, order, eps)
        self.index, self.t, self.pending = index, t0, 1

    def plan(self, end: float, x: Tensor) -> None:
        """Choose the next attempt: its size, signed step and end."""
        self.size, landing = fit(self.control.h, abs(end - self.t))
        self.h = end - self.t if landing else math.copysign(self.size, end - self.t)
        self.t1 = end if landing else self.t + self.h
        status = Status.MAX_STEPS if self.control.exhausted else None
        status = status or self.control.stuck(self.t, self.t1, self.size, end, landing)
        if status is not None:
            raise self.control.failure(status, self.t, end, x, where=f"sample {self.index} ")
        self.control.tried = self.h


class PerSample:
    """A solve of a batch, samples on the first axis, with one step size per sample.

    ``field`` receives only the samples that have not reached the end, and their times in a tensor
    of shape ``[samples, 1, ..., 1]`` that broadcasts with the state.

    Attributes:
        stats: counts of every sample.
    """

    def __init__(self, settings: Settings, field: TensorField, tolerance: Tolerance,
                 x0: Tensor, times: Sequence[float]) -> None:  # fmt: skip
        assert settings.tableau is not None
        self.tableau, self.tolerance, self.field = settings.tableau, tolerance, field
        self.times, self.end = times, times[-1]
        self.sign = 1.0 if times[-1] > times[0] else -1.0
        eps = torch.finfo(x0.dtype).eps
        self.samples = [_Sample(i, settings, self.tableau, times[0], eps) for i in range(len(x0))]
        self.stats = [sample.control.stats for sample in self.samples]
        self.x = x0
        self.k1: Tensor | None = None
        #: States at requested times, and their places in the result.
        self.outputs: list[Tensor] = []
        self.places: list[int] = []
        self.first_step = settings.first_step

    def run(self) -> Tensor:
        """Solve, and return the states at the requested times on a new first axis."""
        x0, count = self.x, len(self.samples)
        self._begin()
        while self.samples:
            self._attempt()
        order = torch.tensor(self.places, device=x0.device).argsort()
        later = torch.cat(self.outputs)[order]
        return torch.cat([x0[None], later.view(len(self.times) - 1, count, *x0.shape[1:])])

    def _evaluate(self, t: Tensor, x: Tensor) -> Tensor:
        for sample in self.samples:
            sample.control.stats.nfe_forward += 1
        return self.field(t, x)

    def _column(self, values: Sequence[float]) -> Tensor:
        """Return one number per sample, in a shape that broadcasts with the state."""
        column = torch.tensor(values, dtype=real_dtype(self.x.dtype), device=self.x.device)
        return column.view(-1, *[1] * (self.x.ndim - 1))

    def _norms(self, *errors: Tensor) -> list[list[float]]:
        """Return the root mean square of each error and sample, with one transfer for all."""
        flat = torch.stack([error.detach().flatten(1) for error in errors])
        norms: list[list[float]] = (
            torch.linalg.vector_norm(flat, dim=2) * flat.shape[2] ** -0.5
        ).tolist()
        return norms

    def _begin(self) -> None:
        """Choose a first step for every sample, as :meth:`RungeKutta.guess` does."""
        controls, span = [s.control for s in self.samples], abs(self.end - self.times[0])
        if self.first_step is not None:
            for control in controls:
                control.begin(self.first_step)
            return
        t = self._column([self.times[0]] * len(controls))
        self.k1 = self._evaluate(t, self.x)
        with torch.no_grad():
            scale = self.tolerance.scale(self.x, self.x)
            sizes, slopes = self._norms(self.x / scale, self.k1 / scale)
            trials = [first_guess(d0, d1, span) for d0, d1 in zip(sizes, slopes, strict=True)]
            usable = [math.isfinite(trial) and trial > 0.0 for trial in trials]
            trials = [trial if use else span for trial, use in zip(trials, usable, strict=True)]
            h = self._column([self.sign * trial for trial in trials])
            k2 = self._evaluate(t + h, self.x + h * self.k1)
            (bends,) = self._norms((k2 - self.k1) / scale)
        for i, (control, h0) in enumerate(zip(controls, trials, strict=True)):
            guess = second_guess(h0, slopes[i], bends[i] / h0, control.order, span)
            control.begin(guess if usable[i] else span)

    def _attempt(self) -> None:
        """Try one step of every sample."""
        tableau, x = self.tableau, self.x
        for sample, row in zip(self.samples, x, strict=True):
            sample.plan(self.end, row)
        t = self._column([sample.t for sample in self.samples])
        h = self._column([sample.h for sample in self.samples])
        stages = StageList(self._evaluate(t, x) if self.k1 is None else self.k1)
        for i in range(1, tableau.stages):
            self._stage(stages, i, t, h)
        x1 = stages.weighted(x, tableau.b, h)
        if tableau.fsal:
            stages.write(tableau.stages, self._evaluate(t + h, x1))
        with torch.no_grad():
            scale = self.tolerance.scale(x.detach(), x1.detach())
            errors = [stages.weighted(None, row, h) / scale for row in tableau.errors]
            norms = self._norms(*errors)
        ratios = [combine_errors(row) for row in zip(*norms, strict=True)]
        accepted = [s.control.accepts(s.size, r) for s, r in zip(self.samples, ratios, strict=True)]
        self._collect(stages, accepted, t, h, x1)
        self._advance(stages, accepted, x1)

    def _stage(self, stages: StageList, i: int, t: Tensor, h: Tensor) -> None:
        """Evaluate stage ``i`` of all samples."""
        at = stages.weighted(self.x, self.tableau.a[i], h)
        stages.write(i, self._evaluate(t + self.tableau.c[i] * h, at))

    def _collect(self, stages: StageList, accepted: Sequence[bool], t: Tensor, h: Tensor,
                 x1: Tensor) -> None:  # fmt: skip
        """Store the states at the requested times inside or at the end of accepted steps."""
        ends: list[tuple[int, float, int]] = []  # sample, theta, place in the result
        inside: list[tuple[int, float, int]] = []
        for i, sample in enumerate(self.samples):
            if accepted[i]:
                found = outputs_in(self.times, sample.pending, sample.t, sample.h, sample.t1)
                sample.pending += len(found)
                for index, theta in found:
                    place = (index - 1) * len(self.stats) + sample.index
                    (ends if theta == 1.0 else inside).append((i, theta, place))
        if ends:
            self.outputs.append(x1[[i for i, _, _ in ends]])
        if inside:
            for i in range(len(stages.items), len(self.tableau.c)):
                self._stage(stages, i, t, h)
            at, thetas, _ = zip(*inside, strict=True)
            self.outputs.append(self._dense(stages, list(at), thetas, h))
        self.places += [place for _, _, place in ends + inside]

    def _dense(self, stages: StageList, at: list[int], thetas: Sequence[float],
               h: Tensor) -> Tensor:  # fmt: skip
        """Return the states of the samples ``at`` at positions inside their steps."""
        weights = zip(*(polynomials(self.tableau.dense, theta) for theta in thetas), strict=True)
        total = sum(self._column(w) * k[at] for w, k in zip(weights, stages.items, strict=True))
        return self.x[at] + h[at] * total

    def _advance(self, stages: StageList, accepted: Sequence[bool], x1: Tensor) -> None:
        """Move accepted samples to the end of their steps, and remove those at the end."""
        for i, sample in enumerate(self.samples):
            if accepted[i]:
                sample.control.stats.accepted += 1
                sample.control.stats.last_step = abs(sample.h)
                sample.t = sample.t1
        mask = torch.tensor(accepted, device=x1.device).view(-1, *[1] * (x1.ndim - 1))
        self.x = torch.where(mask, x1, self.x)
        self.k1 = None
        if len(stages.items) > self.tableau.stages:
            self.k1 = torch.where(mask, stages.read(self.tableau.stages), stages.read(0))
        keep = [i for i, sample in enumerate(self.samples) if sample.t != self.end]
        if len(keep) < len(self.samples):
            self.samples = [self.samples[i] for i in keep]
            self.x, self.k1 = self.x[keep], None if self.k1 is None else self.k1[keep]


def total_stats(samples: Sequence[SolveStats]) -> SolveStats:
    """Return the sums over samples; the step sizes are the smallest ones."""
    total = SolveStats()
    for stats in samples:
        total.add(stats)
    total.first_step = min((s.first_step for s in samples if s.first_step), default=None)
    total.last_step = min((s.last_step for s in samples if s.last_step), default=None)
    return total
