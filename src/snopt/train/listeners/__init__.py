"""Watching a run: progress on the terminal, TensorBoard."""

from snopt.train.listeners.progress import PlainProgress, RichProgress, progress
from snopt.train.listeners.tensorboard import TensorBoard

__all__ = ["PlainProgress", "RichProgress", "TensorBoard", "progress"]
