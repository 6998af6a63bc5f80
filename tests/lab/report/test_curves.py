import numpy as np
import pytest

from snopt.lab.report.curves import Quantity, band, quantities, table_of
from snopt.lab.report.read import read_runs
from tests.lab.report.fabricate import lines_of, write_run


def table(iterations, seconds, values):
    return np.stack([iterations, seconds, values], axis=1).astype(float)


def test_mean_deviation_and_range_are_those_of_the_seeds():
    grid = np.arange(5)
    seeds = [table(grid, grid * k, grid + 10.0 * k) for k in (1, 2, 6)]
    joined = band(seeds)
    values = np.stack([seed[:, 2] for seed in seeds])
    np.testing.assert_allclose(joined.iteration, grid)
    np.testing.assert_allclose(joined.seconds, grid * 3)
    np.testing.assert_allclose(joined.mean, values.mean(axis=0))
    np.testing.assert_allclose(joined.sd, values.std(axis=0, ddof=1))
    np.testing.assert_allclose(joined.low, values.min(axis=0))
    np.testing.assert_allclose(joined.high, values.max(axis=0))
    assert joined.count.tolist() == [3] * 5


def test_a_band_stays_within_the_range_of_the_seeds():
    accuracies = band([table([0], [0], [v]) for v in (1.0, 1.0, 0.7)])
    assert accuracies.mean[0] + accuracies.sd[0] > 1
    assert accuracies.above.tolist() == [1.0]
    losses = band([table([0], [0], [v]) for v in (1e-3, 1e-3, 1.0)])
    assert losses.mean[0] - losses.sd[0] < 0
    assert losses.below.tolist() == [1e-3]


def test_one_seed_is_itself_without_spread():
    joined = band([table([0, 1], [0, 2], [5, 6])])
    assert joined.mean.tolist() == [5, 6]
    assert joined.seconds.tolist() == [0, 2]
    assert joined.sd.tolist() == [0, 0]


def test_seeds_recorded_at_different_iterations_are_interpolated():
    joined = band([table([0, 4], [0, 4], [0, 4]), table([0, 2, 4], [0, 2, 4], [2, 4, 6])])
    assert joined.iteration.tolist() == [0, 2, 4]
    assert joined.mean.tolist() == [1, 3, 5]


def test_a_seed_that_stopped_is_not_continued_and_time_goes_on():
    slow, fast = table([0, 1], [0, 9], [1, 1]), table([0, 1, 2, 3], [0, 1, 2, 3], [3, 3, 3, 3])
    joined = band([slow, fast])
    assert joined.count.tolist() == [2, 2, 1, 1]
    assert joined.mean.tolist() == [2, 2, 3, 3]
    assert joined.seconds.tolist() == [0, 5, 6, 7]


def test_long_records_are_averaged_in_bins_that_keep_the_mean():
    rng = np.random.default_rng(0)
    iterations = np.arange(1, 10_001)
    noise = rng.normal(size=10_000)
    joined = band([table(iterations, iterations, noise)], limit=100)
    assert len(joined.mean) == 100
    assert joined.mean.mean() == pytest.approx(noise.mean(), abs=1e-3)
    assert joined.mean.std() < 0.2
    assert np.all(np.diff(joined.seconds) > 0)


def test_seeds_of_different_length_share_their_bins():
    tables = [table(np.arange(n), np.arange(n), np.arange(n)) for n in (1000, 500)]
    joined = band(tables, limit=100)
    np.testing.assert_allclose(joined.mean, joined.iteration)
    assert joined.count[0] == 2
    assert joined.count[-1] == 1


def test_numbers_near_overflow_do_not_warn():
    with np.errstate(all="raise"):
        assert band([table([0], [0], [1e308]), table([0], [0], [-1e308])]) is not None


def test_no_record_is_no_curve():
    assert band([]) is None
    assert band([np.empty((0, 3))]) is None


def test_quantities_are_named_and_what_is_not_finite_is_left_out(tmp_path):
    lines = lines_of(iterations=5, horizon=True)
    lines[3]["loss"] = float("nan")
    [run] = read_runs([write_run(tmp_path, lines=lines)])
    names = [str(quantity) for quantity in quantities([run])]
    assert names[:2] == ["training loss", "learning rate"]
    assert {"NFE forward", "memory (MB)", "horizon", "valid loss", "valid accuracy"} <= set(names)
    assert len(table_of(run, Quantity("training", "lr"))) == 5
    assert len(table_of(run, Quantity("training", "loss"))) == 4
