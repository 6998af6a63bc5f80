"""How storage grows."""

import torch

from snopt.lab.paper.growth import Size, first_order, proposition_2
from snopt.lab.paper.item import Space
from snopt.lab.paper.items.storage import STORAGE
from snopt.lab.paper.peak import peak_megabytes
from snopt.lab.paper.queue import run_item


def test_the_item_finds_the_papers_powers(tmp_path):
    space = Space(tmp_path, "smoke")
    found = run_item(STORAGE, space, watch=lambda _: [], tell=lambda _: None)
    (table,) = found.tables
    assert table.columns[1:3] == ["m", "m, paper"]
    for _, *cells in table.rows:
        for measured, paper in zip(cells[::2], cells[1::2], strict=True):
            # Two sizes are few: (m + n)² is not m² yet.
            assert measured is None or abs(float(measured) - float(paper)) < 0.3
    assert table.rows[0][1] > "1.5" > table.rows[1][1]
    assert (space.output("memory-comp") / "figure.png").exists()


def test_what_was_freed_does_not_count():
    def several():
        for _ in range(5):
            torch.ones(2**18)

    assert peak_megabytes(several) == 1.0


def test_a_view_is_not_counted_again():
    assert peak_megabytes(lambda: torch.ones(2**18).reshape(2, -1).mT) == 1.0


def test_rank_costs_proposition_2_and_depth_costs_the_adjoint_nothing():
    low, high = (peak_megabytes(lambda R=R: proposition_2(Size(32, 4, R, 2))) for R in (4, 16))
    assert 2 < high / low < 4.5
    few, many = (peak_megabytes(lambda s=s: first_order(Size(32, 50, 1, s))) for s in (2, 16))
    assert many < 1.05 * few
