"""Hooks and observers that belong to one model and must not follow its copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar


def no_hook(*args: object, **kwargs: object) -> None:
    """Do nothing; copies of a model hold this function instead of a hook."""


class Inert:
    """A hook or an observer that copies and pickles of a model do not inherit.

    They hold ``in_copies`` instead: None, or a hook that does nothing.

    Example:
        >>> import copy
        >>> class Hook(Inert):
        ...     in_copies = staticmethod(no_hook)
        >>> copy.deepcopy([Inert(), Hook()]) == [None, no_hook]
        True
    """

    in_copies: ClassVar[Callable[..., None] | None] = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None] | None:
        return type(self).in_copies

    def __reduce__(self) -> tuple[Callable[..., object], tuple[type[Inert]]]:
        return _in_copies, (type(self),)


def _in_copies(kind: type[Inert]) -> Callable[..., None] | None:
    return kind.in_copies
