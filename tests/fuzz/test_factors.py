"""Kronecker factors of random layers in random fields, against brute force.

The reference unrolls Runge-Kutta steps on a fine grid with autograd, reads the adjoint at every
grid point from one backward pass, and integrates with Simpson's rule. The patches of a convolution
are what it returns for weights that are one in one place and zero elsewhere.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import snopt
from snopt.kronecker import KroneckerOptions
from tests.fuzz.draw import examples
from tests.kronecker.recorded import collected, factors_after, recorder_of
from tests.problems import Residual

STEPS = 12
CONVS = [nn.Conv1d, nn.Conv2d, nn.Conv3d]


@dataclass(frozen=True)
class Case:
    """A field with one layer: what it is and how it is called."""

    seed: int
    dims: int  # 0: a linear layer
    bias: bool
    calls: str  # "once", "twice", "tied"
    row: bool  # fed one row for the whole batch
    shape: tuple[int, ...]  # of one example
    out: int
    kernel: tuple[int, ...]
    stride: int
    padding: int
    dilation: int
    groups: int
    mode: str
    batch: int

    def layer(self):
        if self.dims == 0:
            return nn.Linear(self.shape[-1], self.out, bias=self.bias)
        return CONVS[self.dims - 1](
            self.shape[0], self.out, self.kernel, self.stride, self.padding, self.dilation,
            self.groups, bias=self.bias, padding_mode=self.mode,
        )  # fmt: skip


@st.composite
def cases(draw):
    dims = draw(st.integers(0, 3))
    groups, kernel, dilation, padding = 1, (), 1, 0
    if dims == 0:
        shape = (*draw(st.lists(st.integers(1, 3), max_size=2)), draw(st.integers(1, 4)))
    else:
        groups = draw(st.integers(1, 2))
        kernel = tuple(draw(st.integers(1, 2 if dims == 3 else 3)) for _ in range(dims))
        dilation, padding = draw(st.integers(1, 2)), draw(st.integers(0, 1))
        spans = [dilation * (k - 1) + 1 for k in kernel]
        shape = (groups * draw(st.integers(1, 2)), *(s + draw(st.integers(0, 2)) for s in spans))
    return Case(
        seed=draw(st.integers(0, 99)),
        dims=dims,
        bias=draw(st.booleans()),
        calls=draw(st.sampled_from(["once", "twice", "tied"])),
        row=draw(st.booleans()) and dims == 0,
        shape=shape,
        out=groups * draw(st.integers(1, 2)),
        kernel=kernel,
        stride=draw(st.integers(1, 2)),
        padding=padding,
        dilation=dilation,
        groups=groups,
        mode=draw(st.sampled_from(["zeros", "circular"])) if padding else "zeros",
        batch=draw(st.integers(1, 4)),
    )


class Random(nn.Module):
    """dx/dt = -0.3 x + d Σ c tanh(h): every entry of the layer's output has a part of its own."""

    def __init__(self, case):
        super().__init__()
        torch.manual_seed(case.seed)
        self.case = case
        self.layer = case.layer().double()
        self.other = self.layer
        if case.calls == "tied":
            self.other = case.layer().double()
            self.other.weight, self.other.bias = self.layer.weight, self.layer.bias
        shape = self.layer(torch.zeros(1, *case.shape).double()).shape[1:]
        self.register_buffer("c", torch.randn(shape).double())
        self.register_buffer("d", torch.randn(case.shape).double())

    def inputs(self, t, x):
        z = (1 + t) * torch.sin(self.d)[None] if self.case.row else (1 + 0.5 * t) * x
        return [(self.layer, z)] + [(self.other, torch.cos(z))] * (self.case.calls != "once")

    def value(self, x, outputs):
        s = sum((torch.tanh(h) * self.c).flatten(1).sum(1) for h in outputs)
        return -0.3 * x + 0.3 * s.view(-1, *[1] * self.d.dim()) * torch.tanh(self.d)

    def forward(self, t, x):
        return self.value(x, [layer(z) for layer, z in self.inputs(t, x)])


def losses(x):
    return (torch.sin(x) + x.square()).flatten(1).sum(1)


def start(case):
    draw = torch.Generator().manual_seed(case.seed + 1)
    return torch.randn(case.batch, *case.shape, generator=draw).double()


def path(field, x, horizon):
    """Grid times, states, and the adjoint of the mean loss at each."""
    h = horizon / STEPS
    times = [torch.tensor(k * h, dtype=torch.float64) for k in range(STEPS + 1)]
    states = [x.clone().requires_grad_()]
    for t in times[:-1]:
        x = states[-1]
        k1 = field(t, x)
        k2 = field(t + h / 2, x + h / 2 * k1)
        k3 = field(t + h / 2, x + h / 2 * k2)
        k4 = field(t + h, x + h * k3)
        states.append(x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4))
    return times, states, torch.autograd.grad(losses(states[-1]).mean(), states)


