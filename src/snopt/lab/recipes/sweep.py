"""Hyperparameter search: trials in a shared Optuna study that several processes can join.

All trials are queued first, each with its point of the grid, or without one if the sampler
chooses. (Two workers can draw the same point from Optuna's ``GridSampler``.)

While a trial runs, its process increments a counter in the study. A process whose counter stops and
that does not hold the lock of its run folder is dead, and its trial is queued again at its point.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from filelock import FileLock

from snopt.base.errors import InvalidOption
from snopt.lab.config import Experiment
from snopt.lab.optimizers import grid
from snopt.lab.recipes.run import Run, Watch
from snopt.lab.recipes.settings import from_dict
from snopt.lab.train import FolderInUse
from snopt.lab.train.folder import in_use
from snopt.lab.train.task import at_least

if TYPE_CHECKING:
    from optuna import Study
    from optuna.storages import RDBStorage
    from optuna.trial import FrozenTrial, Trial

#: Retries of a trial whose process died, because the trial may be the cause. Ctrl-C does not count.
RETRIES = 2


@dataclass(frozen=True)
class SweepConfig:
    """What is searched, and where the study is stored.

    Attributes:
        base: the experiment whose learning rate and weight decay are varied.
        out: parent of the trials' run folders.
        search: the paper's ``"grid"``, or Optuna's ``"tpe"`` sampler.
        trials: number of trials; default the whole grid, or 30 for ``"tpe"``.
        storage: URL of the study's database; default an SQLite file in ``out``.
        heartbeat: seconds between heartbeats. A process without one for twice as long counts as
            dead, unless its run folder is locked.
    """

    base: Experiment
    out: Path
    search: Literal["grid", "tpe"] = "grid"
    trials: int | None = None
    storage: str | None = None
    heartbeat: int = 30

    def __post_init__(self) -> None:
        at_least(self, trials=1, heartbeat=1)

    @property
    def name(self) -> str:
        """Name of the study; sweeps of one storage with the same name are one sweep."""
        base = self.base
        return f"{base.task}-{base.optimizer.name}-{base.scale}-{self.search}"

    @property
    def url(self) -> str:
        """URL of the study's database."""
        return self.storage or f"sqlite:///{(self.out / 'study.db').absolute()}"

    def plan(self) -> list[dict[str, float]]:
        """Return the points to try; the sampler chooses an empty one."""
        if self.search == "tpe":
            return [{} for _ in range(self.trials or 30)]
        points = grid(self.base.optimizer.name)
        return [points[i] for i in spread(len(points))][: self.trials]


def spread(count: int) -> list[int]:
    """Return the numbers below ``count`` in an order whose beginnings cover the whole range.

    Example:
        >>> spread(9)
        [0, 8, 4, 2, 6, 1, 5, 3, 7]
    """
    bits = count.bit_length()
    return sorted(range(count), key=lambda i: f"{i:0{bits}b}"[::-1])


def open_study(config: SweepConfig) -> Study:
    """Create the study and queue its trials, or join an existing one."""
    optuna = _optuna()
    config.out.mkdir(parents=True, exist_ok=True)
    options = {
        "storage": _storage(config),
        "study_name": config.name,
        "sampler": optuna.samplers.TPESampler(constant_liar=True),
    }
    try:
        direction = "maximize" if config.base.mode == "max" else "minimize"
        study: Study = optuna.create_study(direction=direction, **options)
    except optuna.exceptions.DuplicatedStudyError:
        study = optuna.load_study(**options)
        _await_plan(study, config)
    study.set_user_attr("experiment", asdict(config.base))
    # Add the trials that the creator of the study has not queued.
    plan = config.plan()
    for index in range(len(_latest(study)), len(plan)):
        study.enqueue_trial(plan[index], user_attrs={"plan": index})
    study.set_user_attr("planned", len(plan))
    return study


