"""Kronecker curvature: views of layers, recorded calls, and factors along the path."""

from snopt.kronecker.calls import Call, Tap, recorded_calls
from snopt.kronecker.composite import composite_of
from snopt.kronecker.conv import ConvForm, ConvView
from snopt.kronecker.factors import LayerFactors
from snopt.kronecker.linear import LinearView
from snopt.kronecker.options import KroneckerOptions
from snopt.kronecker.recorder import FieldObserver, KroneckerRecorder
from snopt.kronecker.recording import Recording
from snopt.kronecker.registry import (
    VIEWS,
    check_view,
    is_covered,
    matrices_of,
    register_layer,
    view_of,
)
from snopt.kronecker.sampling import Seen
from snopt.kronecker.sums import IterationSums, Slot
from snopt.kronecker.view import LayerView

__all__ = [
    "VIEWS",
    "Call",
    "ConvForm",
    "ConvView",
    "FieldObserver",
    "IterationSums",
    "KroneckerOptions",
    "KroneckerRecorder",
    "LayerFactors",
    "LayerView",
    "LinearView",
    "Recording",
    "Seen",
    "Slot",
    "Tap",
    "check_view",
    "composite_of",
    "is_covered",
    "matrices_of",
    "recorded_calls",
    "register_layer",
    "view_of",
]
