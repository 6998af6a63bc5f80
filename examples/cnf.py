"""Learn the density of two moons with a continuous normalizing flow, and draw it: out/cnf.png."""

from pathlib import Path

import matplotlib.pyplot as plt
import torch

import snopt
from snopt.models import CNF

EDGE = 2.0


def grid(count):
    """The centres of count x count squares that fill the picture."""
    side = EDGE * (2 * (torch.arange(count) + 0.5) / count - 1)
    return torch.cartesian_prod(side, side), (2 * EDGE / count) ** 2


@torch.no_grad()
def draw(flow, data, picture, count=120):
    points, area = grid(count)
    density = flow.eval().log_prob(points).exp()
    samples = flow.sample(len(data))
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.9), layout="constrained")
    for panel, title, points in ((panels[0], "data", data), (panels[2], "samples", samples)):
        panel.plot(*points.T.numpy(), ".", markersize=1.5, alpha=0.5)
        panel.set(title=title, xlim=(-EDGE, EDGE), ylim=(-EDGE, EDGE), aspect="equal")
    extent = (-EDGE, EDGE, -EDGE, EDGE)
    image = density.reshape(count, count).T.numpy()
    panels[1].imshow(image, origin="lower", extent=extent, cmap="Blues")
    panels[1].set(title=f"density, integral {density.sum() * area:.3f}")
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=120)
    return float(density.sum() * area)


def main(iterations=300, batch_size=256, picture=Path("out/cnf.png")):
    torch.manual_seed(0)
    splits = snopt.lab.data.load("two_moons")
    flow = CNF(2, hidden=(32, 32), rtol=1e-3, atol=1e-3)
    optimizer = snopt.SNOpt(flow)
    losses = []
    for iteration in range(1, iterations + 1):
        batch = splits.train.batch(torch.randint(len(splits.train), (batch_size,)))
        optimizer.zero_grad()
        loss = flow.loss(batch.x)  # minus the mean log-likelihood
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if iteration % 25 == 0:
            print(f"iteration {iteration:4d}  negative log-likelihood {losses[-1]:.3f}")
    optimizer.eval()  # the average of the steps
    return losses, draw(flow, splits.test.take(2000).tensors.x, picture)


if __name__ == "__main__":
    main()
