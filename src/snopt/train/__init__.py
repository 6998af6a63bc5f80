"""Train a model on a task and keep a record of it: one loop, run folders, resume, torchrun."""

from snopt.train.checkpoint import load_checkpoint
from snopt.train.folder import RunFolderError
from snopt.train.listeners import PlainProgress, RichProgress, TensorBoard, progress
from snopt.train.lock import FolderInUse
from snopt.train.loop import train
from snopt.train.parallel import World, join
from snopt.train.record import read_records
from snopt.train.seeding import seed_all
from snopt.train.task import Examples, Listener, Outcome, Parts, Status, Task, TrainConfig

__all__ = [
    "train",
    "Task",
    "Parts",
    "TrainConfig",
    "Outcome",
    "Status",
    "Examples",
    "seed_all",
    "join",
    "World",
    "load_checkpoint",
    "read_records",
    "RunFolderError",
    "FolderInUse",
    "Listener",
    "progress",
    "PlainProgress",
    "RichProgress",
    "TensorBoard",
]
