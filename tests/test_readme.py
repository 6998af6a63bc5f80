"""The code that the README shows runs as it stands."""

import re
from pathlib import Path

import torch
from torch import nn

README = Path(__file__).parents[1] / "README.md"


def test_python_blocks_of_the_readme_run():
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text("utf-8"), re.DOTALL | re.M)
    names = {
        "batches": [(torch.randn(8, 2), torch.randint(2, (8,))) for _ in range(2)],
        "field": _Rotation(),
        "x0": torch.tensor([[1.0, 0.0]]),
        "t": torch.linspace(0.0, 1.0, 3),
    }
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    assert torch.isfinite(names["loss"])
    assert names["states"].shape == (3, 1, 2)


class _Rotation(nn.Module):
    def __init__(self):
        super().__init__()
        self.speed = nn.Parameter(torch.tensor(1.0))

    def forward(self, t, x):
        return self.speed * torch.stack([-x[..., 1], x[..., 0]], dim=-1)
