"""A search for settings: trials in a shared Optuna study that several processes can join.

All trials of the sweep are queued first, each with its point of the grid, or without one where the
sampler chooses. Workers then take trials until none is left. (Optuna's ``GridSampler`` does not
reserve points: two workers can draw the same one, and at the end of the grid they do.) A trial
that fails is recorded with its reason, and the sweep goes on. While a trial runs, its process
writes heartbeats; when they stop, Optuna's retry callback queues the trial again, and it continues
from its last checkpoint.
"""

from __future__ import annotations

import math
import os
import socket
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from snopt.lab.config import Experiment
from snopt.lab.optimizers import grid
from snopt.lab.recipes.run import Run, Watch
from snopt.lab.recipes.settings import from_dict

if TYPE_CHECKING:
    from optuna import Study
    from optuna.storages import RDBStorage
    from optuna.trial import FrozenTrial, Trial

__all__ = ["Result", "SweepConfig", "Tally", "open_study", "results", "tally", "work"]

RETRIES = 2
"""How often a trial is retried whose process died: the trial may be the cause."""


@dataclass(frozen=True)
class SweepConfig:
    """What is searched, and where the study is kept.

    Attributes:
        base: the experiment whose learning rate and weight decay are varied.
        out: folder of the trials' run folders, and of the default study.
        search: the paper's ``"grid"``, or ``"tpe"``: Optuna's sampler chooses.
        trials: how many; all of the grid if not given, and 30 for ``"tpe"``.
        storage: address of the study's database; an SQLite file in ``out`` if not given.
        heartbeat: seconds between heartbeats; a process without one for twice as long counts as
            dead.
    """

    base: Experiment
    out: Path
    search: Literal["grid", "tpe"] = "grid"
    trials: int | None = None
    storage: str | None = None
    heartbeat: int = 30

    def __post_init__(self) -> None:
        for name in ("trials", "heartbeat"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1.")

    @property
    def name(self) -> str:
        """The study's name: sweeps of one storage with the same name are one sweep."""
        base = self.base
        return f"{base.task}-{base.optimizer.name}-{base.scale}-{self.search}"

    @property
    def url(self) -> str:
        """Address of the study's database."""
        return self.storage or f"sqlite:///{(self.out / 'study.db').absolute()}"

    def plan(self) -> list[dict[str, float]]:
        """List the points to try; an empty one is for the sampler to choose."""
        if self.search == "tpe":
            return [{} for _ in range(self.trials or 30)]
        points = grid(self.base.optimizer.name)
        return points[: self.trials]


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
    # Trials that the creator of the study did not get to are added here.
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
    # JSON has turned tuples into lists; compare what both would be made of.
    theirs = study.user_attrs.get("experiment")
    if theirs is not None and from_dict(Experiment, theirs) != config.base:
        raise ValueError(
            f"the study {study.study_name!r} in {config.url} was started with other settings; "
            "use the same ones to join it, or another --out or --storage for a new sweep"
        )


def _storage(config: SweepConfig) -> RDBStorage:
    """Open the database; processes that make its tables at the same moment get out of step."""
    from sqlalchemy.exc import DBAPIError

    for pause in (0.2, 0.5, 1.0, 2.0):
        try:
            return _open_storage(config)
        except DBAPIError:
            time.sleep(pause)
    return _open_storage(config)


def _open_storage(config: SweepConfig) -> RDBStorage:
    from optuna.storages import RDBStorage

    with warnings.catch_warnings():
        # Optuna calls heartbeats an experimental feature.
        warnings.simplefilter("ignore")
        return RDBStorage(
            config.url,
            # SQLite allows one writer at a time; the others wait instead of failing.
            engine_kwargs={"connect_args": {"timeout": 60}} if "sqlite" in config.url else None,
            heartbeat_interval=config.heartbeat,
            heartbeat_stale_trial_callback=_retry(),
        )


def _retry() -> Callable[[Study, FrozenTrial], None]:
    """Make the callback that queues the trial of a dead process again."""
    from optuna.storages import RetryHeartbeatStaleTrialCallback

    callback: Callable[[Study, FrozenTrial], None] = RetryHeartbeatStaleTrialCallback(RETRIES)
    return callback


def work(config: SweepConfig, study: Study, watch: Watch = lambda *_: ()) -> None:
    """Take trials from the study until all are done.

    When none is left but other processes still work, it waits, to retry the trial of a process that
    dies.

    Args:
        config: the sweep.
        study: from :func:`open_study`.
        watch: makes the listeners of each trial.
    """
    while True:
        _retry_dead(config, study)
        count = tally(study)
        if count.waiting:
            study.optimize(partial(_objective, config, watch), n_trials=1, catch=(Exception,))
        elif count.running:
            time.sleep(1.0)
        else:
            return


def _retry_dead(config: SweepConfig, study: Study) -> None:
    """Mark the trials of dead processes as failed, and queue them again."""
    optuna = _optuna()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optuna.storages.fail_stale_trials(study)
        # Optuna overlooks a process that died after it took a trial and before its first heartbeat.
        latest = datetime.now() - timedelta(seconds=2 * config.heartbeat)
        for trial in _latest(study).values():
            began = trial.datetime_start if trial.state.name == "RUNNING" else None
            if began is not None and began < latest and "process" not in trial.user_attrs:
                with suppress(ValueError):  # another worker was faster
                    study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
                    _retry()(study, trial)


def _objective(config: SweepConfig, watch: Watch, trial: Trial) -> float:
    """Run one trial; what it returns is the best validation metric."""
    if "plan" not in trial.user_attrs:
        raise _optuna().TrialPruned("another process took the last trial first")
    folder = config.out / f"trial-{trial.user_attrs['plan']:03d}"
    trial.set_user_attr("folder", str(folder))
    trial.set_user_attr("process", f"{socket.gethostname()}:{os.getpid()}")
    try:
        outcome = Run(suggested(config, trial), folder).finish(watch)
        if outcome.status == "interrupted":
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        trial.set_user_attr("note", "interrupted, and put back into the queue")
        trial.study.enqueue_trial(trial.params, user_attrs={"plan": trial.user_attrs["plan"]})
        raise
    except Exception as error:
        trial.set_user_attr("note", f"{type(error).__name__}: {error}")
        raise
    trial.set_user_attr("note", outcome.message)
    if outcome.status == "diverged" or outcome.best is None:
        raise RuntimeError(f"{outcome.status}: {outcome.message}")
    return outcome.best


def suggested(config: SweepConfig, trial: Trial) -> Experiment:
    """Draw the settings of a trial; those of a grid are fixed beforehand.

    Examples are held out for validation, whatever the experiment says: they are what chooses.
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


@dataclass(frozen=True)
class Tally:
    """How many of the planned trials are in which state; each is counted once.

    Attributes:
        planned: trials of the plan.
        done: ended with a value.
        failed: ended with an error, or lost too often.
        running: being run by some process.
        waiting: not begun.
    """

    planned: int
    done: int
    failed: int
    running: int
    waiting: int


def tally(study: Study) -> Tally:
    """Count the trials of a sweep."""
    states = [trial.state.name for trial in _latest(study).values()]
    return Tally(
        len(states),
        done=states.count("COMPLETE"),
        failed=states.count("FAIL"),
        running=states.count("RUNNING"),
        waiting=states.count("WAITING"),
    )


@dataclass(frozen=True)
class Result:
    """What became of one trial of the plan.

    Attributes:
        settings: what was tried.
        value: the best validation metric; None if it failed.
        state: Optuna's word for it.
        note: how it ended.
        folder: its run folder.
    """

    settings: dict[str, float]
    value: float | None
    state: str
    note: str
    folder: str


def results(study: Study) -> list[Result]:
    """List the planned trials, the best first, failed ones last."""
    sign = -1.0 if study.direction.name == "MAXIMIZE" else 1.0
    rows = [
        Result(
            trial.params,
            trial.value,
            trial.state.name,
            trial.user_attrs.get("note", "lost: its process died"),
            trial.user_attrs.get("folder", ""),
        )
        for trial in _latest(study).values()
    ]
    return sorted(rows, key=lambda row: math.inf if row.value is None else sign * row.value)


def _latest(study: Study) -> dict[int, FrozenTrial]:
    """The latest attempt at each trial of the plan."""
    trials = [trial for trial in study.trials if "plan" in trial.user_attrs]
    return {trial.user_attrs["plan"]: trial for trial in trials}


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ImportError(
            "a sweep is kept by Optuna, which is not installed: pip install 'snopt[lab]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    return optuna
