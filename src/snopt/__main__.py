"""``python -m snopt``: the same as the console script ``snopt``."""

import sys

from snopt.lab.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
