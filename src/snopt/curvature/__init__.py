"""Second-order information along a solve."""

from snopt.curvature.factors import LayerFactors
from snopt.curvature.kronecker import FieldObserver, KroneckerRecorder, Slot
from snopt.curvature.options import KroneckerOptions

__all__ = ["FieldObserver", "KroneckerOptions", "KroneckerRecorder", "LayerFactors", "Slot"]
