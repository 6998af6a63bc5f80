"""Second derivatives known by other means: matrix exponentials, and autograd through a solve."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as attribute

import torch
from torch import Tensor, nn

import snopt

DTYPE = torch.float64


def relative(found: Tensor, true: Tensor) -> float:
    """Distance of two tensors in units of the second."""
    assert found.shape == true.shape
    return float(
        torch.linalg.vector_norm((found - true).detach()) / torch.linalg.vector_norm(true.detach())
    )


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, generator=generator, dtype=DTYPE)


#: Eight equal steps of dopri8: an adaptive method that may take one size of step only.
HELD = {
    "method": "dopri8",
    "options": {"first_step": 1 / 8, "min_step": 1 / 8, "max_step": 1 / 8},
}
#: A few steps, for what must agree to rounding with the same steps.
COARSE = {"method": "rk4", "options": {"step_size": 1 / 6}}

# -------------------------------------------------------------------------------- fields


class LinearField(nn.Module):
    """dx/dt = A x + B u with fixed A and B: linear in state and parameters together."""

    def __init__(self, m: int = 3, n: int = 2) -> None:
        super().__init__()
        self.register_buffer("A", random(m, m, seed=1, scale=0.6))
        self.register_buffer("B", random(m, n, seed=2))
        self.u = nn.Parameter(random(n, seed=3))

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return self.A @ x + self.B @ self.u


class BilinearField(nn.Module):
    """dx/dt = W x, the parameters being W: linear in each of state and parameters."""

    def __init__(self, m: int = 3) -> None:
        super().__init__()
        self.W = nn.Parameter(random(m, m, seed=4, scale=0.6))

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return self.W @ x


class TimedMLP(nn.Module):
    """A small network that sees the time, on a batch of points in the plane."""

    def __init__(self, width: int = 3, dim: int = 2) -> None:
        super().__init__()
        self.first = nn.Linear(dim + 1, width, dtype=DTYPE)
        self.last = nn.Linear(width, dim, dtype=DTYPE)
        for i, p in enumerate(self.parameters()):
            p.data = random(*p.shape, seed=10 + i, scale=0.8)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        time = torch.sin(3.0 * t).expand(x.shape[0], 1)
        return self.last(torch.tanh(self.first(torch.cat([x, time], dim=1))))


class ConvField(nn.Module):
    """A small convolutional field on images [batch, channels, side, side]."""

    def __init__(self, channels: int = 2, width: int = 2) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, width, 3, padding=1, dtype=DTYPE)
        self.last = nn.Conv2d(width, channels, 3, padding=1, dtype=DTYPE)
        for i, p in enumerate(self.parameters()):
            p.data = random(*p.shape, seed=20 + i, scale=0.4)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(x) + t))


# ---------------------------------------------------------------------------- the MLP's costs

POINTS = random(2, 2, seed=30)
LABELS = torch.tensor([0, 1])


def cross_entropy(x: Tensor) -> Tensor:
    return nn.functional.cross_entropy(x, LABELS)


def wavy(x: Tensor) -> Tensor:
    """A terminal cost with derivatives of every order and an indefinite Hessian."""
    return torch.sin(2.0 * x).sum() + 0.3 * x.pow(3).sum() + x.prod()


def mixed_running(t: Tensor, x: Tensor, params: tuple[Tensor, ...]) -> Tensor:
    """Depends on time, on the state, on the parameters, and on their product."""
    return (1 + t) * (torch.cos(x).sum() * params[0].square().sum() + x.square().sum())


# ------------------------------------------------------------------------------ closed forms


def linear_solution(field: LinearField, x0: Tensor, P: Tensor, T: float) -> dict[str, Tensor]:
    """Derivatives of xᵀPx/2 at T: x(T) = E x0 + S u, with E = exp(AT), S = ∫ exp(As) ds B."""
    m, n = field.B.shape
    block = torch.zeros(m + n, m + n, dtype=DTYPE)
    block[:m, :m], block[:m, m:] = field.A, field.B
    whole = torch.linalg.matrix_exp(block * T)
    E, S = whole[:m, :m], whole[:m, m:]
    x1 = E @ x0 + S @ field.u.detach()
    return {
        "Q": 0.5 * x1 @ P @ x1, "Q_x": E.mT @ P @ x1, "Q_u": S.mT @ P @ x1,
        "Q_xx": E.mT @ P @ E, "Q_xu": E.mT @ P @ S, "Q_uu": S.mT @ P @ S,
    }  # fmt: skip


def lyapunov_integral(A: Tensor, R: Tensor, T: float) -> Tensor:
    """∫ exp(Aᵀs) R exp(As) ds from 0 to T, by Van Loan's block exponential."""
    m = len(A)
    block = torch.zeros(2 * m, 2 * m, dtype=DTYPE)
    block[:m, :m], block[:m, m:], block[m:, m:] = -A.mT, R, A
    whole = torch.linalg.matrix_exp(block * T)
    return whole[m:, m:].mT @ whole[:m, m:]


