"""Measurements, in four groups that each run as a module; results are JSON files in ``results``.

    python -m benchmarks.engine       the ODE engine: against torchdiffeq, or another source tree
    python -m benchmarks.optimizer    SNOpt: what it learns, what it costs
    python -m benchmarks.peers        other libraries, in their own environment
    python -m benchmarks.theory       the figures and tables of docs/theory

Every group has several commands; ``--help`` lists them.
"""
