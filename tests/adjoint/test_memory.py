"""Memory of adjoints, measured: that of the O(1) ones does not grow with the number of steps."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys, torch, snopt
from pathlib import Path
torch.set_num_threads(1)
adjoint, steps = sys.argv[1], int(sys.argv[2])

class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor(0.3))
    def forward(self, t, x):
        return torch.sin(self.a * x)

def iterate(steps):
    global adjoint
    h = 1.0 / steps
    fixed = {"method": "rk4", "options": {"step_size": h}}
    if adjoint == "checkpoint":
        adjoint = snopt.Checkpoint(keep=0)
    if adjoint == "reversible":  # the leapfrog is adaptive: hold it at one step size
        fixed = {"rtol": 1e9, "atol": 1e9, "options": {"first_step": h, "max_step": h}}
    stats = snopt.SolveStats()
    x0 = torch.ones(100_000)
    x = snopt.odeint(Field(), x0, [0.0, 1.0], adjoint=adjoint, stats=stats, **fixed)
    x[-1].sum().backward()
    assert stats.accepted == steps, stats

def peak():  # not ru_maxrss, which a process inherits from its parent
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0])

iterate(20)
before = peak()
iterate(steps)
print(peak() - before)
"""

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="peak memory is read from /proc"
)


def rise_in_megabytes(adjoint: str, steps: int) -> float:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, adjoint, str(steps)],
        capture_output=True, text=True, check=True, timeout=300,
        # One heap: with several, what one has freed may not serve another.
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},
    )  # fmt: skip
    return int(run.stdout) / 1024


@pytest.mark.parametrize("adjoint", ["backsolve", "reversible"])
def test_memory_is_flat_from_50_to_5000_steps(adjoint):
    """A state takes 0.4 MB: keeping one a step would take 2,000 MB."""
    assert rise_in_megabytes(adjoint, 5000) < rise_in_megabytes(adjoint, 50) + 20


def test_checkpoint_keeps_one_state_a_step_and_direct_far_more():
    """The measurement can tell: 1,000 steps of 0.4 MB each."""
    one = rise_in_megabytes("checkpoint", 1000)
    assert 300 < one < 900
    assert rise_in_megabytes("direct", 1000) > 3 * one


SYMBOLS = """
import sys, torch, snopt
field = torch.nn.Linear(2, 2)
field.forward = lambda t, x, go=field.forward: torch.tanh(go(x))
snopt.NeuralODE(field, adjoint=sys.argv[1])(torch.ones(3, 2)).sum().backward()
assert field.weight.grad is not None
print("sympy" in sys.modules)
"""


@pytest.mark.parametrize("adjoint", ["checkpoint", "backsolve", "reversible"])
def test_a_backward_pass_imports_no_symbolic_algebra(adjoint):
    """It takes 36 MB, and ``torch.autograd.grad`` imports it."""
    run = subprocess.run(
        [sys.executable, "-c", SYMBOLS, adjoint],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    assert run.stdout.strip() == "False"
