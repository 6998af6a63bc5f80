"""Layers seen through one canonical layout, and the recording of their calls."""

from snopt.layers.conv import ConvForm, ConvView
from snopt.layers.linear import LinearView
from snopt.layers.recording import Call, Tap, preserving, recording, solver
from snopt.layers.registry import VIEWS, check_view, is_covered, register_layer, view_of
from snopt.layers.view import LayerView

__all__ = [
    "VIEWS",
    "Call",
    "ConvForm",
    "ConvView",
    "LayerView",
    "LinearView",
    "Tap",
    "check_view",
    "is_covered",
    "preserving",
    "recording",
    "register_layer",
    "solver",
    "view_of",
]
