"""Things that belong to one model, and not to its copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

__all__ = ["Inert", "no_hook"]


def no_hook(*args: object, **kwargs: object) -> None:
    """A hook that does nothing."""


class Inert:
    """A hook or an observer that reports to someone; a copy or a pickle of it does not.

    Copies of a model hold ``in_copies`` in its place: nothing, or a hook that does nothing.

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
