"""The ODE engine: time, evaluations of the field, gradient error and memory.

``measure`` compares with torchdiffeq on four workloads or, with ``--against SRC``, with another
source tree of this package in one interleaved run; ``limit`` divides by the time of the bare
evaluations of the field; ``tradeoff`` compares speed and memory of ``keep`` and the adjoints;
``memory`` increases the number of steps; ``choosing`` compares adjoints, methods and tolerances.
``python -m benchmarks.peers page`` writes docs/peers.md.
"""

COMMANDS = ("measure", "limit", "tradeoff", "memory", "choosing")