def exp_derivative(W: Tensor, *directions: Tensor) -> Tensor:
    """The first or second derivative of exp at W along directions, from one larger exp."""
    m, Z = len(W), torch.zeros_like(W)
    if len(directions) == 1:
        (D,) = directions
        rows = [[W, D], [Z, W]]
    else:
        D, G = directions
        rows = [[W, D, G, Z], [Z, W, Z, G], [Z, Z, W, D], [Z, Z, Z, W]]
    block = torch.cat([torch.cat(row, dim=1) for row in rows])
    return torch.linalg.matrix_exp(block)[:m, -m:]


def bilinear_solution(
    field: BilinearField, x0: Tensor, P: Tensor, T: float, *, exact: bool
) -> dict[str, Tensor]:
    """Derivatives of xᵀPx/2 at T for x(T) = exp(WT) x0."""
    W = field.W.detach() * T
    m = len(W)
    basis = [T * e.reshape(m, m) for e in torch.eye(m * m, dtype=DTYPE)]
    E = torch.linalg.matrix_exp(W)
    x1 = E @ x0
    by_u = [exp_derivative(W, D) for D in basis]
    J = torch.stack([D @ x0 for D in by_u], dim=1)
    Q_xu, Q_uu = E.mT @ P @ J, J.mT @ P @ J
    if exact:
        Q_xu = Q_xu + torch.stack([D.mT @ P @ x1 for D in by_u], dim=1)
        bend = [[(P @ x1) @ exp_derivative(W, D, G) @ x0 for G in basis] for D in basis]
        Q_uu = Q_uu + torch.tensor(bend, dtype=DTYPE)
    return {
        "Q": 0.5 * x1 @ P @ x1, "Q_x": E.mT @ P @ x1, "Q_u": J.mT @ P @ x1,
        "Q_xx": E.mT @ P @ E, "Q_xu": Q_xu, "Q_uu": Q_uu,
    }  # fmt: skip


# ------------------------------------------------------------- autograd through a solve


