"""Recurrent layers and attention: what each matrix saw, and that recording changes nothing."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import snopt
from snopt.kronecker import KroneckerOptions, check_view, composite_of, matrices_of
from snopt.optim import SNOpt
from tests.kronecker.recorded import collected, recorder_of
from tests.problems import Residual, descend

RECURRENT = KroneckerOptions(recurrent=True)
fuzzed = settings(max_examples=25, derandomize=True, deadline=None, database=None)


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@st.composite
def calls(draw):
    """A layer and its arguments."""
    torch.manual_seed(draw(st.integers(0, 99)))
    kind = draw(
        st.sampled_from(["RNNCell", "GRUCell", "LSTMCell", "RNN", "GRU", "LSTM", "attention"])
    )
    bias, B, T = draw(st.booleans()), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    if kind == "attention":
        return attention(draw, bias, B, T)
    features, hidden = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    lstm = kind.startswith("LSTM")
    extra = {"nonlinearity": "relu"} if kind.startswith("RNN") and draw(st.booleans()) else {}
    if kind.endswith("Cell"):
        module = getattr(nn, kind)(features, hidden, bias=bias, **extra)
        lead = (B,) if draw(st.booleans()) else ()
        states = [randn(*lead, hidden) for _ in range(1 + lstm)]
        x = randn(*lead, features)
    else:
        layers, both, first = draw(st.integers(1, 2)), draw(st.booleans()), draw(st.booleans())
        module = getattr(nn, kind)(
            features, hidden, num_layers=layers, bias=bias, batch_first=first, bidirectional=both,
            **extra,
        )  # fmt: skip
        lead = (B,) if draw(st.booleans()) else ()
        states = [randn(layers * (1 + both), *lead, hidden) for _ in range(1 + lstm)]
        x = randn(T, *lead, features)
        x = x.transpose(0, 1) if lead and first else x
    state = tuple(states) if lstm else states[0]
    return module.double(), (x, state) if draw(st.booleans()) else (x,)


def attention(draw, bias, B, T):
    heads = draw(st.integers(1, 2))
    width, S = heads * draw(st.integers(1, 2)), draw(st.integers(1, 3))
    kdim, vdim = (3, 5) if draw(st.booleans()) else (width, width)
    module = nn.MultiheadAttention(
        width, heads, bias=bias, kdim=kdim, vdim=vdim, batch_first=draw(st.booleans()),
        add_bias_kv=draw(st.booleans()) and kdim == width, add_zero_attn=draw(st.booleans()),
    )  # fmt: skip
    if kdim == width and draw(st.booleans()):
        x = randn(T, B, width)
        return module.double(), (x, x, x)
    lead = (B,) if draw(st.booleans()) else ()
    x, k, v = randn(T, *lead, width), randn(S, *lead, kdim), randn(S, *lead, vdim)
    if module.batch_first and lead:
        x, k, v = (y.transpose(0, 1) for y in (x, k, v))
    return module.double(), (x, k, v)


@given(calls())
@settings(fuzzed, max_examples=120)
def test_what_each_matrix_saw_makes_its_gradient(call):
    module, arguments = call
    assert set(matrices_of(module))
    check_view(module, *arguments)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("widths", [{}, {"kdim": 3, "vdim": 5}], ids=["stacked", "apart"])
def test_what_attention_saw_with_and_without_bias(widths, bias):
    module = nn.MultiheadAttention(4, 2, bias=bias, **widths).double()
    assert ("in_proj_weight" in matrices_of(module)) == (not widths)
    check_view(module, *(randn(2, 3, widths.get(name, 4)) for name in ("q", "kdim", "vdim")))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_masks(causal):
    module = nn.MultiheadAttention(4, 2, batch_first=True).double()
    model = nn.ModuleList([module])
    x, pad = randn(3, 5, 4), torch.zeros(3, 5, dtype=torch.bool)
    pad[:, -1] = True
    mask = nn.Transformer.generate_square_subsequent_mask(5).double() if causal else None
    pad = pad.to(x).masked_fill(pad, -torch.inf) if causal else pad
    seen = rows_seen(
        model, lambda: module(x, x, x, key_padding_mask=pad, attn_mask=mask, need_weights=False)[0]
    )
    assert_gradients(module, seen)


def rows_seen(model, run):
    """Σ g zᵀ of each slot in one iteration, by recording with the factors' place taken."""
    recorder = recorder_of(model, RECURRENT)
    recording = recorder.arm()
    total = {}

    def count(name, matrix, z, g, weight):
        view = recorder.slots[recording._slot_of[name, matrix]].view
        rows = torch.einsum("gbso,gbsi->goi", view.output_gradients(g), view.inputs(z))
        total[matrix] = total.get(matrix, 0) + weight * rows

    recording._count = count
    out = run()
    (out.sin() * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    recorder.disarm()
    return {matrix: (view_of_slot(recorder, matrix), rows) for matrix, rows in total.items()}


def view_of_slot(recorder, matrix):
    return next(s.view for s in recorder.slots.values() if s.users[0][1] == matrix)


def assert_gradients(module, seen):
    assert set(seen) == set(matrices_of(module))
    for view, rows in seen.values():
        grads = [p.grad for p in view.parameters]
        torch.testing.assert_close(rows, view.pack(grads[0], grads[1] if view.bias else None)[0])


@pytest.mark.parametrize("kind", [nn.RNNCell, nn.GRUCell, nn.LSTMCell])
def test_a_cell_called_again_and_again_sums_over_its_calls(kind):
    """Both states of an LSTM cell go on to the next call: no gradient is counted twice."""
    torch.manual_seed(0)
    cell, xs = kind(2, 3).double(), randn(4, 5, 2)

    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = cell

        def forward(self, xs):
            state = None
            for x in xs:
                state = self.cell(x, state)
            return torch.cat(state, -1) if isinstance(state, tuple) else state

    model = Loop()
    assert_gradients(cell, rows_seen(model, lambda: model(xs)))


class CellField(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, t, x):
        if isinstance(self.cell, nn.MultiheadAttention):
            return self.cell(x, x, x)[0]
        out = (
            self.cell(x, (x, torch.cos(x))) if isinstance(self.cell, nn.LSTMCell) else self.cell(x)
        )
        return out[0] * out[1] - x if isinstance(out, tuple) else out - x


FIELDS = {
    "gru": lambda: (CellField(nn.GRUCell(3, 3)), (4, 3)),
    "lstm": lambda: (CellField(nn.LSTMCell(3, 3)), (4, 3)),
    "attention": lambda: (CellField(nn.MultiheadAttention(4, 2, batch_first=True)), (3, 5, 4)),
}


@pytest.mark.parametrize("kind", FIELDS)
def test_one_euler_step_gives_what_a_residual_layer_gives(kind):
    torch.manual_seed(0)
    field, shape = FIELDS[kind]()
    field, x = field.double(), randn(*shape)
    found = []
    for model in (
        snopt.NeuralODE(field, method="euler", options={"step_size": 1.0}),
        Residual(field),
    ):
        recorder = recorder_of(model, RECURRENT)
        recorder.arm()
        model(x).sin().square().mean().backward()
        found.append(collected(recorder))
        field.zero_grad()
    assert found[0].keys() == found[1].keys()
    assert len(found[0]) == 2
    for name, factors in found[0].items():
        torch.testing.assert_close(factors.A, found[1][name].A)
        torch.testing.assert_close(factors.B, found[1][name].B)


@pytest.mark.parametrize("kind", FIELDS)
def test_integrated_readings_are_the_gradient(kind):
    """∫ Σ g zᵀ dt along a solve is the gradient that the adjoint finds."""
    torch.manual_seed(0)
    field, shape = FIELDS[kind]()
    model = snopt.NeuralODE(field.double(), rtol=1e-9, atol=1e-9)
    x = randn(*shape)
    seen = rows_seen(model, lambda: model(x))
    assert set(seen) == set(matrices_of(field.cell))
    for view, rows in seen.values():
        grads = [p.grad for p in view.parameters]
        want = view.pack(*grads)[0]
        assert (rows - want).abs().max() < 1e-6 * want.abs().max()


MODELS = {
    "lstm": lambda: nn.LSTM(2, 3, num_layers=2, batch_first=True, bidirectional=True),
    "gru": lambda: nn.GRU(2, 3, batch_first=True),
    "rnn": lambda: nn.RNN(2, 3, batch_first=True),
}


class Sequence(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.cell = nn.LSTMCell(2, 3)
        self.attention = nn.MultiheadAttention(2, 1, batch_first=True)

    def forward(self, x):
        x = x + self.attention(x, x, x)[0]
        out, final = self.layer(x)
        h, c = self.cell(x[:, 0])
        for t in range(1, x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
        end = final[1] if isinstance(final, tuple) else final
        return out.sum((1, 2)) + end.square().sum((0, 2)) + (h * c).sum(1) + c.sum(1)


@pytest.mark.parametrize("kind", MODELS)
def test_recording_changes_no_gradient_by_a_bit(kind):
    results = []
    for composite in (None, True):
        torch.manual_seed(0)
        model = Sequence(MODELS[kind]())
        x = torch.randn(4, 6, 2)
        options = KroneckerOptions(recurrent=True)
        optimizer = SNOpt(model, curvature=options) if composite else None
        model(x).square().mean().backward()
        results.append([p.grad for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    optimizer.step()
    assert all(row.trained_by == "kronecker" for row in optimizer.summary().rows)


def test_composite_layers_train():
    torch.manual_seed(0)
    model = Sequence(nn.GRU(2, 3, batch_first=True))
    optimizer = SNOpt(model, lr=0.02, curvature=RECURRENT)
    x = torch.randn(16, 6, 2)
    losses = descend(optimizer, lambda: (model(x) - x.sum((1, 2))).square().mean(), 30)
    assert losses[-1] < 0.5 * losses[0]


def test_attention_is_covered_and_recurrent_layers_are_an_explicit_choice():
    model = Sequence(nn.GRU(2, 3, batch_first=True))
    rows = {row.name: row.trained_by for row in SNOpt(model).summary().rows}
    attention = {name: by for name, by in rows.items() if name.startswith("attention")}
    assert attention == {"attention.in_proj_weight": "kronecker", "attention.out_proj": "kronecker"}
    assert {by for name, by in rows.items() if name not in attention} == {"adam"}
    rows = {row.name: row.trained_by for row in SNOpt(model, curvature=RECURRENT).summary().rows}
    assert rows["layer.weight_hh_l0"] == "kronecker"


def test_the_output_projection_of_attention_that_cannot_be_read_is_not_covered():
    """It is never called as a module."""
    rows = SNOpt(nn.MultiheadAttention(2, 1, dropout=0.1)).summary().rows
    assert {row.name: row.trained_by for row in rows}["out_proj.weight"] == "adam"


def test_attention_with_a_forward_of_its_own_may_call_its_output_projection():
    class Own(nn.MultiheadAttention):
        def forward(self, x):
            return self.out_proj(x)

    model = Own(2, 1)
    optimizer = SNOpt(model)
    model(torch.randn(3, 2)).square().sum().backward()
    optimizer.step()
    assert set(optimizer.factors) == {"out_proj"}


def test_layers_that_cannot_be_read_are_not_covered():
    class Own(nn.GRUCell):
        def forward(self, x, h=None):
            return 2 * super().forward(x, h)

    assert composite_of(Own(2, 2)) is None
    layers = [
        nn.LSTM(2, 2, num_layers=2, dropout=0.1), nn.LSTM(2, 4, proj_size=2),
        nn.MultiheadAttention(2, 1, dropout=0.1), Own(2, 2),
    ]  # fmt: skip
    assert not any(map(matrices_of, layers))


def test_a_packed_sequence_is_named_as_the_cause():
    model = nn.GRU(2, 3)
    optimizer = SNOpt(model, curvature=RECURRENT)
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(4, 2, 2), torch.tensor([4, 2]))
    model(packed)[1].square().sum().backward()
    with pytest.warns(RuntimeWarning, match="packed sequences are not supported"):
        optimizer.step()


class Encoder(nn.Module):
    def __init__(self, wrap=lambda f, *args: f(*args)):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.wrap = wrap

    def forward(self, x):
        mask = torch.zeros(x.shape[:2], dtype=torch.bool)
        mask[:, -1] = True
        out = self.wrap(lambda x: self.layer(x, src_key_padding_mask=mask), x)
        return out[:, :-1].flatten(1)


def factors_of(model, run=None, **options):
    """Factors of an optimizer after one iteration."""
    optimizer = SNOpt(model, curvature=KroneckerOptions(**options))
    x = torch.randn(6, 5, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    out = (model if run is None else run)(x).float()
    (out * torch.linspace(-1, 1, out.shape[1])).square().mean().backward()
    optimizer.step()
    return optimizer.factors


def reentrant(f, *args):
    return torch.utils.checkpoint.checkpoint(f, *args, use_reentrant=True)


def not_reentrant(f, *args):
    return torch.utils.checkpoint.checkpoint(f, *args, use_reentrant=False)


@pytest.mark.parametrize("wrap", [reentrant, not_reentrant])
def test_attention_under_activation_checkpointing(wrap):
    want, got = factors_of(Encoder()), factors_of(Encoder(wrap))
    assert "layer.self_attn.in_proj_weight" in want
    for name, factors in want.items():
        torch.testing.assert_close(got[name].A, factors.A)
        torch.testing.assert_close(got[name].B, factors.B)


def test_attention_in_a_compiled_model():
    model = Encoder()
    compiled = torch.compile(model, backend="eager")
    want, got = factors_of(Encoder()), factors_of(model, compiled)
    assert want.keys() == got.keys()
    for name, factors in want.items():
        torch.testing.assert_close(got[name].B, factors.B)


def test_attention_under_autocast():
    model = Encoder()

    def run(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x)

    want, got = factors_of(Encoder()), factors_of(model, run)
    assert want.keys() == got.keys()
    for name, factors in want.items():
        assert got[name].B.dtype == torch.float32
        assert (got[name].B - factors.B).norm() < 0.05 * factors.B.norm(), name


@pytest.mark.parametrize("terminal", ["ggn", "sampled"])
@pytest.mark.parametrize("sharing", ["expand", "trace"])
def test_attention_with_other_curvature(terminal, sharing):
    found = factors_of(Encoder(), terminal=terminal, sharing=sharing, loss="squared_error")
    assert {"layer.self_attn.in_proj_weight", "layer.self_attn.out_proj"} < set(found)
    assert all(torch.isfinite(f.A).all() and torch.isfinite(f.B).all() for f in found.values())
