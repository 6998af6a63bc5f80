"""Every example runs, at a smaller size than by hand, and does what it says.

Those that are scripts for torchdiffeq are run in test_drop_in.py.
"""

import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    """Pictures go to a folder of the test; data sets are those that need no download."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SNOPT_DATA", str(tmp_path))
    threads = torch.get_num_threads()
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_num_threads(threads)


def part_of(name: str, part: str = "main") -> Callable[..., Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))[part]


def is_picture(path: str) -> bool:
    return Path(path).read_bytes().startswith(b"\x89PNG")


def test_demo_compares_on_both_tasks_and_shows_the_flow(capsys):
    page = part_of("demo")(seconds=0.3).read_text("utf-8")
    assert "SNOpt and rivals" in page
    assert re.findall(r'data-task="(\w+)"', page) == ["two_moons", "circle"]  # the film first
    assert '"noise to data"' in page
    assert '"frames":[[[' in page
    shown = capsys.readouterr().out
    assert "snopt, seed 0" in shown
    assert "adam, seed 0" in shown


def test_image_classifier_reads_digits():
    assert part_of("image_classifier")(iterations=40)[-1] > 0.7


def test_ode_rnn_tells_spirals_apart():
    assert part_of("ode_rnn")(iterations=25) > 0.4  # one of four


def test_cnf_draws_a_density():
    losses, integral = part_of("cnf")(iterations=25)
    assert losses[-1] < losses[0] - 0.2
    assert integral == pytest.approx(1.0, abs=0.05)
    assert is_picture("out/cnf.png")


def test_learn_horizon_moves_the_horizon():
    (fixed, _), (learned, accuracy) = part_of("learn_horizon")(iterations=60)
    assert fixed == 1.0
    assert abs(learned - 1.0) > 0.01
    assert accuracy > 0.7


def test_hessian_spectrum_draws_both_matrices():
    before, after = part_of("hessian_spectrum")(iterations=30, width=6)
    assert after < before
    assert is_picture("out/spectrum.png")


@pytest.mark.parametrize("solver", ["NeuralODE", "cdeint"])
def test_neural_cde_tells_spirals_apart(solver, recwarn):
    optimizer, loss, accuracy = part_of("neural_cde")(solver, iterations=25)
    assert loss < 0.3  # from 0.7
    assert accuracy > 0.9
    trained = [row.trained_by for row in optimizer.summary().rows if "field." in row.name]
    assert trained == 2 * ["kronecker (ode)" if solver == "NeuralODE" else "kronecker"]
    assert not [w for w in recwarn if w.category is RuntimeWarning]


def test_latent_sde_raises_the_evidence_bound(recwarn):
    optimizer, losses = part_of("latent_sde")(iterations=80)
    assert losses[-1] < 0.2 * losses[0]
    trained = {(row.kind, row.trained_by) for row in optimizer.summary().rows}
    assert trained == {("GRU", "adam"), ("Linear", "kronecker")}
    assert not [w for w in recwarn if w.category is RuntimeWarning]


def test_pendulum_recovers_the_field():
    error, apart, snopt, adam = part_of("pendulum")(iterations=60)
    assert error < 0.15
    assert apart < 0.5
    assert snopt[-1] < 0.1 * snopt[0]
    assert adam[-1] < 0.1 * adam[0]
    assert is_picture("out/pendulum.png")


def test_lightning_resumes_to_the_same_weights():
    pytest.importorskip("lightning")
    fit = part_of("with_lightning", "fit")
    straight, accuracy, _ = fit(epochs=2, out="straight")
    _, _, checkpoint = fit(epochs=1, out="first")
    resumed, _, _ = fit(epochs=2, out="second", resume_from=checkpoint)
    assert accuracy > 0.9
    assert resumed.losses == straight.losses[len(straight.losses) // 2 :]


def test_accelerate_resumes_to_the_same_losses():
    pytest.importorskip("accelerate")
    losses, straight, resumed = part_of("with_accelerate")(epochs=1)
    assert losses[-1] < 0.7 * losses[0]
    assert straight == resumed


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("with_lightning", "lightning"),
        ("with_accelerate", "accelerate"),
        ("neural_cde", "torchcde"),
        ("latent_sde", "torchsde"),
    ],
)
def test_without_the_package_a_sentence_is_printed(name, package, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(SystemExit) as end:
        part_of(name)
    assert not end.value.code
    assert f"pip install {package}" in capsys.readouterr().out


def test_two_processes_learn_what_one_learns(capsys):
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = subprocess.run(
        [sys.executable, *torchrun, str(EXAMPLES / "distributed.py")],
        capture_output=True, text=True, check=True, timeout=600,
    )  # fmt: skip
    part_of("distributed")()
    line = re.compile(r"processes (\d)  iteration +\d+  loss (\S+)")
    together, alone = line.findall(run.stdout), line.findall(capsys.readouterr().out)
    assert {size for size, _ in together} == {"2"}
    assert {size for size, _ in alone} == {"1"}
    losses = [float(loss) for _, loss in alone]
    # Coordinates whose gradient is nearly zero are scaled up, and their rounding errors with them.
    assert [float(loss) for _, loss in together] == pytest.approx(losses, rel=1e-5)
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_short_listed_and_tested(name):
    assert len((EXAMPLES / f"{name}.py").read_text("utf-8").splitlines()) < 80
    assert f"| [`{name}.py`]({name}.py) |" in (EXAMPLES / "README.md").read_text("utf-8")
    tests = [Path(__file__), Path(__file__).with_name("test_drop_in.py")]
    assert any(f'"{name}' in path.read_text("utf-8") for path in tests)
