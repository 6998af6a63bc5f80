"""One process of a sweep; with ``hang`` it takes a trial and never finishes it."""

import sys
import time
from pathlib import Path

from snopt.lab.recipes.catalogue import recipe
from snopt.lab.recipes.settings import with_settings
from snopt.lab.recipes.sweep import SweepConfig, open_study, work


def configured(out: Path, trials: int = 12) -> SweepConfig:
    base = with_settings(
        recipe("digits", "adam", "smoke"), ["train.iterations=1", "data.examples=16"]
    )
    return SweepConfig(base, out, trials=trials)


def hang(*_: object) -> tuple[()]:
    """Called when a trial begins: tell that it did, and sleep."""
    (Path(sys.argv[1]) / "hanging").touch()
    time.sleep(600)
    return ()


if __name__ == "__main__":
    config = configured(Path(sys.argv[1]))
    work(config, open_study(config), hang if "hang" in sys.argv else lambda *_: ())
