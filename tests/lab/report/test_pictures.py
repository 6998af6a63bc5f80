import math

import pytest

from snopt.lab.report.pictures import (
    MAX_CELLS,
    MAX_FRAME_CELLS,
    MAX_FRAMES,
    MAX_PATHS,
    MAX_POINTS,
    make_picture,
)
from tests.lab.report.fabricate import PICTURES

FILM = {"kind": "paths", "paths": [[[0, 1], [2, 3]]]}


@pytest.mark.parametrize("content", PICTURES.values(), ids=list(PICTURES))
def test_a_sound_picture_is_kept(content):
    picture = make_picture(content)
    assert (picture.kind, picture.title) == (content["kind"], content["title"])


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"kind": "points"},
        {"kind": "points", "points": []},
        {"kind": "points", "points": [[0, math.nan]]},
        {"kind": "points", "points": [[0, 1, 2]]},
        {"kind": "points", "points": [[0, "1"]]},
        {"kind": "points", "points": [[0, 1]], "classes": [1, 2]},
        {"kind": "points", "points": [[0, 1]], "classes": ["a"]},
        {"kind": "points", "points": 3},
        {"kind": "points", "points": [[False, True]]},
        {"kind": "points", "points": [[0, 10**400]]},
        {"kind": "points", "points": [[0, 1e308]]},
        {"kind": "paths", "paths": [[]]},
        {"kind": "paths", "paths": [[[0, 1], None]]},
        {"kind": "grid", "extent": [0, 1, 0, 1], "values": [[1, 2], [3]]},
        {"kind": "grid", "extent": [0, 1, 0, 1], "values": []},
        {"kind": "grid", "extent": [0, 0, 0, 1], "values": [[1]]},
        {"kind": "grid", "extent": [0, 1], "values": [[1]]},
        {"kind": ["grid"]},
        {**FILM, "density": {"extent": [0, 1, 0, 1], "frames": []}},
        {**FILM, "density": {"extent": [0, 1, 0, 0], "frames": [[[1]]]}},
        {**FILM, "density": {"extent": [0, 1, 0, 1], "frames": [[[1], [1, 2]]]}},
        {**FILM, "density": 3},
    ],
)
def test_what_cannot_be_drawn_is_refused(content):
    assert make_picture(content) is None


def test_large_pictures_are_thinned_and_classes_with_them():
    many = [[k, -k] for k in range(10_000)]
    points = make_picture({"kind": "points", "points": many, "classes": list(range(10_000))})
    assert len(points.points) <= MAX_POINTS
    assert [int(x) for x, _ in points.points] == list(points.classes)
    path = [[t, t] for t in range(1001)]
    paths = make_picture({"kind": "paths", "paths": [path] * 1000})
    assert len(paths.paths) <= MAX_PATHS
    assert paths.paths[0][0] == [0, 0]
    assert paths.paths[0][-1] == [1000, 1000]
    grid = make_picture({"kind": "grid", "extent": [0, 1, 0, 1], "values": [[0.0] * 500] * 500})
    assert max(len(grid.values), len(grid.values[0])) <= MAX_CELLS


def test_densities_of_a_film_are_scaled_by_their_peaks_and_thinned():
    frames = [[[0.0, 1.0], [4.0, 0.0]], [[0.0, 100.0], [-1.0, 25.0]]]
    density = {"extent": [-1, 1, -1, 1], "frames": frames}
    film = make_picture({**FILM, "density": density})
    assert film.frames == [[[0, 128], [255, 0]], [[0, 255], [0, 128]]]
    assert film.extent == [-1, 1, -1, 1]
    large = {"extent": [-1, 1, -1, 1], "frames": [[[1.0] * 200] * 100] * 90}
    film = make_picture({**FILM, "density": large})
    assert len(film.frames) <= MAX_FRAMES
    assert max(len(film.frames[0]), len(film.frames[0][0])) <= MAX_FRAME_CELLS
