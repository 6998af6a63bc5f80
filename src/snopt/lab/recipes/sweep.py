"""Hyperparameter search: trials in a shared Optuna study that several processes can join.

All trials are queued first, each with its point of the grid, or without one if the sampler
chooses. (Two workers can draw the same point from Optuna's ``GridSampler``.)

A process locks a folder for each trial that it runs. The operating system releases the lock when
the process dies, and another process queues the trial again at its point. So all processes of a
sweep need the same folder.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from filelock import FileLock

from snopt.base.errors import InvalidOption
from snopt.lab.config import Experiment
from snopt.lab.optimizers import grid
from snopt.lab.recipes.run import Run, Watch
from snopt.lab.recipes.settings import from_dict
from snopt.lab.train.folder import FolderLock, in_use
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
    """

    base: Experiment
    out: Path
    search: Literal["grid", "tpe"] = "grid"
    trials: int | None = None
    storage: str | None = None

    def __post_init__(self) -> None:
        at_least(self, trials=1)

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
    """Create the study and queue its trials, or join an existing one.

    Raises:
        ValueError: the study was started with other settings, or in another folder.
    """
    optuna = _optuna()
    config.out.mkdir(parents=True, exist_ok=True)
    with FileLock(config.out / "queue.lock"):
        study: Study = optuna.create_study(
            storage=_storage(config),
            study_name=config.name,
            sampler=optuna.samplers.TPESampler(constant_liar=True),
            direction="maximize" if config.base.mode == "max" else "minimize",
            load_if_exists=True,
        )
        _check_same(config, study)
        plan = config.plan()
        for index in range(len(_latest(study)), len(plan)):
            study.enqueue_trial(plan[index], user_attrs={"plan": index})
    return study


def _check_same(config: SweepConfig, study: Study) -> None:
    """Refuse to join a study of other settings or of another folder; label a new one."""
    theirs, mark = study.user_attrs.get("experiment"), config.out / "study.id"
    if theirs is not None and from_dict(Experiment, theirs) != config.base:
        raise ValueError(
            f"the study {study.study_name!r} in {config.url} was started with other settings; "
            "use the same ones to join it, or another --out or --storage for a new sweep."
        )
    if "folder" not in study.user_attrs:
        mark.write_text(uuid4().hex)
        study.set_user_attr("folder", mark.read_text())
        study.set_user_attr("experiment", asdict(config.base))
    if not mark.exists() or mark.read_text() != study.user_attrs["folder"]:
        raise ValueError(
            f"the study {study.study_name!r} in {config.url} was started in another folder; give "
            "--out that folder, which all processes of a sweep share."
        )


def _storage(config: SweepConfig) -> RDBStorage:
    """Open the database."""
    from optuna.storages import RDBStorage
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        make_url(config.url).get_dialect()
    except ArgumentError as error:
        raise InvalidOption(f"storage {config.url!r} is not a database URL: {error}.") from error
    # SQLite allows one writer at a time; the others wait instead of failing.
    waiting = {"connect_args": {"timeout": 60}} if "sqlite" in config.url else None
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
    while True:
        with FileLock(config.out / "queue.lock"):
            _requeue(config, study)
            states = tally(study)
            if states["WAITING"]:
                trial = study.ask()
                alive = FolderLock(_lock_folder(config, trial.user_attrs["plan"]))
                alive.acquire()
        if states["WAITING"]:
            try:
                _attempt(config, study, trial, watch)
            finally:
                alive.release()
        elif states["RUNNING"]:
            time.sleep(1.0)
        else:
            return


def _lock_folder(config: SweepConfig, plan: int) -> Path:
    """Return the folder that the process of a trial locks."""
    folder = config.out / "locks" / f"{plan:03d}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _requeue(config: SweepConfig, study: Study) -> None:
    """Queue again the trials that were interrupted, or whose process died not too often."""
    for plan, trial in _latest(study).items():
        if trial.state.name == "RUNNING" and not in_use(_lock_folder(config, plan)):
            with suppress(ValueError):  # It has ended meanwhile.
                study.tell(trial.number, state=_optuna().trial.TrialState.FAIL)
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


def _attempt(config: SweepConfig, study: Study, trial: Trial, watch: Watch) -> None:
    """Run one trial and record how it ended."""
    failed = _optuna().trial.TrialState.FAIL
    try:
        best = _objective(config, watch, trial)
    except KeyboardInterrupt:
        trial.set_user_attr("interrupted", True)
        study.tell(trial, state=failed)
        raise
    except Exception as error:  # noqa: BLE001
        if "note" not in trial.user_attrs:
            trial.set_user_attr("note", f"{type(error).__name__}: {error}")
        study.tell(trial, state=failed)
    else:
        study.tell(trial, best)


def _objective(config: SweepConfig, watch: Watch, trial: Trial) -> float:
    """Run one trial; return the best validation metric."""
    folder = config.out / f"trial-{trial.user_attrs['plan']:03d}"
    trial.set_user_attr("folder", str(folder))
    outcome = Run(suggested(config, trial), folder).finish(watch)
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
