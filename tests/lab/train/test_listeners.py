import io
import threading
import time
from dataclasses import replace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from snopt.base.errors import UnknownName
from snopt.lab.train import (
    PlainProgress,
    RichProgress,
    RunFolderError,
    TensorBoard,
    progress,
    train,
)
from tests.lab.train.problems import CONFIG, Moons, crash_at, interrupt_at, make_parts


def test_plain_progress_writes_lines(tmp_path):
    stream = io.StringIO()
    listener = PlainProgress(stream, every=0.0)
    train(Moons(), make_parts("adam"), CONFIG, tmp_path, listeners=[listener])
    lines = stream.getvalue().splitlines()
    assert sum("valid loss" in line for line in lines) == 4
    assert any("7/12" in line and "NFE" in line for line in lines)
    assert lines[-1].startswith("finished at iteration 12 of 12")


def test_plain_progress_says_that_a_run_is_resumed_and_how_it_stopped(tmp_path):
    stream = io.StringIO()
    listeners = [PlainProgress(stream), interrupt_at(6)]
    train(Moons(), make_parts("adam"), CONFIG, tmp_path, listeners=listeners)
    assert f"--resume {tmp_path}" in stream.getvalue()
    train(Moons(), make_parts("adam"), CONFIG, tmp_path, resume=True, listeners=listeners[:1])
    assert "resumed from iteration 6" in stream.getvalue()


def test_rich_progress_draws_and_lets_go_of_the_terminal(tmp_path, capsys):
    train(Moons(), make_parts("adam"), CONFIG, tmp_path / "a", listeners=[RichProgress()])
    said = capsys.readouterr().err
    assert "12/12" in said
    assert "accuracy" in said
    assert "finished" in said
    listeners, before = [RichProgress(), crash_at(3)], set(threading.enumerate())
    with pytest.raises(RuntimeError, match="a crash"):
        train(Moons(), make_parts("adam"), CONFIG, tmp_path / "b", listeners=listeners)
    for thread in set(threading.enumerate()) - before:  # the one that redraws the bar ends
        if not thread.name.startswith("Dummy"):  # torch's own
            thread.join(timeout=10)
            assert not thread.is_alive()


def test_progress_is_chosen_by_name(capsys):
    assert progress("quiet") == []
    assert isinstance(progress("plain")[0], PlainProgress)
    assert isinstance(progress("auto")[0], PlainProgress)  # no terminal here
    with pytest.raises(UnknownName, match="did you mean 'plain'"):
        progress("plane")


def test_tensorboard_gets_the_numbers(tmp_path):
    board = TensorBoard(tmp_path / "board")
    train(Moons(), make_parts("adam"), CONFIG, tmp_path / "run", listeners=[board])
    found = EventAccumulator(str(tmp_path / "board"))
    found.Reload()
    scalars = found.Tags()["scalars"]
    assert {"train/loss", "train/horizon/0", "valid/accuracy", "test/loss"} <= set(scalars)
    assert [e.step for e in found.Scalars("train/loss")] == list(range(1, 13))


def losses(folder):
    found = EventAccumulator(str(folder))
    found.Reload()
    return [e.step for e in found.Scalars("train/loss")]


def test_tensorboard_has_every_step_once_after_a_crash_and_after_overwriting(tmp_path):
    run, board = tmp_path / "run", tmp_path / "board"
    with pytest.raises(RuntimeError, match="a crash"):
        train(
            Moons(), make_parts("adam"), CONFIG, run, listeners=[TensorBoard(board), crash_at(11)]
        )
    train(Moons(), make_parts("adam"), CONFIG, run, resume=True, listeners=[TensorBoard(board)])
    assert losses(board) == list(range(1, 13))
    short = replace(CONFIG, iterations=3)
    train(Moons(), make_parts("adam"), short, run, overwrite=True, listeners=[TensorBoard(board)])
    assert losses(board) == [1, 2, 3]


def test_tensorboard_writes_nothing_for_a_run_that_is_refused(tmp_path):
    train(Moons(), make_parts("adam"), CONFIG, tmp_path)
    board = tmp_path / "tensorboard"
    with pytest.raises(RunFolderError, match="already holds a run"):
        train(Moons(), make_parts("adam"), CONFIG, tmp_path, listeners=[TensorBoard(board)])
    assert not board.exists()


def test_bar_costs_next_to_nothing_an_iteration():
    bar = RichProgress()
    bar.on_start(1000, CONFIG)
    record = {"kind": "step", "loss": 0.5, "nfe_forward": 14, "nfe_backward": 12}
    begun = time.process_time()
    for i in range(1000):
        bar.on_record({**record, "iteration": i})
    bar.on_end(None)
    assert time.process_time() - begun < 1.0