def _await_plan(study: Study, config: SweepConfig) -> None:
    """Wait until the process that created the study has queued its trials; it may have died."""
    until = time.monotonic() + 2 * config.heartbeat
    while "planned" not in study.user_attrs and time.monotonic() < until:
        time.sleep(0.2)
    theirs = study.user_attrs.get("experiment")
    if theirs is not None and from_dict(Experiment, theirs) != config.base:
        raise ValueError(
            f"the study {study.study_name!r} in {config.url} was started with other settings; "
            "use the same ones to join it, or another --out or --storage for a new sweep."
        )


def _storage(config: SweepConfig) -> RDBStorage:
    """Open the database. Processes that create its tables at the same time may fail; try again."""
    from optuna.storages import RDBStorage
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError, DBAPIError

    try:
        make_url(config.url).get_dialect()
    except ArgumentError as error:
        raise InvalidOption(f"storage {config.url!r} is not a database URL: {error}.") from error
    # SQLite allows one writer at a time; the others wait instead of failing.
    waiting = {"connect_args": {"timeout": 60}} if "sqlite" in config.url else None
    for pause in (0.2, 0.5, 1.0, 2.0):
        with suppress(DBAPIError):
            return RDBStorage(config.url, engine_kwargs=waiting)
        time.sleep(pause)
    return RDBStorage(config.url, engine_kwargs=waiting)


def work(config: SweepConfig, study: Study, watch: Watch = lambda *_: ()) -> None:
    """Run trials of the study until all are done.

    When none is left but other processes are still running theirs, wait, to retry the trial of a
    process that dies.

    Args:
        config: the sweep.
        study: from :func:`open_study`.
        watch: makes the listeners of each trial.
    """
    seen: Seen = {}
    while True:
        with FileLock(config.out / "queue.lock"):
            _fail_dead(config, study, seen)
            _requeue(config, study)
            states = tally(study)
            trial = study.ask() if states["WAITING"] else None
        if trial is not None:
            _attempt(config, study, trial, watch)
        elif states["RUNNING"]:
            time.sleep(min(1.0, config.heartbeat))
        else:
            return


# The latest heartbeat of a trial, and when this process first saw it.
Seen: TypeAlias = dict[int, tuple[object, float]]


def _fail_dead(config: SweepConfig, study: Study, seen: Seen) -> None:
    """Mark the trials of dead processes as failed."""
    for plan, trial in _latest(study).items():
        if trial.state.name != "RUNNING":
            continue
        beat = trial.user_attrs.get("beat")
        if trial.number not in seen or seen[trial.number][0] != beat:
            seen[trial.number] = (beat, time.monotonic())
        silent = time.monotonic() - seen[trial.number][1] > 2 * config.heartbeat
        if (silent or _died_here(trial)) and not in_use(_folder(config, plan)):
            _tell(study, trial.number, state=_optuna().trial.TrialState.FAIL)


def _died_here(trial: FrozenTrial) -> bool:
    """Tell whether a trial's process ran on this machine and has ended."""
    host, _, pid = str(trial.user_attrs.get("process", "")).rpartition(":")
    if host != socket.gethostname():
        return False
    try:
        os.kill(int(pid), 0)
    except (OSError, ValueError) as error:
        return isinstance(error, ProcessLookupError)
    return False


def _requeue(config: SweepConfig, study: Study) -> None:
    """Queue again the trials that were interrupted, or whose process died not too often."""
    points = config.plan()
    for plan, trial in _latest(study).items():
        if trial.state.name != "FAIL" or "note" in trial.user_attrs:
            continue
        crashed = "interrupted" not in trial.user_attrs
        crashes = trial.user_attrs.get("crashes", 0) + crashed
        if crashes <= RETRIES:
            # A process that is killed between two draws leaves part of its point.
            point = (points[plan] if plan < len(points) else {}) or trial.params
            study.enqueue_trial(point, user_attrs={"plan": plan, "crashes": crashes})


def _tell(study: Study, trial: Trial | int, *args: Any, **values: Any) -> None:
    """Record how a trial ended, unless another process has done so."""
    with suppress(ValueError, _optuna().exceptions.UpdateFinishedTrialError):
        study.tell(trial, *args, **values)


def _folder(config: SweepConfig, plan: int) -> Path:
    return config.out / f"trial-{plan:03d}"


