"""The page: from all records, from a part of them, and from its own folder alone."""

import json
import shutil

import pytest

from snopt.lab.paper.items import ITEMS
from snopt.lab.paper.page import read_result, write_page
from tests.lab.paper.fake_runs import pretend_all, pretend_comparison


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A page after two data sets, one of them with one seed, and an item that is half done."""
    root = tmp_path_factory.mktemp("page")
    space = pretend_comparison(root / "out", ("circle",))
    pretend_comparison(root / "out", ("mnist",), seeds=1, failing=("lr0.1",))
    pretend_all(job for job in ITEMS["fixed-t1"].jobs(space) if "t1=0.5" in job.folder.name)
    return space, write_page(space, root / "results.md")


def test_a_page_of_a_part_of_the_runs_says_what_is_missing(made):
    text = made[1].read_text()
    assert (
        text.index("| Circle, nats |") < text.index("of 1 data sets") < text.index("headline.png")
    )
    assert "(1 of 3 seeds)" in text
    assert "Not run yet: SVHN, CIFAR10, SpoAD, ArtWR, CharT, Gas, Miniboone." in text
    headings = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        "Test performance",
        "Convergence by CPU seconds and by updates",
        "Sensitivity to the learning rate",
        "Accuracy and time for fixed integration times",
        "Optimizers beyond the paper's",
    ]
    assert text.count("| Gas |") == 0


def test_a_page_is_made_again_without_the_run_folders(made, tmp_path):
    space, page = made
    shutil.copytree(page.with_suffix(""), tmp_path / "results")
    for figure in (tmp_path / "results").glob("*.png"):
        figure.unlink()
    again = write_page(type(space)(tmp_path / "nothing", "cpu"), tmp_path / "results.md")
    assert again.read_text() == page.read_text()
    for figure in page.with_suffix("").glob("*.png"):
        assert (tmp_path / "results" / figure.name).exists()


def test_a_rate_that_failed_has_no_accuracy(made):
    clouds = read_result(made[1].with_suffix("") / "point-cloud.json")
    rates = {point["lr"]: point["accuracy"] for point in clouds.curves["MNIST"]["SGD"]}
    assert [lr for lr, accuracy in rates.items() if accuracy is None] == [0.1]
    (failed,) = (row[3] for row in clouds.tables[0].rows if row[:2] == ["MNIST", "SGD"])
    assert failed == "1"


def test_the_runs_of_the_main_comparison_are_kept_in_short(made):
    compared = read_result(made[1].with_suffix("") / "accu.json").curves
    adam = compared["Circle"]["Adam"]
    assert [run["seed"] for run in adam["runs"]] == [0, 1, 2]
    for run in adam["runs"]:
        assert set(run["stamp"]) == {"code", "settings"}
        assert len(run["valid"]) == len(run["seconds"]) <= 60
        assert run["test"] == pytest.approx(run["valid"][-1], rel=1e-4)
    convergence = json.loads((made[1].with_suffix("") / "convergence.json").read_text())
    assert len(convergence["curves"]["Circle"]["Adam"]["training loss"]["mean"]) <= 60
