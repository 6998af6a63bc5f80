"""Differential programming along a solve: Theorem 1, Proposition 2 and matrix-free products."""
