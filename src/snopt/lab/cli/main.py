"""Entry point of the ``snopt`` command."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Collection, Sequence
from importlib.metadata import version
from itertools import pairwise
from typing import get_args

from snopt.base.errors import InvalidOption, InvalidTimes, UnknownName
from snopt.lab.cli.compare import compare
from snopt.lab.cli.data import data
from snopt.lab.cli.info import info
from snopt.lab.cli.options import UsageError
from snopt.lab.cli.paper import paper
from snopt.lab.cli.report import report
from snopt.lab.cli.screen import complain
from snopt.lab.cli.sweep import sweep
from snopt.lab.cli.train import train
from snopt.lab.config import HorizonPolicy, Scale, TaskName
from snopt.lab.optimizers import OPTIMIZERS

INTERRUPTED, BROKEN_PIPE = 130, 141
"""Exit codes of a command ended by SIGINT or SIGPIPE."""

USAGE = (UsageError, UnknownName, InvalidOption, InvalidTimes)
"""Errors that mean a wrong command line, exit code 2."""

VERBS: dict[str, Callable[..., int]] = {
    verb.__name__: verb for verb in (train, compare, sweep, report, paper, data, info)
}

DESCRIPTION = """Train Neural ODEs in PyTorch with second-order optimization.

Everywhere: --version; --debug for tracebacks (also SNOPT_DEBUG=1); -o for --out.
Shell completion: snopt --tyro-print-completion {bash,zsh,tcsh}"""


def parse(words: Sequence[str]) -> int:
    """Parse the words after ``snopt``, run the verb, and return the exit code."""
    try:
        import tyro
    except ImportError as error:
        raise ImportError(
            "the command line needs tyro, which is not installed: pip install 'snopt[lab]'"
        ) from error
    # No --no-quiet, --scale instead of --common.scale, and no value None.
    config = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes, tyro.conf.DisallowNone)
    code: int = tyro.extras.subcommand_cli_from_dict(
        VERBS,
        prog="snopt",
        description=DESCRIPTION,
        args=gathered(words),
        config=config,
    )
    return code


def gathered(words: Sequence[str]) -> list[str]:
    """Collect all ``--set`` at the end, so that it can be repeated; expand ``-o``.

    Example:
        >>> gathered(["train", "--set", "lr=1", "mnist", "-o", "here"])
        ['train', 'mnist', '--out', 'here', '--set', 'lr=1']
        >>> gathered(["train", "mnist", "--set", "lr=1", "--quiet", "--set", "a=2", "b=3"])
        ['train', 'mnist', '--quiet', '--set', 'lr=1', 'a=2', 'b=3']
    """
    others: list[str] = []
    settings: list[str] = []
    inside = False
    for before, word in pairwise(["", *words]):
        if word == "--set":
            inside = True
        elif inside and ("=" in word or before == "--set") and not word.startswith("--"):
            settings.append(word)
        else:
            inside = False
            others.append("--out" if word == "-o" else word)
    return [*others, "--set", *settings] if settings else others


CHOICES: dict[str, Collection[str]] = {
    "--optimizer": OPTIMIZERS,
    "--optimizers": OPTIMIZERS,
    "--scale": get_args(Scale),
    "--horizon-policy": get_args(HorizonPolicy),
}
TASK_VERBS = ("train", "compare", "sweep")


def hints(words: Sequence[str]) -> list[str]:
    """Suggest names for misspelt verbs, tasks, and values of flags with choices.

    Example:
        >>> hints(["train", "mnits", "--optimizer", "adma"])
        ["did you mean 'mnist' for 'mnits'?", "did you mean 'adam' for 'adma'?"]
        >>> hints(["train", "digits", "--scale", "trainy"])
        []
    """
    found = []
    known: Collection[str] = VERBS
    for place, word in enumerate(words):
        if word.startswith("-"):
            known = CHOICES.get(word, ())
            continue
        near = difflib.get_close_matches(word, known, n=1)
        if near and word not in known:
            found.append(f"did you mean {near[0]!r} for {word!r}?")
        if place == 0:
            known = get_args(TaskName) if word in TASK_VERBS else ()
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the words after ``snopt``; default those of the process.

    Returns:
        The exit code: 0 for success, 1 for an error, 2 for a wrong command line, 3 for a run that
        diverged, 130 after Ctrl-C, 141 if the reader of the output is gone.
    """
    try:
        code = _run(argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # A reader such as `head` has closed the pipe. Python would complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE


def _run(argv: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words or os.environ.get("SNOPT_DEBUG", "") not in ("", "0")
    words = [word for word in words if word != "--debug"]
    if words == ["--version"]:
        print(f"snopt {version('snopt')}")
        return 0
    try:
        return parse(words or ["--help"])
    except SystemExit as end:
        # tyro has said what is wrong (2), or printed help (0 or nothing).
        code = end.code if isinstance(end.code, int) else 0
        for hint in hints(words) if code else []:
            print(hint, file=sys.stderr)
        return code
    except KeyboardInterrupt:
        print("snopt: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        raise
    # The user gets a sentence for any error; --debug shows the traceback.
    except Exception as error:
        if debug:
            raise
        complain(error)
        return 2 if isinstance(error, USAGE) else 1
