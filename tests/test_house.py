"""Ceilings and habits that keep the source habitable."""

import ast
import inspect
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

import snopt

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "snopt").rglob("*.py"))

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
# Names that say nothing, under which anything can be put.
EMPTY_NAMES = {"utils", "util", "misc", "common", "helpers", "helper", "core"}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(text: str) -> Iterator[tuple[str, int]]:
    """Name and length of every function, its docstring not counted."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            length -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
        yield node.name, length


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_file_and_its_functions_are_short(path):
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= MAX_FILE_LINES
    long = {name: n for name, n in functions(text) if n > MAX_FUNCTION_LINES}
    assert long == {}


def test_length_of_a_function_excludes_its_docstring():
    text = 'def f(x):\n    """One.\n\n    Two.\n    """\n    y = x\n    return y\n'
    assert list(functions(text)) == [("f", 3)]


def test_no_file_or_folder_has_an_empty_name():
    parts = {
        relative(path): {part.removesuffix(".py") for part in path.relative_to(ROOT).parts}
        for path in SOURCES
    }
    assert {name for name, names in parts.items() if names & EMPTY_NAMES} == set()


def test_public_names_exist_and_are_documented():
    for name in snopt.__all__:
        thing = getattr(snopt, name)
        if inspect.isclass(thing) or inspect.isroutine(thing) or inspect.ismodule(thing):
            own = thing.__dict__.get("__doc__") if inspect.isclass(thing) else thing.__doc__
            assert own, f"snopt.{name} has no docstring"


def test_public_names_are_listed_once():
    assert len(snopt.__all__) == len(set(snopt.__all__))


def test_version_is_that_of_the_distribution():
    assert snopt.__version__ == version("snopt")


def test_changelog_has_a_place_for_the_next_change():
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.search(r"^## \[Unreleased\]$", text, flags=re.MULTILINE)
