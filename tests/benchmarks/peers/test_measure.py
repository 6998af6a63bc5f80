"""The file of measurements: new ones are added, old ones of other parts kept."""

import json

from benchmarks.peers.measure import keep


def test_measurement_is_added_beside_the_others(tmp_path):
    file = tmp_path / "results" / "peers.json"
    keep(file, "engines", "image", {"rounds": 3})
    keep(file, "engines", "ode_rnn", {"rounds": 5})
    keep(file, "memory", "image", {"megabytes": {}})
    keep(file, "engines", "image", {"rounds": 7})
    assert json.loads(file.read_text()) == {
        "engines": {"image": {"rounds": 7}, "ode_rnn": {"rounds": 5}},
        "memory": {"image": {"megabytes": {}}},
    }


def test_what_belongs_to_no_part_is_dropped(tmp_path):
    file = tmp_path / "peers.json"
    file.write_text('{"image": {"form": "plain"}}')
    keep(file, "targets", "digits", {})
    assert json.loads(file.read_text()) == {"targets": {"digits": {}}}
