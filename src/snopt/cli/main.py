"""Entry point of the ``snopt`` command."""

import argparse
import difflib
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import NamedTuple

from snopt.cli import info

USAGE_ERROR = 2
"""Exit code for a command line that makes no sense, as argparse has it."""


class Verb(NamedTuple):
    """What the command line knows of one verb."""

    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


VERBS: dict[str, Verb] = {
    "info": Verb(info.SUMMARY, info.add_arguments, info.run),
}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(prog="snopt", description="Train Neural ODEs in PyTorch.")
    parser.add_argument("--version", action="version", version=f"snopt {version('snopt')}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    for name, verb in VERBS.items():
        verb.add_arguments(verbs.add_parser(name, help=verb.summary, description=verb.summary))
    return parser


def unknown_verb(word: str) -> str:
    """Return the sentence for a verb that does not exist.

    >>> unknown_verb("inof")
    "snopt: there is no verb 'inof'; did you mean 'info'? Verbs: info."
    >>> unknown_verb("fly")
    "snopt: there is no verb 'fly'. Verbs: info."
    """
    near = difflib.get_close_matches(word, VERBS, n=1)
    guess = f"; did you mean {near[0]!r}?" if near else "."
    return f"snopt: there is no verb {word!r}{guess} Verbs: {', '.join(VERBS)}."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: The words after ``snopt``; those of the process when not given.

    Returns:
        The exit code: 0 for success, 2 for a command line that makes no sense.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words and not words[0].startswith("-") and words[0] not in VERBS:
        print(unknown_verb(words[0]), file=sys.stderr)
        return USAGE_ERROR
    parser = build_parser()
    arguments = parser.parse_args(words)
    if arguments.verb is None:
        parser.print_help()
        return 0
    return VERBS[arguments.verb].run(arguments)
