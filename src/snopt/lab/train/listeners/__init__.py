"""Watching a run: progress on the terminal, TensorBoard."""

from snopt.lab.train.listeners.progress import PlainProgress, RichProgress, progress
from snopt.lab.train.listeners.tensorboard import TensorBoard

__all__ = ["PlainProgress", "RichProgress", "TensorBoard", "progress"]
