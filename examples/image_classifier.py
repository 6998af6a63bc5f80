"""Train a convolutional Neural ODE to read digits with SNOpt, in the usual loop.

    python examples/image_classifier.py                  # scikit-learn's digits, 8 x 8 pixels
    SNOPT_DATA=... python examples/image_classifier.py   # MNIST, if that folder has it

`snopt data fetch mnist` downloads it.
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import snopt
from snopt.models import ConvField


def images():
    try:
        return snopt.lab.data.load("mnist")
    except snopt.lab.data.DataNotFound:
        return snopt.lab.data.load("digits")


def classifier(pixels, width=16):
    """Two convolutions, a Neural ODE, a linear layer; snopt.models.ImageClassifier has three."""
    stride = 2 if pixels > 8 else 1
    return nn.Sequential(
        nn.Conv2d(1, width, 3, stride), nn.ReLU(), nn.Conv2d(width, width, 3, stride),
        snopt.NeuralODE(ConvField(width)),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10),
    )  # fmt: skip


@torch.no_grad()
def accuracy(model, optimizer, data):
    model.eval()
    optimizer.eval()  # the average of the steps
    right = sum((model(batch.x).argmax(1) == batch.y).sum() for batch in data.batches(500))
    model.train()
    optimizer.train()
    return float(right) / len(data)


def main(iterations=100, batch_size=128):
    torch.manual_seed(0)
    splits = images()
    test = splits.test.take(2000)
    print(f"{splits.spec.name}: {len(splits.train)} images of {splits.spec.shape}")
    model = classifier(pixels=splits.spec.shape[-1])
    optimizer = snopt.SNOpt(model)
    print(optimizer.summary())
    generator = torch.Generator().manual_seed(0)
    batches, reached = iter(()), []
    for iteration in range(1, iterations + 1):
        batch = next(batches, None)
        if batch is None:  # a new epoch
            batches = splits.train.batches(batch_size, generator=generator, drop_last=True)
            batch = next(batches)
        optimizer.zero_grad()
        loss = cross_entropy(model(batch.x), batch.y)
        loss.backward()
        optimizer.step()
        if iteration % 20 == 0:
            reached.append(accuracy(model, optimizer, test))
            print(f"iteration {iteration:3d}  loss {loss.item():.3f}  test {reached[-1]:.1%}")
    return reached


if __name__ == "__main__":
    main()
