"""``python -m snopt.lab.paper.peak_child FILE``: print an iteration's peak memory in megabytes.

A program of its own, since a module that the package imports would be loaded twice.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from snopt.lab.paper.iterations import peak_of

if __name__ == "__main__":
    sys.stdout.write(json.dumps(peak_of(Path(sys.argv[1]))) + "\n")
