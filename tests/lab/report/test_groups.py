from snopt.lab.report.groups import group_runs
from snopt.lab.report.read import read_runs
from tests.lab.report.fabricate import write_comparison, write_run


def labels(root):
    return {
        task: [(group.label, [run.seed for run in group.runs]) for group in groups]
        for task, groups in group_runs(read_runs([root])).items()
    }


def test_seeds_of_an_optimizer_are_one_group_and_snopt_is_first(tmp_path):
    write_comparison(tmp_path)
    write_run(tmp_path, "adam", 0, task="gas")
    assert labels(tmp_path) == {
        "gas": [("adam", [0])],
        "spirals": [("snopt", [0, 1]), ("adam", [0, 1]), ("sgd", [0, 1])],
    }


def test_settings_are_not_averaged_but_named(tmp_path):
    for k, lr in enumerate((0.1, 0.01)):
        for seed in range(2):
            # Said twice, as a config with an experiment in it does, and named once.
            config = {"lr": lr, "experiment": {"lr": lr, "train": {"seed": seed}}}
            write_run(tmp_path / str(k), "adam", seed, config=config)
    assert labels(tmp_path) == {"spirals": [("adam lr=0.1", [0, 1]), ("adam lr=0.01", [0, 1])]}


def test_groups_keep_different_names_when_the_difference_is_too_long_to_tell(tmp_path):
    for k in range(3):
        write_run(tmp_path / str(k), "adam", 0, config={"note": "x" * 40 + str(k)})
    names = [name for name, _ in labels(tmp_path)["spirals"]]
    assert len(set(names)) == 3


def test_a_run_without_config_joins_its_only_namesake(tmp_path):
    write_run(tmp_path, "adam", 0)
    (write_run(tmp_path, "adam", 1) / "config.json").unlink()
    assert labels(tmp_path) == {"spirals": [("adam", [0, 1])]}


def test_a_run_without_config_stays_apart_among_several_namesakes(tmp_path):
    write_run(tmp_path / "a", "adam", 0, config={"lr": 0.1})
    write_run(tmp_path / "b", "adam", 0, config={"lr": 0.2})
    (write_run(tmp_path / "c", "adam", 1) / "config.json").unlink()
    names = [name for name, _ in labels(tmp_path)["spirals"]]
    assert names == ["adam lr=0.1", "adam lr=0.2", "adam (other settings)"]


def test_paths_without_runs_are_no_group(tmp_path):
    assert group_runs(read_runs([tmp_path / "nowhere"])) == {}
