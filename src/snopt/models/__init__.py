"""Ready-made fields and models: images, time series, densities.

They are ordinary modules and work with any optimizer.
"""

from snopt.models.cnf import CNF
from snopt.models.divergence import draw_noise, estimated, exact
from snopt.models.fields import (
    ConcatSquashField,
    ConcatSquashLinear,
    ConvField,
    HyperField,
    TanhField,
)
from snopt.models.image import ImageClassifier
from snopt.models.ode_rnn import ODERNN
from snopt.models.regularity import Regularity, regularity
from snopt.models.residual import ResidualClassifier

__all__ = [
    "CNF",
    "ConcatSquashField",
    "ConcatSquashLinear",
    "ConvField",
    "HyperField",
    "ImageClassifier",
    "ODERNN",
    "Regularity",
    "ResidualClassifier",
    "TanhField",
    "draw_noise",
    "estimated",
    "exact",
    "regularity",
]
