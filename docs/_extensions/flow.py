"""Make the film of the home page, docs/assets/film.js, and of the README, docs/flow.gif.

    python docs/_extensions/flow.py

A continuous normalizing flow learns two moons with SNOpt's default settings. The film follows
samples from the normal density at the horizon back to the data, with the density at each time
behind them. Every number comes from the trained model.
"""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

import snopt
from snopt.lab.data import load
from snopt.models import CNF

DOCS = Path(__file__).parents[1]
UPDATES, SAMPLES, FRAMES, CELLS = 900, 420, 36, 72
WIDTH, HEIGHT = 3.0, 2.0  # half the edges of the picture
BLUE, ORANGE = (0, 114, 178), (213, 94, 0)  # colours 0 and 2 of the report


def trained() -> CNF:
    """Train the flow; about two minutes on one core."""
    torch.manual_seed(0)
    data = load("two_moons").train
    flow = CNF(2, hidden=(64, 64, 64), rtol=1e-4, atol=1e-4)
    optimizer = snopt.SNOpt(flow)
    for _ in range(UPDATES):
        batch = data.batch(torch.randint(len(data), (512,)))
        optimizer.zero_grad()
        # Larger than the normal density's own scale, so that the flow need not shrink the data.
        loss = flow.loss(1.5 * batch.x)
        loss.backward()
        optimizer.step()
    optimizer.eval()  # the average of the weights
    return flow.eval()


def paths(flow: CNF) -> tuple[Tensor, Tensor]:
    """Follow samples from the horizon back to time 0: ``[FRAMES, SAMPLES, 2]``, and their moons."""
    torch.manual_seed(1)
    z = torch.randn(SAMPLES, 2)
    block = flow.blocks[0]
    times = torch.linspace(block.horizon, 0.0, FRAMES)
    found = snopt.odeint(block.field, z, times, rtol=1e-5, atol=1e-5)
    x = found[-1] / 1.5
    # The moons' own centres and unit radius decide which one a sample belongs to.
    centres = torch.tensor([[-0.5, -0.25], [0.5, 0.25]])
    off = ((x[:, None] - centres).norm(dim=2) - 1.0).abs()
    wrong_half = torch.stack([x[:, 1] < -0.25 - 0.2, x[:, 1] > 0.25 + 0.2], dim=1)
    return found, (off + 10.0 * wrong_half).argmin(dim=1)


def densities(flow: CNF) -> Tensor:
    """Return the density at each time on a grid, ``[FRAMES, rows from the top, columns]``."""
    block = flow.blocks[0]
    rows = round(CELLS * HEIGHT / WIDTH)
    across = WIDTH * (2 * (torch.arange(CELLS) + 0.5) / CELLS - 1)
    down = -HEIGHT * (2 * (torch.arange(rows) + 0.5) / rows - 1)
    y, x = torch.meshgrid(down, across, indexing="ij")
    points = torch.stack([x.flatten(), y.flatten()], dim=1)
    films = []
    for t in torch.linspace(block.horizon, 0.0, FRAMES).tolist():
        z, log_det = points, torch.zeros(len(points))
        if t < block.horizon:
            span = torch.tensor([t, block.horizon])
            ends, (changes,) = snopt.odeint(block.field, (z, (log_det,)), span, rtol=1e-4)
            z, log_det = ends[-1], changes[-1]
        log_p = log_det - z.square().sum(1) / 2 - math.log(2 * math.pi)
        films.append(log_p.exp().reshape(rows, CELLS))
    return torch.stack(films)


def encoded(values: np.ndarray) -> str:
    """Write an array as base64, for the page's script to read."""
    return base64.b64encode(values.tobytes()).decode("ascii")


def film(flow: CNF) -> dict[str, Any]:
    """Return the film: positions as 16-bit and densities as 8-bit numbers."""
    where, moons = paths(flow)
    scale = torch.tensor([WIDTH, HEIGHT])
    # Samples may be outside of the picture, by half its size.
    position = (where / scale * 16384).clamp(-32767, 32767).round().to(torch.int16)
    density = densities(flow)
    grey = (255 * (density / density.amax(dim=(1, 2), keepdim=True)).sqrt()).round()
    return {
        "frames": FRAMES,
        "samples": SAMPLES,
        "columns": CELLS,
        "rows": density.shape[1],
        "positions": encoded(position.numpy()),
        "moons": encoded(moons.to(torch.uint8).numpy()),
        "density": encoded(grey.to(torch.uint8).numpy()),
    }


def picture(content: dict[str, Any], frame: int, width: int = 420) -> Image.Image:
    """Draw one frame on white."""
    height = round(width * HEIGHT / WIDTH)
    shape = (FRAMES, content["rows"], content["columns"])
    density = np.frombuffer(base64.b64decode(content["density"]), np.uint8).reshape(shape)[frame]
    mask = Image.fromarray((density * 0.3).astype(np.uint8))
    image = Image.new("RGB", (2 * width, 2 * height), "white")
    image.paste(BLUE, mask=mask.resize(image.size, Image.Resampling.BICUBIC))
    draw = ImageDraw.Draw(image)
    raw = np.frombuffer(base64.b64decode(content["positions"]), np.int16)
    where = raw.reshape(FRAMES, SAMPLES, 2) / 16384
    moons = np.frombuffer(base64.b64decode(content["moons"]), np.uint8)
    ends = (where * [1, -1] + 1) * [width, height]
    for i, moon in enumerate(moons):
        color = ORANGE if moon else BLUE
        trail = ends[max(0, frame - 5) : frame + 1, i]
        draw.line([tuple(point) for point in trail], fill=tuple((c + 510) // 3 for c in color))
        x, y = ends[frame, i]
        draw.ellipse((x - 4, y - 4, x + 4, y + 4), fill=color)
    return image.resize((width, height), Image.Resampling.LANCZOS)


def main() -> None:
    """Train, and write both files."""
    content = film(trained())
    # A script, not JSON: a page opened from a disk may not fetch data.
    script = f"window.flowFilm = {json.dumps(content)};\n"
    (DOCS / "assets" / "film.js").write_text(script, "utf-8")
    images = [picture(content, frame) for frame in range(0, FRAMES, 2)]
    palette = images[-1].quantize(32)
    images = [each.quantize(palette=palette, dither=Image.Dither.NONE) for each in images]
    order = [*images, *images[::-3]]
    waits = [110] * (len(images) - 1) + [1500] + [110] * (len(order) - len(images) - 1) + [500]
    order[0].save(
        DOCS / "flow.gif", save_all=True, append_images=order[1:], duration=waits, loop=0
    )  # fmt: skip


if __name__ == "__main__":
    main()
