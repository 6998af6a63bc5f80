"""Interleaved rounds in CPU seconds, which also work on a busy machine."""

from __future__ import annotations

import time
from functools import partial

from snopt.lab.paper.timing import interleave, seconds_of

seconds = partial(seconds_of, clock=time.process_time)
"""The CPU seconds of one call."""
rounds = partial(interleave, clock=time.process_time)
"""Time each run once in each round, after some untimed calls of each."""
