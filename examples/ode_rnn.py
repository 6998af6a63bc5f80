"""Classify spirals from a few irregular observations with an ODE-RNN.

Each series is observed at 15 of its 30 to 50 times, chosen anew in every batch. Between two
observations the hidden state follows an ODE for the length of the gap; series with different gaps
share one solve.
"""

import torch
from torch.nn.functional import cross_entropy

import snopt
from snopt.models import ODERNN


def observe(batch, count=15):
    """Keep `count` observations of each series, drawn at random among those within its length."""
    rows, longest, channels = batch.x.shape
    beyond = torch.arange(longest) >= batch.lengths[:, None]
    kept = torch.rand(rows, longest).masked_fill(beyond, -1.0).topk(count, dim=1).indices
    kept = kept.sort(dim=1).values
    x = batch.x.gather(1, kept[..., None].expand(-1, -1, channels))
    return x, batch.times[kept] / longest


def main(iterations=80, batch_size=128):
    torch.manual_seed(0)
    splits = snopt.lab.data.load("spirals")
    model = ODERNN(channels=2, classes=splits.spec.classes, hidden=16)
    optimizer = snopt.SNOpt(model)
    print(optimizer.summary())  # the GRU cell is trained by Adam
    for iteration in range(1, iterations + 1):
        batch = splits.train.batch(torch.randint(len(splits.train), (batch_size,)))
        x, times = observe(batch)
        optimizer.zero_grad()
        loss = cross_entropy(model(x, times=times), batch.y)
        loss.backward()
        optimizer.step()
        if iteration % 10 == 0:
            print(f"iteration {iteration:3d}  loss {loss.item():.3f}")
    test = splits.test.tensors
    x, times = observe(test)
    optimizer.eval()  # the average of the steps
    with torch.no_grad():
        right = (model.eval()(x, times=times).argmax(1) == test.y).float().mean().item()
    print(f"test accuracy {right:.1%}")
    return right


if __name__ == "__main__":
    main()
