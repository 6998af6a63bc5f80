"""The command lines ``python -m benchmarks.GROUP [COMMAND] [flags]``.

A group lists its commands in ``COMMANDS``, the default first. Each is a module of the group, with
``main(chosen)`` and, if it has flags, ``arguments(parser)``. It is imported only when it is used.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType


def parse(group: str, words: Sequence[str]) -> tuple[ModuleType, argparse.Namespace]:
    """Parse a command line; return the module to run and its arguments."""
    names: tuple[str, ...] = import_module(group).COMMANDS
    named = bool(words) and not words[0].startswith("-")
    name = words[0] if named else names[0]
    if name not in names:
        raise SystemExit(f"{group} has no command {name!r}; it has {', '.join(names)}")
    module = import_module(f"{group}.{name}")
    parser = argparse.ArgumentParser(
        prog=f"python -m {group} {name}",
        description=module.__doc__,
        epilog=f"Commands of {group}: {', '.join(names)}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if hasattr(module, "arguments"):
        module.arguments(parser)
    return module, parser.parse_args(list(words[named:]))


def run(group: str) -> None:
    """Run the command of the process's arguments."""
    module, chosen = parse(group, sys.argv[1:])
    module.main(chosen)
