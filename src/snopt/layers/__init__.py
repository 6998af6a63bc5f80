"""Layers seen through one canonical layout, and the recording of their calls."""

from snopt.layers.conv import ConvForm, ConvView
from snopt.layers.linear import LinearView
from snopt.layers.recording import Call, Tap, preserving, recording
from snopt.layers.registry import is_covered, view_of
from snopt.layers.view import LayerView

__all__ = [
    "Call",
    "ConvForm",
    "ConvView",
    "LayerView",
    "LinearView",
    "Tap",
    "is_covered",
    "preserving",
    "recording",
    "view_of",
]
