"""Write docs/peers.md; the same as ``python -m benchmarks.peers page``."""

from benchmarks.peers.page import arguments, main

__all__ = ["arguments", "main"]
