"""The contract of a drop-in optimizer, point by point."""

import gc
import itertools
import math
import weakref

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import snopt
from snopt.kronecker import KroneckerOptions
from snopt.optim import SNOpt
from tests.optim.problems import (
    Field,
    cloned,
    euler_model,
    image_batch,
    iterate,
    mixed_model,
    same_parameters,
    train,
    trained_by,
    unchanged,
)

RULES = ["adam", "amortized", "kronecker"]


@pytest.mark.parametrize("rule", RULES)
def test_every_parameter_is_updated_and_the_loss_falls(rule):
    model = mixed_model()
    before = cloned(model)
    optimizer = SNOpt(model, rule=rule, lr=1e-2, refresh_every=5)
    losses = train(model, optimizer, 30, lambda seed: image_batch(32, seed % 4))
    assert all(not torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    assert sum(losses[-4:]) < sum(losses[:4])


def test_groups_keep_their_own_options():
    model = euler_model()
    groups = [
        {"params": list(model[0].parameters()), "lr": 0.0},
        {"params": list(model[1].parameters())},
    ]
    field, head = cloned(model[0]), cloned(model[1])
    iterate(model, SNOpt(model, groups, lr=0.1))
    assert unchanged(model[0], field)
    assert not unchanged(model[1], head)


def test_a_weight_and_its_bias_in_different_groups_are_trained_apart():
    model = euler_model()
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    weights = [p for name, p in model.named_parameters() if name.endswith("weight")]
    by = trained_by(SNOpt(model, [{"params": weights}, {"params": biases, "weight_decay": 0.0}]))
    assert by["1"] == "kronecker"
    assert by["1.bias"] == "adam"


def test_only_the_given_parameters_are_trained():
    model = euler_model()
    optimizer = SNOpt(model, model[1].parameters(), lr=0.1)
    before = cloned(model[0])
    iterate(model, optimizer)
    assert unchanged(model[0], before)
    assert list(optimizer.factors) == ["1"]


def test_a_group_can_be_added_later():
    model = euler_model()
    optimizer = SNOpt(model, model[1].parameters(), lr=0.1)
    optimizer.add_param_group({"params": list(model[0].parameters())})
    iterate(model, optimizer)
    assert set(optimizer.factors) == {"0.field.first", "0.field.last", "1"}


def test_step_takes_a_closure_and_returns_its_loss():
    model, twin = mixed_model(), mixed_model()
    optimizer, other = SNOpt(model), SNOpt(twin)
    x, y = image_batch()

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    assert optimizer.step(closure).item() > 0
    nn.functional.cross_entropy(twin(x), y).backward()
    assert other.step() is None
    assert same_parameters(model, twin)


SCHEDULERS = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda k: 0.9**k),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.02, total_steps=6),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 1e-3, 1e-2, step_size_up=2),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.5)], [2]
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_of_every_kind_work(name):
    model = euler_model()
    optimizer = SNOpt(model, lr=1e-2)
    scheduler = SCHEDULERS[name](optimizer)
    rates = []
    for _ in range(5):
        iterate(model, optimizer)
        scheduler.step(*([1.0] if name == "ReduceLROnPlateau" else []))
        rates.append(optimizer.param_groups[0]["lr"])
    assert len(set(rates)) > 1
    assert all(math.isfinite(rate) for rate in rates)


def test_a_scheduler_moves_the_fallback_too():
    def moved(factor):
        model = mixed_model()
        optimizer = SNOpt(model, lr=1e-2, fallback_lr=1e-3)
        optimizer.param_groups[0]["lr"] *= factor
        before = model.scale.detach().clone()
        train(model, optimizer, 1)
        return (model.scale.detach() - before).abs().max()

    torch.testing.assert_close(moved(0.5), moved(1.0) / 2, rtol=1e-3, atol=1e-8)
    # The first of twenty steps of the warm-up.
    torch.testing.assert_close(moved(1.0), torch.tensor(1e-3 / 20), rtol=1e-3, atol=1e-8)


