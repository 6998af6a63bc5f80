"""An Adam iteration of the ODE-RNN, against one torchdiffeq call for every interval.

Batches are shaped like SpokenArabicDigits: 128 series of up to 93 observations of 27 values,
hidden state 32, tolerance 1e-3. With SNOPT_DATA set they are the real ones with their real
lengths, otherwise random ones of full length. All contenders start from the same weights; those of
the field are multiplied by a gain, because a fresh field is almost linear, unlike a trained one.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torchdiffeq
from torch import Tensor
from torch.nn import functional

from benchmarks.engine.contenders import BASELINE, SETTLING
from benchmarks.engine.fields import amplify
from benchmarks.files import RESULTS, save
from benchmarks.measuring import Iteration, compared
from snopt.models.ode_rnn import ODERNN, observe

BATCH, LENGTH, CHANNELS, CLASSES, HIDDEN = 128, 93, 27, 10, 32
TOLERANCE = 1e-3
GAIN = 1.5
OURS = ("snopt", "snopt_compiled")


class TorchdiffeqRNN(ODERNN):
    """The same model; between observations, one call of torchdiffeq's ``odeint_adjoint``."""

    def advance(
        self, x: Tensor, durations: Sequence[float], visits: Sequence[tuple[Any, ...]]
    ) -> Tensor:
        for duration, visit in zip(durations, visits, strict=True):
            times = torch.tensor([0.0, duration], dtype=x.dtype)
            path = torchdiffeq.odeint_adjoint(
                self.block.field, x, times, rtol=TOLERANCE, atol=TOLERANCE, method="dopri5"
            )
            x = observe(path[-1], x, *visit)
        return x


def model(name: str) -> ODERNN:
    """Build a contender; all have the same weights."""
    torch.manual_seed(0)
    kind = TorchdiffeqRNN if name == BASELINE else ODERNN
    made = kind(
        CHANNELS, CLASSES, HIDDEN, rtol=TOLERANCE, atol=TOLERANCE, compile=name.endswith("compiled")
    )
    amplify(made.block.field, GAIN)
    return made


def series() -> tuple[str, Tensor, Tensor | None, Tensor]:
    """Return one batch: its source, observations, lengths and labels."""
    if os.environ.get("SNOPT_DATA"):
        from snopt.lab.data import load

        order = torch.Generator().manual_seed(0)
        splits = load("spoken_arabic_digits", preprocessing="paper")  # its 27 channels
        batch = next(iter(splits.train.batches(BATCH, generator=order)))
        return "SpokenArabicDigits", batch.x, batch.lengths, batch.y
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(BATCH, LENGTH, CHANNELS, generator=draw)
    return "random", x, None, torch.randint(CLASSES, (BATCH,), generator=draw)


def _loss(made: ODERNN, x: Tensor, lengths: Tensor | None, y: Tensor) -> Tensor:
    return functional.cross_entropy(made(x, lengths=lengths), y)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--repeats", type=int, default=11, help="rounds of timing")
    parser.add_argument("--contenders", nargs="+", default=OURS, choices=OURS)
    parser.add_argument("--out", type=Path, default=RESULTS / "ode_rnn_series.json")


def main(chosen: argparse.Namespace) -> None:
    """Time all contenders in interleaved rounds and write the result."""
    source, *batch = series()
    x, lengths, y = batch
    runs = {}
    for name in (BASELINE, *chosen.contenders):
        made = model(name)
        loss = partial(_loss, made, x, lengths, y)
        runs[name] = Iteration(loss, torch.optim.Adam(made.parameters(), lr=1e-3)).run
    found = compared(runs, chosen.repeats, BASELINE, SETTLING)
    for name, each in found.items():
        seconds, ratio = (each[key]["median"] for key in ("seconds", "ratio"))
        print(f"{name:20} {seconds:.4f} s   {ratio:.3f} of {BASELINE}")
    result = {
        "data": source,
        "shape": list(x.shape),
        "steps": LENGTH if lengths is None else int(lengths.max()),
        "gain": GAIN,
        "rounds": chosen.repeats,
        "contenders": found,
    }
    save(chosen.out, result)
