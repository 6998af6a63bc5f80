"""SNOpt, Adam and SGD teach a Neural ODE to read digits; a page shows how fast, and the flow.

The images themselves flow: 64 pixels are the state, and a linear layer reads the class off its end.
All three optimizers start from the same weights and see the same batches, each at the best of the
learning rates that were tried for it (docs/cli.md). The same by hand:

    snopt compare digits --out out/demo
    snopt report out/demo -o out/demo/report.html
"""

import shutil
from pathlib import Path

import torch

from snopt.lab.cli.compare import compare
from snopt.lab.cli.options import RunOptions
from snopt.lab.report import write_report


def main(seeds: int = 3, iterations: int | None = None, out: Path = Path("out/demo")) -> Path:
    torch.set_num_threads(1)  # tensors this small are faster on one core than shared by two
    shutil.rmtree(out, ignore_errors=True)
    optimizers = ("snopt", "adam", "sgd")
    common = RunOptions(iterations=iterations)
    code = compare("digits", optimizers=optimizers, seeds=seeds, out=out, common=common)
    if code:
        raise SystemExit(code)
    page = write_report([out], out / "report.html", title="Digits through a Neural ODE")
    print(f"open {page.resolve()}")
    return page


if __name__ == "__main__":
    main()