def _attempt(config: SweepConfig, study: Study, trial: Trial, watch: Watch) -> None:
    """Run one trial and record how it ended."""
    states = _optuna().trial.TrialState
    if "plan" not in trial.user_attrs:  # Another process took the last trial first.
        _tell(study, trial, state=states.PRUNED)
        return
    try:
        with _heartbeat(trial, config.heartbeat):
            best = _objective(config, watch, trial)
    except KeyboardInterrupt:
        _note(trial, "interrupted", True)
        _tell(study, trial, state=states.FAIL)
        with FileLock(config.out / "queue.lock"):
            _requeue(config, study)
        raise
    except Exception as error:  # noqa: BLE001
        if "note" not in trial.user_attrs:
            _note(trial, "note", f"{type(error).__name__}: {error}")
        _tell(study, trial, state=states.FAIL)
    else:
        _tell(study, trial, best)


def _note(trial: Trial, name: str, value: object) -> None:
    """Set an attribute of a trial, unless another process has ended the trial."""
    with suppress(_optuna().exceptions.UpdateFinishedTrialError):
        trial.set_user_attr(name, value)


@contextmanager
def _heartbeat(trial: Trial, every: float) -> Iterator[None]:
    """Increment the counter of a trial while the process runs it."""
    done = threading.Event()
    trial.set_user_attr("process", f"{socket.gethostname()}:{os.getpid()}")

    def count() -> None:
        beat = 0
        while not done.wait(every):
            beat += 1
            with suppress(Exception):  # The next one may succeed.
                trial.set_user_attr("beat", beat)

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _objective(config: SweepConfig, watch: Watch, trial: Trial) -> float:
    """Run one trial; return the best validation metric."""
    folder = _folder(config, trial.user_attrs["plan"])
    trial.set_user_attr("folder", str(folder))
    run = Run(suggested(config, trial), folder)
    while True:
        try:
            outcome = run.finish(watch)
            break
        except FolderInUse:
            # A process that was taken for dead still runs the same trial; wait for its record.
            time.sleep(1.0)
    if outcome.status == "interrupted":
        raise KeyboardInterrupt
    trial.set_user_attr("note", outcome.message)
    if outcome.status == "diverged" or outcome.best is None:
        raise RuntimeError(f"{outcome.status}: {outcome.message}")
    return outcome.best


def suggested(config: SweepConfig, trial: Trial) -> Experiment:
    """Return the experiment with the settings of a trial.

    Validation examples are always held out, because they select the best trial.
    """
    base = config.base
    points = grid(base.optimizer.name)
    rates = [point["lr"] for point in points]
    decays = sorted({point["weight_decay"] for point in points})
    optimizer = replace(
        base.optimizer,
        lr=trial.suggest_float("lr", min(rates), max(rates), log=True),
        weight_decay=trial.suggest_categorical("weight_decay", decays),
    )
    return replace(base, data=replace(base.data, hold_out=True), optimizer=optimizer)


def tally(study: Study) -> Counter[str]:
    """Count the planned trials by state: COMPLETE, FAIL, RUNNING or WAITING."""
    return Counter(trial.state.name for trial in _latest(study).values())


def results(study: Study) -> list[FrozenTrial]:
    """Return the planned trials, the best first, failed ones last."""
    sign = -1.0 if study.direction.name == "MAXIMIZE" else 1.0
    trials = _latest(study).values()
    return sorted(trials, key=lambda trial: math.inf if trial.value is None else sign * trial.value)


def note(trial: FrozenTrial) -> str:
    """Return the first line of why a trial failed."""
    reason: str = trial.user_attrs.get("note", "its process died")
    return reason.splitlines()[0]


def _latest(study: Study) -> dict[int, FrozenTrial]:
    """Return the attempt that counts for each planned trial: a complete one, else the latest."""
    found: dict[int, FrozenTrial] = {}
    for trial in study.trials:
        plan = trial.user_attrs.get("plan")
        if plan is not None and (plan not in found or found[plan].state.name != "COMPLETE"):
            found[plan] = trial
    return found


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ImportError("a sweep needs Optuna: pip install 'snopt[lab]'") from error
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    return optuna
