"""Kronecker curvature: what a layer is, the recording of its calls, and factors along the path."""

from snopt.kronecker.conv import ConvForm, ConvView
from snopt.kronecker.factors import LayerFactors
from snopt.kronecker.linear import LinearView
from snopt.kronecker.options import KroneckerOptions
from snopt.kronecker.recorder import FieldObserver, KroneckerRecorder, Slot
from snopt.kronecker.recording import Call, Tap, recording
from snopt.kronecker.registry import VIEWS, check_view, is_covered, register_layer, view_of
from snopt.kronecker.view import LayerView

__all__ = [
    "VIEWS",
    "Call",
    "ConvForm",
    "ConvView",
    "FieldObserver",
    "KroneckerOptions",
    "KroneckerRecorder",
    "LayerFactors",
    "LayerView",
    "LinearView",
    "Slot",
    "Tap",
    "check_view",
    "is_covered",
    "recording",
    "register_layer",
    "view_of",
]
