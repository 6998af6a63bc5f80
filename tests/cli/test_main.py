"""The command line, run in this process and as a module."""

import subprocess
import sys
from importlib.metadata import version

import pytest

from snopt.cli.main import VERBS, main


def test_info_prints_versions_devices_and_threads(capsys):
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    for word in ("snopt", "torch", "torchdiffeq", "devices", "threads", version("snopt")):
        assert word in out


def test_version_is_that_of_the_distribution(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out.strip() == f"snopt {version('snopt')}"


def test_no_verb_prints_help_with_every_verb(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(verb in out for verb in VERBS)


def test_unknown_verb_names_itself_and_the_nearest_one(capsys):
    assert main(["inof"]) == 2
    err = capsys.readouterr().err
    assert "'inof'" in err
    assert "did you mean 'info'?" in err
    assert "Traceback" not in err


def test_python_m_snopt_is_the_same_command():
    result = subprocess.run(
        [sys.executable, "-m", "snopt", "nonsense"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert "no verb 'nonsense'" in result.stderr
