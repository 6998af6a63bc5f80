"""Ctrl-C and SIGTERM as a polite request."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Interruption"]


class Interruption:
    """Remembers that the user, or a scheduler, asked the run to stop.

    The first SIGINT or SIGTERM sets :attr:`requested`; the loop then finishes its step and saves.
    A second one ends the process in the usual way. Outside the main thread, where Python allows
    no handlers, signals keep their usual meaning.

    Attributes:
        requested: The name of the signal that came, None if none did.

    Example:
        >>> with Interruption() as interruption:
        ...     signal.raise_signal(signal.SIGTERM)
        ...     interruption.requested
        'SIGTERM'
    """

    def __init__(self) -> None:
        self.requested: str | None = None
        self._usual: dict[signal.Signals, Any] = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.requested = signal.Signals(number).name
        self._restore()

    def _restore(self) -> None:
        for which, handler in self._usual.items():
            signal.signal(which, handler)
        self._usual = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for which in (signal.SIGINT, signal.SIGTERM):
                self._usual[which] = signal.signal(which, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()
