"""Which code and which settings a record was made by."""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path

import torch

__all__ = ["code_version", "stamp"]

PACKAGE = Path(__file__).parents[2]
CODE = (
    "base", "ode", "adjoint", "second_order", "models", "kronecker", "horizon", "optim",
    "lab/data", "lab/train", "lab/optimizers", "lab/recipes/build.py", "lab/recipes/tasks.py",
    *(f"lab/paper/{name}.py" for name in ("derivatives", "growth", "iterations", "problems")),
)  # fmt: skip
"""What a record depends on; configurations, which a stamp holds too, come from the other files."""


@cache
def code_version(package: Path = PACKAGE) -> str:
    """Digest the code that makes records, and torch's version.

    Comments, docstrings and layout do not count: they change no result.
    """
    digest = hashlib.sha256(torch.__version__.encode())
    for name in CODE:
        path = package / name
        for file in [path] if path.suffix else sorted(path.rglob("*.py")):
            digest.update(ast.dump(_without_docstrings(file.read_text("utf-8"))).encode())
    return digest.hexdigest()[:12]


def _without_docstrings(text: str) -> ast.AST:
    tree = ast.parse(text)
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return tree


def stamp(settings: object) -> dict[str, str]:
    """Return what a record carries, to be told from those of other code or settings.

    Args:
        settings: everything that was configured; two that look alike count as equal.
    """
    digest = hashlib.sha256(repr(settings).encode()).hexdigest()[:12]
    return {"code": code_version(), "settings": digest}
