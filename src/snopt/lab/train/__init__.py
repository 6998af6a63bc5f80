"""A training loop with run folders, checkpoints, exact resume and torchrun."""

from snopt.lab.train.checkpoint import load_checkpoint
from snopt.lab.train.folder import FolderInUse, RunFolderError
from snopt.lab.train.listeners import (
    CSV,
    MLflow,
    PlainProgress,
    RichProgress,
    TensorBoard,
    WandB,
    progress,
)
from snopt.lab.train.parallel import World, join
from snopt.lab.train.record import read_records
from snopt.lab.train.run import train
from snopt.lab.train.seeding import seed_all
from snopt.lab.train.task import Examples, Listener, Outcome, Parts, Status, Task, TrainConfig

__all__ = [
    "train", "Task", "Parts", "TrainConfig", "Outcome", "Status", "Examples",
    "seed_all", "join", "World",
    "load_checkpoint", "read_records", "RunFolderError", "FolderInUse",
    "Listener", "progress", "PlainProgress", "RichProgress",
    "CSV", "TensorBoard", "WandB", "MLflow",
]  # fmt: skip
