"""What a batch is: how many examples it has, and which passes belong to an iteration."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import snopt
from snopt.kronecker import KroneckerOptions
from snopt.models import CNF, ODERNN
from snopt.optim import SNOpt
from tests.optim.problems import Field, euler_model

N = 6


def examples_seen(model, loss, **options):
    optimizer = SNOpt(model, rule="amortized", **options)
    loss().backward()
    optimizer.step()
    return optimizer.batch_size


# --------------------------------------------------------------------------- examples of a batch


def test_a_hypernetwork_that_is_fed_one_row_does_not_hide_the_batch():
    flow = CNF(2, (4,), hypernetwork=True, rtol=1e-2, atol=1e-2)
    x = torch.randn(N, 2)
    assert examples_seen(flow, lambda: flow.loss(x)) == N
    assert examples_seen(flow, lambda: -flow.log_prob(x).mean()) == N


class Gate(nn.Module):
    """A field all of whose layers are fed one row."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(1, 2)

    def forward(self, t, x):
        return torch.tanh(x * self.gate(t.reshape(1, 1)))


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.field = Gate()

    def forward(self, x):
        raise AssertionError("not called")


def test_a_solve_by_odeint_tells_the_batch_by_its_state():
    model = Functional()
    optimizer = SNOpt(model, rule="amortized", fields=[model.field])
    t = torch.tensor([0.0, 1.0])
    observer = optimizer.observer(model.field)
    for _ in range(2):  # accumulated
        end = snopt.odeint(model.field, torch.ones(N, 2), t, observer=observer)[-1]
        (end.square().mean() / 2).backward()
    optimizer.step()
    assert optimizer.batch_size == 2 * N


def test_a_field_that_is_the_model_is_called_by_the_solver_only():
    field = Field()
    optimizer = SNOpt(field, rule="amortized", fields=[field])
    t, x = torch.tensor([0.0, 1.0]), torch.randn(N, 3)
    snopt.odeint(field, x, t, observer=optimizer.observer(field))[-1].square().mean().backward()
    optimizer.step()
    assert optimizer.batch_size == N
    # A = ∫ (x, 1)(x, 1)ᵀ dt, a mean over examples, averaged over one batch.
    assert optimizer.factors["first"].A[-1, -1].item() == pytest.approx(1.0)


def test_a_model_called_through_its_parts_tells_the_batch_by_their_rows():
    model = euler_model()
    x = torch.randn(N, 3, dtype=torch.float64)
    assert examples_seen(model, lambda: model[1](model[0](x)).square().mean()) == N


@dataclass
class Points:
    x: torch.Tensor


CALLS = {
    "position": lambda model, t, x: model(t, x),
    "keyword": lambda model, t, x: model(x=x, t=t),
    "list": lambda model, t, x: model(t, [x]),
    "dictionary": lambda model, t, x: model(t, {"x": x}),
    "dataclass": lambda model, t, x: model(t, Points(x)),
}


@pytest.mark.parametrize("call", CALLS)
def test_however_the_model_is_called_times_are_not_examples(call):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 2)

        def forward(self, t, x):
            if not isinstance(x, torch.Tensor):
                x = x[0] if isinstance(x, list) else x["x"] if isinstance(x, dict) else x.x
            return x * self.layer(t[:, None]).sum()

    model = Model()
    t, x = torch.linspace(0, 1, 50), torch.randn(N, 2)
    assert examples_seen(model, lambda: CALLS[call](model, t, x).square().mean()) == N


def test_series_have_as_many_examples_as_series():
    model = ODERNN(2, 3, hidden=4, rtol=1e-2, atol=1e-2)
    x = torch.randn(N, 9, 2)
    assert examples_seen(model, lambda: model(x).square().mean()) == N


def test_the_batch_size_can_be_given():
    model = euler_model()
    optimizer = SNOpt(model, rule="amortized", curvature=KroneckerOptions(batch_size=40))
    for part in torch.randn(2, 5, 3, dtype=torch.float64):
        (model(part).square().mean() / 2).backward()
    optimizer.step()
    assert optimizer.batch_size == 80
    with pytest.raises(ValueError, match=r"batch_size=0 must be .* at least 1, or None"):
        KroneckerOptions(batch_size=0)
    with pytest.raises(ValueError, match="use conv='kfc' or sharing='expand'"):
        KroneckerOptions(conv="per_axis", sharing="trace")