def test_steps_vanish_with_the_gradient():
    """Steps of full length along vanished gradients would let a field drift."""

    def moved(scale):
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        before = model.weight.detach().clone()
        optimizer = SNOpt(model, weight_decay=0.0)
        for _ in range(5):
            optimizer.zero_grad()
            (scale * model(torch.eye(3)).square().sum()).backward()
            optimizer.step()
        return float((model.weight.detach() - before).norm())

    assert moved(1e-9) < 0.02 * moved(1.0)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad_in_both_ways(set_to_none):
    model = mixed_model()
    optimizer = SNOpt(model)
    train(model, optimizer, 1)
    optimizer.zero_grad(set_to_none=set_to_none)
    grads = [p.grad for p in model.parameters()]
    assert all(g is None if set_to_none else not g.any() for g in grads)
    optimizer.step()


def test_zero_grad_may_stand_between_forward_and_backward():
    model, twin = euler_model(), euler_model()
    x = torch.randn(4, 3, dtype=torch.float64)
    other = SNOpt(twin)
    iterate(model, SNOpt(model), x)
    loss = twin(x).pow(2).mean()
    other.zero_grad()
    loss.backward()
    other.step()
    assert same_parameters(model, twin)


def test_gradient_clipping_scales_what_is_preconditioned():
    model = euler_model()
    optimizer = SNOpt(model, rule="kronecker", damping=1.0, momentum=0.0, lr=1.0)
    x = torch.randn(4, 3, dtype=torch.float64)
    before = model[1].weight.detach().clone()
    model(x).pow(2).mean().backward()
    norm = float(nn.utils.clip_grad_norm_(model.parameters(), 1e-3))
    optimizer.step()
    clipped = model[1].weight.detach() - before
    twin = euler_model()
    iterate(twin, SNOpt(twin, rule="kronecker", damping=1.0, momentum=0.0, lr=1.0), x)
    whole = twin[1].weight.detach() - before
    torch.testing.assert_close(clipped, whole * 1e-3 / norm, rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_accumulated_gradients_equal_the_whole_batch(rule):
    x, y = (torch.randn(12, n, dtype=torch.float64) for n in (3, 2))
    results = []
    for parts in (1, 3):
        model = euler_model()
        optimizer = SNOpt(model, rule=rule, lr=1e-2, refresh_every=2)
        for _ in range(4):
            optimizer.zero_grad()
            for a, b in zip(x.chunk(parts), y.chunk(parts), strict=True):
                ((model(a) - b).pow(2).mean() / parts).backward()
            optimizer.step()
        results.append(model)
    for p, q in zip(results[0].parameters(), results[1].parameters(), strict=True):
        torch.testing.assert_close(p, q)


@pytest.mark.parametrize("rule", ["amortized", "adam"])
def test_a_summed_loss_gives_the_same_updates_when_it_is_declared(rule):
    x, y = (torch.randn(6, n, dtype=torch.float64) for n in (3, 2))
    results = []
    for reduction in ("mean", "sum"):
        model = euler_model()
        options = KroneckerOptions(reduction=reduction)
        optimizer = SNOpt(model, rule=rule, lr=1e-2, damping=1e-3, curvature=options)
        for _ in range(5):
            optimizer.zero_grad()
            each = (model(x) - y).pow(2).mean(1)
            (each.mean() if reduction == "mean" else each.sum()).backward()
            optimizer.step()
        results.append(model)
    for p, q in zip(results[0].parameters(), results[1].parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_autocast_and_gradscaler():
    model = mixed_model()
    optimizer = SNOpt(model, lr=1e-2, refresh_every=2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    losses = []
    for i in range(8):
        x, y = image_batch(32, i % 2)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    assert set(optimizer.factors) == {"conv", "block.field.first", "block.field.last", "head"}
    assert optimizer.factors["head"].A.dtype == torch.float32


def test_a_step_skipped_by_the_scaler_does_not_spoil_the_factors():
    model = euler_model(dtype=torch.float32)
    optimizer = SNOpt(model, lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    for i in range(4):
        optimizer.zero_grad()
        x = torch.randn(4, 3) * (1e30 if i < 2 else 1.0)
        scaler.scale(model(x).pow(2).mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert optimizer.counts.iterations == 2
    assert optimizer.counts.dropped_calls > 0
    assert optimizer.counts.refreshes == 1
    assert all(torch.isfinite(f.B).all() for f in optimizer.factors.values())


def test_frozen_and_gradient_free_parameters_are_left_alone():
    model = mixed_model()
    for p in (*model.conv.parameters(), *model.cell.parameters()):
        p.requires_grad_(False)
    unused = nn.Linear(2, 2)
    model.unused = unused
    before = [p.detach().clone() for p in (*model.conv.parameters(), *unused.parameters())]
    optimizer = SNOpt(model, weight_decay=0.1, refresh_first=1, refresh_every=1)
    train(model, optimizer, 3)
    after = [*model.conv.parameters(), *unused.parameters()]
    assert all(torch.equal(p, q) for p, q in zip(after, before, strict=True))
    model.conv.requires_grad_(True)
    train(model, optimizer, 1)
    assert not torch.equal(model.conv.weight, before[0])


@pytest.mark.parametrize("rule", RULES)
def test_a_bias_without_a_gradient_stays_and_counts_as_zero(rule):
    found = []
    for missing in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        bias, optimizer = model.bias.detach().clone(), SNOpt(model, rule=rule, lr=0.1)
        model(torch.randn(4, 3)).square().mean().backward()
        model.bias.grad = None if missing else torch.zeros(2)
        optimizer.step()
        found.append(model.weight.detach())
    assert torch.equal(model.bias, bias)
    torch.testing.assert_close(*found)


def test_a_layer_that_is_never_called_as_a_module_is_trained_by_the_fallback():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            return nn.functional.linear(x, self.layer.weight, self.layer.bias)

    model = Functional()
    optimizer = SNOpt(model, lr=0.1, weight_decay=0.0)
    before = model.layer.weight.detach().clone()
    model(torch.randn(4, 3)).pow(2).mean().backward()
    with pytest.warns(RuntimeWarning, match=r"layer.*Adam"):
        optimizer.step()
    # The first of twenty steps of the warm-up.
    torch.testing.assert_close((model.layer.weight - before).abs(), torch.full((2, 3), 0.1 / 20))


def test_scope_ode_covers_the_vector_field_only():
    by = trained_by(SNOpt(mixed_model(), scope="ode"))
    covered = {name for name, trained in by.items() if trained != "adam"}
    assert covered == {"block.field.first", "block.field.last"}


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_precondition_replaces_gradients_and_updates_nothing(momentum):
    model, twin = euler_model(), euler_model()
    x = torch.randn(4, 3, dtype=torch.float64)
    preconditioner = SNOpt(model, rule="amortized", momentum=momentum)
    own = torch.optim.SGD(model.parameters(), lr=0.02)
    optimizer = SNOpt(twin, rule="amortized", momentum=momentum, lr=0.02)
    for _ in range(3):
        for net in (model, twin):
            net.zero_grad(set_to_none=False)  # in place: the gradients are the caller's own
            net(x).pow(2).mean().backward()
        preconditioner.precondition_()
        own.step()
        optimizer.step()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q)


@pytest.mark.parametrize("conv", ["kfc", "per_axis"])
@pytest.mark.parametrize("rule", RULES)
def test_large_modes_are_cut_with_a_warning_and_still_train(conv, rule):
    model = mixed_model()
    options = KroneckerOptions(conv=conv, max_size=2)
    with pytest.warns(RuntimeWarning, match=r"max_size=2 .*'block\.field\.first' \(4\).*'head'"):
        optimizer = SNOpt(model, rule=rule, lr=1e-2, refresh_every=2, curvature=options)
    losses = train(model, optimizer, 16, lambda seed: image_batch(32, 0))
    assert losses[-1] < losses[0]
    rows = {row.name: row.factors for row in optimizer.summary().rows}
    assert rows["block.field.last"] == ((2, 1), (2, 2, 1))
    assert "(2 blocks of 2) × (3 blocks of 2)" in str(optimizer.summary())


def test_summary_lists_every_parameter_once_with_factor_sizes_and_memory():
    model = mixed_model()
    optimizer = SNOpt(model)
    summary = optimizer.summary()
    assert sum(row.parameters for row in summary.rows) == sum(p.numel() for p in model.parameters())
    rows = {row.name: row for row in summary.rows}
    assert rows["block.field.first"].trained_by == "kronecker (ode)"
    assert rows["block.field.first"].factors == ((4,), (4,))
    assert rows["conv"].factors == ((3,), (10,))
    assert rows["cell.weight_ih"].trained_by == "adam"
    text = str(summary)
    assert "kronecker (ode)" in text
    assert "MiB" in text


@pytest.mark.parametrize("on_divergence", ["skip", "rollback"])
def test_memory_in_the_summary_is_what_the_state_holds(on_divergence):
    model = euler_model(dtype=torch.float32)
    optimizer = SNOpt(model, on_divergence=on_divergence)
    iterate(model, optimizer)
    held = 0
    stack = list(optimizer.state.values())
    while stack:
        item = stack.pop()
        if isinstance(item, torch.Tensor):
            held += item.numel() * item.element_size() if item.dim() else 0
        elif isinstance(item, dict | list):
            stack.extend(item.values() if isinstance(item, dict) else item)
    assert held == optimizer.summary().memory


@pytest.mark.parametrize("listed", [True, False])
def test_functional_solves_through_the_optimizers_observer(listed):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.field = Field()
            self.head = nn.Linear(3, 2)

    model = Model()
    optimizer = SNOpt(model, fields=[model.field] if listed else model.field)
    x = snopt.odeint(
        model.field, torch.randn(4, 3), torch.tensor([0.0, 1.0]),
        observer=optimizer.observer(model.field),
    )[-1]  # fmt: skip
    model.head(x).pow(2).mean().backward()
    optimizer.step()
    assert set(optimizer.factors) == {"field.first", "field.last", "head"}
    with pytest.raises(ValueError, match=r"fields=\[that module\]"):
        optimizer.observer(Field())
    with pytest.raises(ValueError, match="make it a submodule of the model"):
        SNOpt(model, fields=[Field()])


@pytest.mark.parametrize("adjoint", ["checkpoint", "backsolve", "reversible", "direct"])
def test_functional_solves_without_an_observer_count_no_stage_and_are_warned_of(adjoint):
    field = Field()
    optimizer = SNOpt(field)
    x = torch.randn(4, 3)
    snopt.odeint(field, x, torch.tensor([0.0, 1.0]), adjoint=adjoint)[-1].pow(2).mean().backward()
    cause = r"called only in a solve by snopt\.odeint.*observer=optimizer\.observer\(field\)"
    with pytest.warns(RuntimeWarning, match=cause):
        optimizer.step()
    assert optimizer.factors == {}


def test_two_optimizers_on_one_model_both_record_it():
    lone, model = euler_model(), euler_model()
    alone = SNOpt(lone)
    field, head = model[0].parameters(), model[1].parameters()
    pairs = [SNOpt(model, field), SNOpt(model, head)], [SNOpt(model), SNOpt(model)]
    x = torch.randn(4, 3, dtype=torch.float64)
    lone(x).pow(2).mean().backward()
    model(x).pow(2).mean().backward()
    alone.step()
    for optimizer in itertools.chain(*pairs):
        optimizer.step()
    assert set(pairs[0][0].factors) == {"0.field.first", "0.field.last"}
    assert set(pairs[0][1].factors) == {"1"}
    for optimizer in pairs[1]:
        assert set(optimizer.factors) == set(alone.factors)
    for optimizer in itertools.chain(*pairs):
        for name, factors in optimizer.factors.items():
            torch.testing.assert_close(factors.B, alone.factors[name].B)
            torch.testing.assert_close(factors.A, alone.factors[name].A)
    assert model[0].observer is None


def test_two_optimizers_that_want_different_nodes_are_refused_when_the_second_is_made():
    model = euler_model()
    first = SNOpt(model)
    grid = KroneckerOptions(quadrature=snopt.UniformGrid(10))
    with pytest.raises(ValueError, match=r"same KroneckerOptions\(quadrature"):
        SNOpt(model, curvature=grid)
    SNOpt(model, model[1].parameters(), curvature=grid)  # it covers nothing of the field
    iterate(model, first)
    assert "0.field.first" in first.factors


def test_an_observer_of_the_users_own_stays_on_the_block():
    class Own:
        quadrature = snopt.PerStep()
        told = 0

        def observe(self, t, weight, x, Q_x):
            self.told += 1

    model = euler_model()
    model[0].observer = own = Own()
    optimizer = SNOpt(model)
    iterate(model, optimizer)
    assert own.told == 4
    assert "0.field.first" in optimizer.factors
    assert model[0].observer is own


def test_nothing_stays_on_the_model_between_refreshes():
    model = mixed_model()
    optimizer = SNOpt(model, refresh_every=10)
    train(model, optimizer, 1)
    assert all(not module._forward_hooks for module in model.modules())
    assert model.block.observer is None


def test_no_reference_cycles():
    gc.collect()
    gc.disable()
    try:
        model = mixed_model()
        optimizer = SNOpt(model)
        train(model, optimizer, 2)
        refs = [weakref.ref(optimizer), weakref.ref(optimizer.recorder), weakref.ref(model)]
        del optimizer, model
        assert [ref() for ref in refs] == [None] * 3
    finally:
        gc.enable()


def test_memory_does_not_grow():
    model = euler_model(steps=1, dtype=torch.float32)
    optimizer = SNOpt(model, lr=1e-4, refresh_every=3)

    def alive():
        gc.collect()
        return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())

    counts = []
    for i in range(400):
        iterate(model, optimizer, torch.ones(4, 3))
        if i in (99, 399):
            counts.append(alive())
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    ("rule", "defaults"),
    [
        ("adam", (2e-2, 0.9, 1e-6, 0.999, 0.3)),
        ("amortized", (2e-2, 0.9, 0.05, 0.75, 0.0)),
        ("kronecker", (5e-3, 0.9, 0.05, 0.0, 0.0)),
    ],
)
def test_defaults_are_the_documented_ones(rule, defaults):
    (group,) = SNOpt(nn.Linear(1, 1), rule=rule).param_groups
    fallback = 2e-2 if rule == "adam" else 1e-3
    names = ("lr", "momentum", "damping", "decay", "weight_decay")
    assert tuple(group[name] for name in names) == defaults
    assert group["lr"] * group["fallback_ratio"] == pytest.approx(fallback)


@pytest.mark.parametrize(
    ("given", "at"),
    [
        ({}, [1, 6, 11, 16, 21, 26, 31, 36, 41, 46, 51, 56, 61, 67, 73, 80]),
        ({"refresh_first": 20, "refresh_every": 30}, [1, 21, 41, 61]),
        ({"refresh_every": 30, "refresh_first": 40}, [1, 31, 61]),
    ],
)
def test_intervals_between_refreshes_grow_to_the_largest(given, at):
    model, seen = nn.Linear(3, 1), [0]
    optimizer = SNOpt(model, lr=0.0, **given)
    for _ in range(80):
        iterate(model, optimizer)
        seen.append(optimizer.counts.refreshes)
    assert [i for i in range(1, 81) if seen[i] > seen[i - 1]] == at


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "sgd"}, "unknown rule 'sgd'"),
        ({"lr": -1.0}, "lr=-1.0 must not be negative"),
        ({"damping": math.nan}, "damping=nan must not be negative"),
        ({"decay": 1.0}, "decay=1.0 must be below 1"),
        ({"refresh_every": 0}, "refresh_every=0"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        SNOpt(euler_model(), **options)


def test_every_combination_of_rule_and_curvature_runs():
    kinds = itertools.product(RULES, ["expand", "trace"], ["gradient", "ggn", "sampled"])
    for rule, sharing, terminal in kinds:
        model = mixed_model()
        options = KroneckerOptions(
            conv="kfc", sharing=sharing, terminal=terminal, loss="cross_entropy"
        )
        optimizer = SNOpt(model, rule=rule, lr=1e-3, curvature=options)
        train(model, optimizer, 2)
        assert set(optimizer.factors) == {"conv", "block.field.first", "block.field.last", "head"}


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (lambda model: (model.parameters(),), r"SNOpt\(model, lr=\.\.\.\)"),
        (lambda model: (model, 1e-3), r"SNOpt\(model, lr=0\.001\)"),
    ],
)
def test_the_first_thing_one_types_is_answered_with_what_was_meant(arguments, remedy):
    with pytest.raises(TypeError, match=remedy):
        SNOpt(*arguments(nn.Linear(2, 2)))


def test_a_state_of_another_version_is_refused():
    optimizer = SNOpt(nn.Linear(1, 1))
    state = optimizer.state_dict()
    del state["snopt"]["version"]
    with pytest.raises(ValueError, match="version 1, but this release of snopt uses version 2"):
        optimizer.load_state_dict(state)