def rows_of(case, layer, z):
    """[groups, batch, positions, features]; the constant feature of a bias last."""
    if case.dims == 0:
        rows = z.reshape(1, z.shape[0], -1, z.shape[-1])
    else:
        features = layer.weight[0].numel()
        one = torch.eye(features, dtype=z.dtype).repeat(case.groups, 1)
        out = layer._conv_forward(z, one.view(-1, *layer.weight.shape[1:]), None)
        out = out.flatten(2).unflatten(1, (case.groups, features))
        rows = out.permute(1, 0, 3, 2)
    return torch.cat([rows, torch.ones_like(rows[..., :1])], -1) if case.bias else rows


def gradients_of(case, g):
    if case.dims == 0:
        return g.reshape(1, g.shape[0], -1, g.shape[-1])
    return g.flatten(2).unflatten(1, (case.groups, -1)).permute(1, 0, 3, 2)


def products(case, layer, z, g, sharing):
    """A and B of one call, row by row."""
    z, g = rows_of(case, layer, z), gradients_of(case, g)
    N, S = g.shape[1:3]
    a = g.square().sum(-1) if sharing == "trace" else torch.ones(g.shape[:3]).double() / N
    b = N * z.square().sum(-1) if sharing == "trace" else torch.ones(g.shape[:3]).double() * N / S
    A = torch.einsum("gns,gnsi,gnsj->gij", a, z, z)
    B = torch.einsum("gns,gnsi,gnsj->gij", b, g, g)
    return A, B