# --------------------------------------------------------------------------- passes of an iteration


class Breaking(nn.Module):
    """Raises in its n-th call from now."""

    def __init__(self):
        super().__init__()
        self.inner = Field()
        self.calls_left = -1

    def forward(self, t, x):
        self.calls_left -= 1
        if self.calls_left == 0:
            raise FloatingPointError("the field broke")
        return self.inner(t, x)


def breaking_model():
    torch.manual_seed(0)
    options = {"step_size": 0.25}
    block = snopt.NeuralODE(Breaking(), 1.0, method="midpoint", options=options)
    return nn.Sequential(block, nn.Linear(3, 2)).double()


def batch(seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(N, 3, dtype=torch.float64, generator=draw)


def equal_factors(optimizer, other):
    assert optimizer.factors.keys() == other.factors.keys()
    for name, factors in optimizer.factors.items():
        torch.testing.assert_close(factors.A, other.factors[name].A)
        torch.testing.assert_close(factors.B, other.factors[name].B)
    assert optimizer.batch_size == other.batch_size


ZERO = {
    "optimizer": lambda model, optimizer: optimizer.zero_grad(),
    "to zero": lambda model, optimizer: optimizer.zero_grad(set_to_none=False),
    "model": lambda model, optimizer: model.zero_grad(),
}


@pytest.mark.parametrize("zero", ZERO)
@pytest.mark.parametrize("terminal", ["gradient", "ggn"])
@pytest.mark.parametrize("accumulated", [False, True])
def test_after_an_exception_in_a_backward_pass_the_next_iteration_starts_clean(
    zero, terminal, accumulated
):
    found = []
    for breaks in (False, True):
        model = breaking_model()
        options = KroneckerOptions(terminal=terminal, loss="squared_error")
        optimizer = SNOpt(model, curvature=options)
        if breaks:
            if accumulated:
                model(batch(2)).square().mean().backward()
            loss = model(batch(1)).square().mean()
            model[0].field.calls_left = 3  # two nodes are recorded by then
            with pytest.raises(FloatingPointError, match="the field broke"):
                loss.backward()
        ZERO[zero](model, optimizer)
        model(batch()).square().mean().backward()
        optimizer.step()
        found.append(optimizer)
    equal_factors(*found)


@pytest.mark.parametrize("terminal", ["gradient", "ggn"])
def test_calls_that_are_never_differentiated_are_no_batches(terminal):
    found = []
    for extra in (0, 2):
        model = euler_model()
        options = KroneckerOptions(terminal=terminal, loss="squared_error")
        optimizer = SNOpt(model, curvature=options)
        kept = [model(batch(1)) for _ in range(extra)]
        model(batch()).square().mean().backward()
        kept += [model(batch(1)) for _ in range(extra)]
        optimizer.step()
        found.append(optimizer)
    equal_factors(*found)


def test_a_gradient_that_was_thrown_away_is_not_recorded():
    found = []
    for extra in (0, 2):
        model = euler_model()
        optimizer = SNOpt(model)
        for i in range(extra):
            model(batch(i + 1)).square().mean().backward()
            optimizer.zero_grad()
        model(batch()).square().mean().backward()
        optimizer.step()
        found.append(optimizer)
    equal_factors(*found)


def test_two_calls_differentiated_together_are_two_batches():
    x = batch()
    found = []
    for parts in ([x], [x[:3], x[3:]]):
        for terminal in ("gradient", "ggn"):
            model = euler_model()
            options = KroneckerOptions(terminal=terminal, loss="squared_error")
            optimizer = SNOpt(model, curvature=options)
            (sum(model(part).square().mean() for part in parts) / len(parts)).backward()
            optimizer.step()
            found.append(optimizer)
    assert found[0].batch_size == found[2].batch_size == N
    torch.testing.assert_close(found[0].factors["1"].B, found[2].factors["1"].B)
    torch.testing.assert_close(found[0].factors["1"].A, found[3].factors["1"].A)


@pytest.mark.parametrize("reentrant", [True, False])
def test_activation_checkpointing_does_not_begin_an_iteration(reentrant):
    class Model(nn.Module):
        def __init__(self, reentrant):
            super().__init__()
            self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 2)
            self.reentrant = reentrant

        def forward(self, x):
            inner = lambda x: torch.tanh(self.first(x))  # noqa: E731
            if self.reentrant is None:
                return self.last(inner(x))
            return self.last(checkpoint(inner, x, use_reentrant=self.reentrant))

    found = []
    for how in (None, reentrant):
        torch.manual_seed(0)
        model = Model(how).double()
        optimizer = SNOpt(model)
        model(batch().requires_grad_()).square().mean().backward()
        optimizer.step()
        found.append(optimizer)
    equal_factors(*found)
    assert set(found[0].factors) == {"first", "last"}


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: nn.Linear(3, 2), (0, 3)),
        (lambda: nn.Linear(3, 2), (4, 0, 3)),
        (lambda: nn.Conv2d(1, 2, 3), (0, 1, 5, 5)),
    ],
)
def test_an_empty_batch_is_not_recorded(layer, shape):
    model = layer()
    optimizer = SNOpt(model)
    model(torch.zeros(shape)).sum().backward()
    with pytest.warns(RuntimeWarning, match="called with empty batches only"):
        optimizer.step()
    optimizer.zero_grad()
    model(torch.ones(4, *shape[-3:] if len(shape) == 4 else shape[-1:])).square().sum().backward()
    optimizer.step()
    assert list(optimizer.factors) == ["model"]


