"""What the variants of the experiments really change."""

from dataclasses import replace

import pytest
import torch

from snopt.adjoint import odeint
from snopt.lab.data import Spec
from snopt.lab.paper.items.variants import implicit_adams
from snopt.lab.paper.scales import configuration
from snopt.lab.recipes.build import build_model

IMAGE = Spec("mnist", "image", (1, 28, 28), 10, None, "generated", "Noise.")


@pytest.mark.parametrize(("scale", "steps"), [("smoke", 5), ("cpu", 20), ("full", 20)])
def test_implicit_adams_is_run_and_not_one_step_of_its_starting_method(scale, steps, monkeypatch):
    from torchdiffeq._impl.fixed_adams import AdamsBashforthMoulton

    orders, step = [], AdamsBashforthMoulton._step_func

    def watched(self, *args):
        made = step(self, *args)
        orders.append(min(len(self.prev_f), self.max_order - 1))
        return made

    monkeypatch.setattr(AdamsBashforthMoulton, "_step_func", watched)
    config = implicit_adams(configuration("mnist", "adam", scale))
    config = replace(config, model=replace(config.model, width=4))
    model = build_model(config.model, config.solver, IMAGE)
    x0 = model.stem(torch.randn(3, 1, 28, 28)).detach()
    with torch.no_grad():
        end = model.block(x0)
        field = model.block.field
        one_step = odeint(field, x0, (0.0, 1.0), method="rk4", options={"step_size": 1.0})[-1]
        true = odeint(field, x0, (0.0, 1.0), rtol=1e-6, atol=1e-6)[-1]
    # The first steps are of RK4, those of predictor and corrector have rising order.
    assert len(orders) == steps
    assert orders[-1] == min(steps, 11)
    assert model.block.stats.nfe_forward > 2 * steps
    assert not torch.equal(end, one_step)
    assert (end - true).norm() < 0.5 * (one_step - true).norm()
