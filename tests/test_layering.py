"""Lower layers never import higher ones, and siblings do not import each other.

The table below is the one of docs/architecture.md. Every import of `snopt` inside
`src/snopt` is read from the syntax tree, also those under `if TYPE_CHECKING:`; one
inside a function is a fault in itself, since that is where import cycles hide.
(Imports of optional third-party packages inside functions are not our concern.)
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

LAYERS: list[set[str]] = [
    {"base"},
    {"ode"},
    {"adjoint"},
    {"second_order", "models"},
    {"kronecker", "horizon"},
    {"optim"},
    {"lab.data"},
    {"lab.train"},
    {"lab.config", "lab.table"},
    {"lab.optimizers"},
    {"lab.report"},
    {"lab.recipes"},
    {"lab.paper"},
    {"lab.cli"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

# The files above all layers: the public names and `python -m snopt`.
TOP_FILES = {"__init__.py", "__main__.py", "lab/__init__.py"}


def imported_modules(node: ast.Import | ast.ImportFrom, package: list[str]) -> Iterator[str]:
    """Absolute dotted names that one import statement may load.

    `from a import b` yields `a.b`: b may be a module, and the first two parts are
    all that the layers need. `package` holds the parts of the importing package.
    """
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    anchor = package[: len(package) - node.level + 1] if node.level else []
    origin = anchor + (node.module.split(".") if node.module else [])
    yield from (".".join([*origin, alias.name]) for alias in node.names)


def imports_with_depth(tree: ast.AST) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import statement, and whether a function encloses it."""
    stack: list[tuple[ast.AST, bool]] = [(tree, False)]
    while stack:
        node, in_function = stack.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, in_function
        in_function |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        stack.extend((child, in_function) for child in ast.iter_child_nodes(node))


def room_of(parts: list[str]) -> str:
    """The row of the table that a module belongs to; the laboratory's rooms have their own.

    `parts` follow `snopt`.
    """
    if parts[:1] == ["lab"]:
        return ".".join(parts[:2]).removesuffix(".py")
    return parts[0] if parts else ""


def fault_of(importer: str, module: str, in_function: bool) -> str | None:
    """Why package `importer` may not import `module`, or None if it may."""
    parts = module.split(".")
    if parts[0] != "snopt":
        return None
    if in_function:
        return f"imports {module} inside a function"
    imported = room_of(parts[1:])
    if imported not in LEVEL:
        return f"imports {module} from the top of the package, which imports every layer"
    if imported == importer or LEVEL[imported] < LEVEL[importer]:
        return None
    if LEVEL[imported] == LEVEL[importer]:
        return f"imports its sibling {imported} (both are in layer {LEVEL[importer]})"
    return f"layer {LEVEL[importer]} imports layer {LEVEL[imported]} ({imported})"


def faults_in(source: Path) -> list[str]:
    """Every breach of the table in the tree `source`, which plays `src/snopt`."""
    found = []
    for path in sorted(source.rglob("*.py")):
        relative = path.relative_to(source)
        if relative.as_posix() in TOP_FILES:
            continue
        importer = room_of(list(relative.parts))
        if importer not in LEVEL:
            found.append(f"{relative}: {importer} has no layer; give it one in the table")
            continue
        package = ["snopt", *relative.parts[:-1]]
        for node, in_function in imports_with_depth(ast.parse(path.read_text("utf-8"))):
            for module in imported_modules(node, package):
                fault = fault_of(importer, module, in_function)
                if fault:
                    found.append(f"{relative}:{node.lineno}: {fault}")
    return found


def test_source_keeps_to_the_layers():
    assert faults_in(ROOT / "src" / "snopt") == []


def test_documented_table_is_the_enforced_one():
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rows = re.findall(r"^\| L(\d+) \| ([^|]+) \|", text, flags=re.MULTILINE)
    documented = [set(re.findall(r"`([\w.]+)`", names)) for _, names in rows]
    assert [int(level) for level, _ in rows] == list(range(len(LAYERS)))
    assert documented == LAYERS


def tree(folder: Path, files: dict[str, str]) -> Path:
    """Write a small package to `folder`."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder


ALLOWED = {
    "__init__.py": "from snopt.optim import SNOpt\n",
    "__main__.py": "from snopt.lab.cli.main import main\n",
    "base/types.py": "import torch\n",
    "ode/solve.py": "from snopt.base.types import State\nfrom . import step\n",
    "ode/deep/leaf.py": "from ..step import go\nfrom ...base import types\n",
    "adjoint/block.py": "import snopt.ode.solve\nfrom ..ode import solve\n",
    "lab/report/figures.py": "def draw():\n    import matplotlib\n",
}


def test_imports_downwards_and_within_a_package_are_allowed(tmp_path):
    assert faults_in(tree(tmp_path, ALLOWED)) == []


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("ode/bad.py", "from snopt.adjoint.block import X", "layer 1 imports layer 2"),
        ("ode/bad.py", "import snopt.optim", "layer 1 imports layer 5"),
        ("ode/bad.py", "from snopt import adjoint", "layer 1 imports layer 2"),
        ("base/bad.py", "from ..ode import solve", "layer 0 imports layer 1"),
        ("base/bad.py", "from .. import ode", "layer 0 imports layer 1"),
        ("ode/deep/bad.py", "from ...lab.train.loop import run", "layer 1 imports layer 7"),
        ("optim/bad.py", "import snopt.lab.data", "layer 5 imports layer 6"),
        ("lab/optimizers/bad.py", "from ..report import x", "layer 9 imports layer 10"),
        ("lab/data/bad.py", "import snopt.lab", "top of the package"),
        ("horizon/bad.py", "from snopt.kronecker.view import View", "its sibling kronecker"),
        ("second_order/bad.py", "from ..models import cnf", "its sibling models"),
        ("optim/bad.py", "def f():\n    from snopt.ode import solve", "inside a function"),
        ("ode/bad.py", "class C:\n    def f(self):\n        from . import s", "inside a function"),
        ("ode/bad.py", "if TYPE_CHECKING:\n    from snopt.adjoint import X", "imports layer 2"),
        ("ode/bad.py", "from snopt import NeuralODE", "top of the package"),
        ("ode/bad.py", "import snopt", "top of the package"),
        ("attic/bad.py", "import torch", "has no layer"),
        ("loose.py", "import torch", "has no layer"),
    ],
)
def test_the_checker_catches(tmp_path, name, text, fault):
    found = faults_in(tree(tmp_path, {**ALLOWED, name: text + "\n"}))
    assert len(found) == 1
    assert found[0].startswith(name)
    assert fault in found[0]
