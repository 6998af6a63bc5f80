"""The ODE engine: time, evaluations of the field, gradient error and memory.

``measure`` compares with torchdiffeq on four workloads or, told ``--against SRC``, with another
source tree of this package in one interleaved run; ``memory`` lets the number of steps grow;
``series`` times a whole iteration of the ODE-RNN; ``choosing`` asks what an adjoint, a method and a
tolerance buy; ``page`` draws the figures and writes the tables of docs/benchmarks.md.
"""

COMMANDS = ("measure", "memory", "series", "choosing", "page")