def reference(case, field, x, horizon, sharing="expand"):
    times, states, adjoints = path(field, x, horizon)
    weights = torch.tensor([1.0, *([4.0, 2.0] * (STEPS // 2))[:-1], 1.0]) * horizon / STEPS / 3
    A = B = 0.0
    for w, t, state, Q_x in zip(weights, times, states, adjoints, strict=True):
        called = [(layer, z, layer(z)) for layer, z in field.inputs(t, state.detach())]
        value = field.value(state.detach(), [h for *_, h in called])
        for layer, z, h in called:
            (g,) = torch.autograd.grad(value, h, Q_x, retain_graph=True)
            a, b = products(case, layer, z, g, sharing)
            A, B = A + w * a, B + w * b / horizon
    return (unit_trace(A) if sharing == "trace" else A), B


def unit_trace(matrices):
    """Of inputs that are all zero (a stride over padding) the factor is zero."""
    return matrices / matrices.diagonal(dim1=-2, dim2=-1).sum(-1).clamp_min(1e-30)[:, None, None]


def grouped(factors):
    return [m if m.dim() == 3 else m[None] for m in (factors.A, factors.B)]


def close(found, expected, tol):
    for got, want in zip(grouped(found), expected, strict=True):
        assert got.shape == want.shape
        assert (got - want).abs().max() <= tol * want.abs().max() + 1e-12


def block(field, horizon=1.0, tol=1e-7, **solver):
    return snopt.NeuralODE(field, horizon, rtol=tol, atol=tol, **solver)


def found(model, x, options=None):
    options = options or KroneckerOptions(conv="kfc")
    return factors_after(model, lambda: losses(model(x)).mean(), options)["field.layer"]


SOLVERS = {
    "checkpoint": ({}, 2e-4),
    "recomputed": ({"adjoint": snopt.Checkpoint(keep=0)}, 2e-4),
    "backsolve": ({"adjoint": "backsolve"}, 2e-4),
    "direct": ({"adjoint": "direct"}, 2e-4),
    "tsit5": ({"method": "tsit5"}, 2e-4),
    "rk4": ({"method": "rk4", "options": {"step_size": 0.02}}, 2e-4),
    "reversible": ({"adjoint": "reversible", "rtol": 1e-5, "atol": 1e-5}, 2e-3),
}
QUADRATURES = {"steps": snopt.PerStep(2), "three": snopt.PerStep(3), "grid": snopt.UniformGrid(100)}


@given(
    cases(),
    st.sampled_from(sorted(SOLVERS)),
    st.sampled_from(sorted(QUADRATURES)),
    st.sampled_from(["expand", "trace"]),
    st.sampled_from([0.5, 1.0]),
)
@examples(30)
def test_factors_equal_brute_force(case, solver, quadrature, sharing, horizon):
    field, x = Random(case), start(case)
    solver, tol = SOLVERS[solver]
    options = KroneckerOptions(conv="kfc", sharing=sharing, quadrature=QUADRATURES[quadrature])
    model = snopt.NeuralODE(field, horizon, **{"rtol": 1e-7, "atol": 1e-7, **solver})
    close(found(model, x, options), reference(case, field, x, horizon, sharing), 5 * tol)


@given(cases().filter(lambda case: case.dims > 0))
@examples(12)
def test_axis_factors_are_partial_traces_of_the_brute_force_factor(case):
    field, x = Random(case), start(case)
    got = found(block(field), x, KroneckerOptions(conv="per_axis"))
    A, B = reference(case, field, x, 1.0)
    c = case.shape[0] // case.groups
    A = A[:, : A.shape[1] - case.bias, : A.shape[2] - case.bias]
    A = A.reshape(case.groups, c, -1, c, A.shape[1] // c)
    channels = torch.einsum("gckdk->gcd", A)
    kernel = unit_trace(torch.einsum("gckcl->gkl", A))
    joined = torch.stack([torch.kron(a, k) for a, k in zip(channels, kernel, strict=True)])
    close(got, (joined, B), 1e-3)


@given(cases(), st.sampled_from([1e-4, 1e-5]), st.sampled_from(["expand", "trace"]))
@examples(12)
def test_factors_do_not_depend_on_tolerance_or_rejected_steps(case, tol, sharing):
    field, x = Random(case), start(case)
    options = KroneckerOptions(conv="kfc", sharing=sharing)
    fine = found(block(field), x, options)
    # A first step as long as the interval is tried, and rejected where it is too long.
    loose = found(block(field, tol=tol, options={"first_step": 1.0}), x, options)
    close(loose, grouped(fine), 1e-2)


@given(cases(), st.lists(st.sampled_from([0.2, 0.35, 0.5, 0.8]), max_size=3, unique=True))
@examples(12)
def test_factors_do_not_depend_on_splitting_order_or_reduction(case, cuts):
    field, x = Random(case), start(case)
    whole = found(block(field), x)
    expected = grouped(whole)
    inner, order = block(field), torch.randperm(case.batch)
    times = [0.0, *sorted(cuts), 1.0]

    class Split(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = inner

        def forward(self, x):
            for a, b in pairwise(times):
                x = self.block(x, [a, b])[-1]
            return x

    split = Split()
    options = KroneckerOptions(conv="kfc", reduction="sum", batch_size=case.batch)
    loss = lambda: losses(split(x[order])).sum()  # noqa: E731
    close(factors_after(split, loss, options)["block.field.layer"], expected, 1e-3)


@given(cases(), st.integers(1, 2))
@examples(12)
def test_accumulated_batches_are_one_batch(case, parts):
    field, x = Random(case), start(case)
    x = torch.cat([x] * parts) + torch.arange(parts).repeat_interleave(case.batch).view(
        -1, *[1] * len(case.shape)
    )
    model = block(field, method="rk4", options={"step_size": 0.25})
    whole = found(model, x)
    recorder = recorder_of(model)
    recorder.arm()
    for part in x.chunk(parts):
        (losses(model(part)).mean() / parts).backward()
    got = collected(recorder)["field.layer"]
    A, B = grouped(whole)
    # Of a layer that is fed one row, B is the square of a sum over the batch, not a sum of squares.
    close(got, (A, grouped(got)[1] if case.row else B), 1e-9)


@given(cases(), st.sampled_from(["kfc", "per_axis"]))
@examples(12)
def test_one_euler_step_gives_the_factors_of_a_residual_layer(case, conv):
    field, x = Random(case), start(case)
    options = KroneckerOptions(conv=conv)
    euler = found(block(field, method="euler", options={"step_size": 1.0}), x, options)
    plain = found(Residual(field), x, options)
    close(euler, grouped(plain), 1e-9)


class Cell(nn.Module):
    """A field around a recurrent cell."""

    def __init__(self, kind, bias_seed, size):
        super().__init__()
        torch.manual_seed(bias_seed)
        self.cell = kind(size, size).double()

    def rows(self, t, x):
        """What W_ih and W_hh multiply."""
        return (1 + 0.5 * t) * x, torch.sin(x)

    def forward(self, t, x):
        z, h = self.rows(t, x)
        if isinstance(self.cell, nn.LSTMCell):
            h, c = self.cell(z, (h, torch.cos(x)))
            return h * c - 0.3 * x
        return self.cell(z, h) - 0.3 * x


def cell_reference(field, x, matrix):
    """The gradient of an example's products is that of the bias, were there no other examples."""
    times, states, adjoints = path(field, x, 1.0)
    weights = torch.tensor([1.0, *([4.0, 2.0] * (STEPS // 2))[:-1], 1.0]) / STEPS / 3
    bias = getattr(field.cell, f"bias_{matrix}")
    A = B = 0.0
    for w, t, state, Q_x in zip(weights, times, states, adjoints, strict=True):
        z = field.rows(t, state.detach())[matrix == "hh"]
        z = torch.cat([z, torch.ones_like(z[:, :1])], 1)
        A = A + w * z.T @ z / len(x)
        for n in range(len(x)):
            one = slice(n, n + 1)
            (g,) = torch.autograd.grad(field(t, state.detach()[one]), bias, Q_x[one])
            B = B + w * len(x) * torch.outer(g, g)
    return A[None], B[None]


@given(
    st.sampled_from([nn.RNNCell, nn.GRUCell, nn.LSTMCell]),
    st.integers(0, 99),
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from(["checkpoint", "backsolve", "direct"]),
)
@examples(12)
def test_factors_of_cells_equal_brute_force(kind, seed, size, batch, adjoint):
    field = Cell(kind, seed, size)
    x = torch.randn(batch, size, generator=torch.Generator().manual_seed(seed)).double()
    model, options = block(field, adjoint=adjoint), KroneckerOptions(recurrent=True)
    got = factors_after(model, lambda: losses(model(x)).mean(), options)
    for matrix in ("ih", "hh"):
        close(got[f"field.cell.weight_{matrix}"], cell_reference(field, x, matrix), 1e-3)