@dataclass
class Rollout:
    """A fixed-step solve as a function of z = (x0, u), for autograd to differentiate."""

    field: nn.Module
    x0: Tensor
    times: tuple[float, float] = (0.0, 1.0)
    solver: dict[str, object] = attribute(default_factory=lambda: HELD)

    @property
    def z(self) -> Tensor:
        parts = [self.x0, *self.field.parameters()]
        return torch.cat([p.detach().reshape(-1) for p in parts])

    @property
    def m(self) -> int:
        return self.x0.numel()

    def parts(self, z: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        named = dict(self.field.named_parameters())
        pieces = z[self.m :].split([p.numel() for p in named.values()])
        params = {k: v.reshape(p.shape) for (k, p), v in zip(named.items(), pieces, strict=True)}
        return z[: self.m].reshape(self.x0.shape), params

    def states(self, z: Tensor, times: list[float]) -> Tensor:
        x0, params = self.parts(z)

        def func(t: Tensor, x: Tensor) -> Tensor:
            return torch.func.functional_call(self.field, params, (t, x))

        return snopt.odeint(func, x0, times, adjoint="direct", **self.solver)

    def end(self, z: Tensor) -> Tensor:
        return self.states(z, list(self.times))[-1]

    def cost(self, z: Tensor, terminal: Callable, running: Callable | None = None) -> Tensor:
        if running is None:
            return terminal(self.end(z))
        x0, params = self.parts(z)

        def func(t: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            x = state[0]
            slope = torch.func.functional_call(self.field, params, (t, x))
            return slope, running(t, x, tuple(params.values())).reshape(1)

        start = (x0, torch.zeros(1, dtype=DTYPE))
        x, c = snopt.odeint(func, start, list(self.times), adjoint="direct", **self.solver)
        return terminal(x[-1]) + c[-1, 0]

    def hessian(self, terminal: Callable, running: Callable | None = None) -> Tensor:
        return torch.autograd.functional.hessian(
            lambda z: self.cost(z, terminal, running), self.z, vectorize=True
        )

    def gradient(self, terminal: Callable, running: Callable | None = None) -> Tensor:
        z = self.z.requires_grad_()
        return torch.autograd.grad(self.cost(z, terminal, running), z)[0]

    def jacobian(self) -> Tensor:
        return torch.autograd.functional.jacobian(
            lambda z: self.end(z).reshape(-1), self.z, vectorize=True
        )

    def ggn(self, terminal: Callable, running: Callable | None = None) -> Tensor:
        """Jᵀ Φ_xx J, and the same for a running cost at Gauss nodes along the path."""
        shape, z = self.x0.shape, self.z
        x1 = self.end(z).reshape(-1)
        bend = torch.autograd.functional.hessian(lambda x: terminal(x.reshape(shape)), x1)
        J = self.jacobian()
        total = J.mT @ bend @ J
        return total if running is None else total + self._running_ggn(running)

    def _running_ggn(self, running: Callable) -> Tensor:
        z, m, (t0, t1) = self.z, self.m, self.times
        nodes, weights = gauss_legendre(12)
        times = [t0, *(t0 + (t1 - t0) * 0.5 * (nodes + 1)).tolist(), t1]
        J = torch.autograd.functional.jacobian(lambda z: self.states(z, times), z, vectorize=True)
        J = J.reshape(len(times), m, -1)[1:-1]
        states = self.states(z, times).reshape(len(times), m)[1:-1].detach()
        total = torch.zeros(len(z), len(z), dtype=DTYPE)
        for t, weight, x, rows in zip(times[1:-1], weights, states, J, strict=True):
            time = torch.tensor(t, dtype=DTYPE)

            def ell(y: Tensor, time: Tensor = time) -> Tensor:
                x, params = self.parts(y)
                return running(time, x, tuple(params.values()))

            bend = torch.autograd.functional.hessian(ell, torch.cat([x, z[m:]]))
            move = torch.eye(len(z), dtype=DTYPE)
            move[:m] = rows
            total += 0.5 * (t1 - t0) * weight * move.mT @ bend @ move
        return total


def gauss_legendre(count: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights on [-1, 1], by the eigenvalues of the Jacobi matrix."""
    k = torch.arange(1, count, dtype=DTYPE)
    side = k / (4 * k * k - 1).sqrt()
    nodes, vectors = torch.linalg.eigh(torch.diag(side, 1) + torch.diag(side, -1))
    return nodes, 2 * vectors[0].square()


def observed_orders(errors: list[float]) -> list[float]:
    """Orders of convergence from errors at steps that halve."""
    values = torch.tensor(errors, dtype=DTYPE)
    return torch.log2(values[:-1] / values[1:]).tolist()


@functools.cache
def mlp_truth(
    terminal: Callable,
    running: Callable | None = None,
    times: tuple[float, float] = (0.0, 1.0),
    coarse: bool = False,
) -> dict[str, Tensor]:
    """Autograd's gradient, Gauss-Newton matrix and Hessian of the MLP, computed once."""
    rollout = Rollout(TimedMLP(), POINTS, times, COARSE if coarse else HELD)
    return {
        "Q": rollout.cost(rollout.z, terminal, running).detach(),
        "gradient": rollout.gradient(terminal, running),
        "ggn": rollout.ggn(terminal, running),
        "hessian": rollout.hessian(terminal, running),
        "jacobian": rollout.jacobian(),
    }