def test_an_empty_batch_of_attention_is_not_recorded():
    model = nn.MultiheadAttention(4, 2, batch_first=True)
    optimizer, x = SNOpt(model), torch.zeros(0, 3, 4)
    model(x, x, x)[0].sum().backward()
    with pytest.warns(RuntimeWarning, match="called with empty batches only"):
        optimizer.step()


def test_an_expert_without_examples_does_not_change_the_factors_of_others():
    def trained(empty):
        torch.manual_seed(0)
        shared, expert = nn.Linear(3, 3), nn.Linear(3, 3)
        model = nn.ModuleList([shared, expert])
        optimizer, x = SNOpt(model), torch.randn(8, 3)
        used = torch.cat([shared(x), expert(x[:0])]) if empty else shared(x)
        used.square().mean().backward()
        if empty:
            with pytest.warns(RuntimeWarning, match="called with empty batches only"):
                optimizer.step()
        else:
            optimizer.step()
        return optimizer.factors["0"]

    one, other = trained(False), trained(True)
    assert torch.equal(one.A, other.A)
    assert torch.equal(one.B, other.B)


@pytest.mark.parametrize("attention", [False, True])
def test_calls_under_torch_func_are_not_recorded(attention):
    torch.manual_seed(0)
    model = nn.MultiheadAttention(4, 2, batch_first=True) if attention else nn.Linear(4, 2)

    def forward(x):
        return model(x, x, x)[0] if attention else model(x)

    class Called(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return forward(x)

    whole, x = Called(), torch.randn(5, 3, 4)
    optimizer, params = SNOpt(whole), dict(whole.named_parameters())

    def loss(params, x):
        return torch.func.functional_call(whole, params, (x,)).square().mean()

    torch.func.vmap(torch.func.grad(loss), (None, 0))(params, x[:, None])
    torch.func.grad(loss)(params, x)
    assert all(sums.modes is None for sums in optimizer.recorder.recording.sums.layers.values())
    whole(x).square().mean().backward()
    optimizer.step()
    assert optimizer.factors


def test_sparse_gradients_are_refused_with_a_remedy():
    model = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Linear(4, 2))
    optimizer = SNOpt(model)
    model(torch.arange(3)).square().sum().backward()
    with pytest.raises(RuntimeError, match=r"'0.weight' is sparse.*sparse=False.*SparseAdam"):
        optimizer.step()
    optimizer = SNOpt(model, model[1].parameters())  # another optimizer trains the embedding
    optimizer.zero_grad()
    model(torch.arange(3)).square().sum().backward()
    optimizer.step()
    assert list(optimizer.factors) == ["1"]


def test_complex_layers_are_trained_without_a_basis():
    torch.manual_seed(0)
    model = nn.Linear(3, 3, dtype=torch.complex64)
    optimizer = SNOpt(model)
    x, y = torch.randn(2, 8, 3, dtype=torch.complex64)
    losses = []
    for _ in range(100):
        optimizer.zero_grad()
        loss = (model(x) - y).abs().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert not optimizer.factors
    assert losses[-1] < 0.7 * losses[0]
