"""``import snopt`` stays light."""

import subprocess
import sys


def test_importing_snopt_brings_no_heavy_library_along():
    code = "import sys, snopt; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"scipy", "torchdiffeq", "matplotlib", "sklearn", "pandas", "optuna", "h5py"}
    heavy |= {"pooch", "tyro", "rich", "tensorboard"}
    assert not heavy & set(run.stdout.split())
