"""Preconditioning in the eigenbasis of Kronecker factors, as pure functions."""

from snopt.precondition.eigenbasis import (
    Bases,
    ModeBasis,
    carry_second_moment,
    rotate,
    rotate_back,
    transitions,
)
from snopt.precondition.eigh import robust_eigh
from snopt.precondition.rules import adam, amortized, kronecker_eigenvalues, tikhonov
from snopt.precondition.scaling import graft, kl_scale

__all__ = [
    "Bases",
    "ModeBasis",
    "adam",
    "amortized",
    "carry_second_moment",
    "graft",
    "kl_scale",
    "kronecker_eigenvalues",
    "robust_eigh",
    "rotate",
    "rotate_back",
    "tikhonov",
    "transitions",
]
