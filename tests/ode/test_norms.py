import torch

import snopt
from snopt.base.packing import Packing
from snopt.ode.norms import Seminorm, norm_for, rms


def test_the_norm_of_a_tuple_is_that_of_its_worst_part():
    state = (torch.full((1000,), 0.1), torch.tensor([7.0]))
    packing = Packing.of(state)
    assert norm_for(packing, None)(packing.pack(state)) == 7.0
    assert rms(packing.pack(state)) < 1.0


def test_a_seminorm_leaves_a_quadrature_out_of_the_error_control():
    """A fast oscillating running cost feeds back into nothing."""

    def field(t, state):
        return -state[0], torch.sin(200.0 * t) * torch.ones_like(state[1])

    x0 = (torch.ones(2, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    counts = []
    for norm in (None, Seminorm(keep=1)):
        stats = snopt.SolveStats()
        options = {} if norm is None else {"norm": norm}
        x, _ = snopt.odeint(
            field, x0, [0.0, 1.0], rtol=1e-6, atol=1e-6, options=options, stats=stats
        )
        assert abs(x[-1, 0].item() - 0.36787944) < 1e-5
        counts.append(stats.nfe_forward)
    assert counts[1] < 0.2 * counts[0]
