"""The regularity of paths."""

import torch

from snopt.models import CNF, ImageClassifier, regularity


def test_it_measures_what_a_flow_measures_of_itself():
    flow = CNF(3, (8,), rtol=1e-6, atol=1e-6).double()
    field, x = flow.blocks[0].field.field, torch.randn(4, 3, dtype=torch.float64)
    flow.blocks[0].field = field  # the field on x alone
    found = regularity(flow.blocks[0], x.repeat(500, 1), rtol=1e-6, atol=1e-6)
    expected = CNF(3, fields=[field], rtol=1e-6, atol=1e-6)(x, costs=True)[2]
    assert abs(found.kinetic / expected.kinetic.mean().item() - 1.0) < 1e-4
    assert abs(found.jacobian / expected.jacobian.mean().item() - 1.0) < 0.1


def test_it_measures_image_classifiers_and_leaves_them_alone():
    model = ImageClassifier(1, 4, width=6)
    features = model.stem(torch.randn(3, 1, 12, 12))
    before = model.block.totals.nfe_forward
    found = regularity(model.block, features, generator=torch.Generator().manual_seed(0))
    assert found.kinetic > 0
    assert found.jacobian > 0
    assert model.block.totals.nfe_forward == before
    again = regularity(model.block, features, generator=torch.Generator().manual_seed(0))
    assert again == found


def test_it_measures_with_fixed_steps():
    torch.manual_seed(0)
    flow = CNF(3, (8,))
    block = flow.blocks[0]
    block = type(block)(block.field.field)
    x = torch.randn(4, 3)
    draws = [torch.Generator().manual_seed(0) for _ in range(2)]
    found = regularity(block, x, generator=draws[0], method="rk4", options={"step_size": 0.05})
    expected = regularity(block, x, generator=draws[1], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=1e-3, atol=1e-5)
