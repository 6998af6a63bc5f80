"""The stamp of a record: which code and which settings made it.

A stamp covers the code that a record really uses, so that a change elsewhere does not make it
stale. Code is compared without comments, docstrings and layout. Configurations come from other
files (recipes, scales, the catalogue) and are part of the settings.
"""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch

from snopt.lab.config import Experiment
from snopt.lab.optimizers import OPTIMIZERS

__all__ = ["LIBRARY", "TRAINING", "code_of", "code_version", "stamp"]

PACKAGE = Path(__file__).parents[2]
LIBRARY = (
    "base", "ode", "adjoint", "second_order", "models", "kronecker", "horizon", "optim",
)  # fmt: skip
TRAINING = (
    "base", "ode", "adjoint", "models", "lab/data", "lab/train", "lab/optimizers/registry.py",
    "lab/recipes/build.py", "lab/recipes/tasks.py",
)  # fmt: skip
"""Code that every training uses."""
COMPILED = ("adjoint/compiled.py", "adjoint/compiled_steps.py", "adjoint/compiled_tanh.py")
"""Code that only compiled solves use."""
APART = ("lab/train/listeners.py", *COMPILED)
"""Files that do not count as part of their folders. Listeners show or copy a record and cannot
change it."""
SNOPT = ("optim", "kronecker", "second_order/terminal.py")
METHODS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("adam", "adamw", "sgd", "lbfgs", "soap"), ()),
    "snopt": SNOPT,
    "snopt_amortized": SNOPT,
    "muon": ("lab/optimizers/wrapped.py",),
    "singd": ("lab/optimizers/wrapped.py", "lab/optimizers/singd.py"),
    "recursive": (
        "lab/optimizers/recursive.py", "lab/optimizers/recursive_newton.py",
        "second_order/terminal.py",
    ),
}  # fmt: skip
"""Code of each optimizer; an optimizer that is not listed is assumed to use everything."""


def code_of(config: Experiment) -> tuple[str, ...]:
    """Return the files and folders of the package that a training uses.

    Example:
        >>> from snopt.lab.recipes import recipe
        >>> set(code_of(recipe("mnist", "snopt"))) - set(code_of(recipe("mnist", "adam"))) == {
        ...     "optim", "kronecker", "second_order/terminal.py"}
        True
    """
    learned = () if config.horizon.policy == "fixed" else ("horizon", "second_order")
    method = METHODS.get(config.optimizer.name, (*LIBRARY, "lab/optimizers"))
    compiled = COMPILED if config.solver.compile else ()
    return tuple(dict.fromkeys((*TRAINING, *compiled, *method, *learned)))


@cache
def code_version(names: tuple[str, ...], package: Path = PACKAGE) -> str:
    """Digest files and folders of the package, and the version of torch.

    Raises:
        FileNotFoundError: a name does not exist; the list above is out of date.
    """
    digest = hashlib.sha256(torch.__version__.encode())
    for name in names:
        path = package / name
        if not path.exists():
            raise FileNotFoundError(f"a stamp covers {path}, which does not exist")
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            if file == path or file.relative_to(package).as_posix() not in APART:
                digest.update(ast.dump(_without_docstrings(file.read_text("utf-8"))).encode())
    return digest.hexdigest()[:12]


def _without_docstrings(text: str) -> ast.AST:
    tree = ast.parse(text)
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return tree


_version = cache(version)


def stamp(settings: object, code: tuple[str, ...]) -> dict[str, str]:
    """Return the stamp of a record.

    Args:
        settings: everything that was configured; settings with the same ``repr`` are equal.
        code: files and folders of the package that the record depends on.
    """
    used = repr(settings)
    if isinstance(settings, Experiment):
        package = OPTIMIZERS[settings.optimizer.name].package
        used += f", {package} {_version(package)}" if package else ""
    digest = hashlib.sha256(used.encode()).hexdigest()[:12]
    return {"code": code_version(code), "settings": digest}
