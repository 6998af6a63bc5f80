"""Train a convolutional Neural ODE on images of digits with SNOpt, in the usual loop.

python examples/snopt_mnist.py            # scikit-learn's 8x8 digits
SNOPT_DATA=... python examples/snopt_mnist.py    # MNIST's t10k file, if it is there
"""

import gzip
import os
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import snopt


class Field(nn.Module):
    """dx/dt: two convolutions; time is one more channel."""

    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width + 1, width, 3, padding=1)
        self.second = nn.Conv2d(width + 1, width, 3, padding=1)

    def forward(self, t, x):
        time = t.expand(x.shape[0], 1, *x.shape[2:])
        x = torch.relu(self.first(torch.cat([x, time], 1)))
        return self.second(torch.cat([x, time], 1))


def images():
    folder = Path(os.environ.get("SNOPT_DATA", "")) / "mnist"
    if (folder / "t10k-images-idx3-ubyte.gz").exists():
        raw = gzip.decompress((folder / "t10k-images-idx3-ubyte.gz").read_bytes())
        x = np.frombuffer(raw[16:], np.uint8).reshape(-1, 1, 28, 28).astype(np.float32) / 255
        raw = gzip.decompress((folder / "t10k-labels-idx1-ubyte.gz").read_bytes())
        y = np.frombuffer(raw[8:], np.uint8).astype(np.int64)
    else:
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        x, y = x.reshape(-1, 1, 8, 8).astype(np.float32) / 16, y.astype(np.int64)
    x, y = torch.from_numpy((x - x.mean()) / x.std()), torch.from_numpy(y)
    cut = int(0.8 * len(x))
    return x[:cut], y[:cut], x[cut:], y[cut:]


def main(width=16, batch=128):
    torch.manual_seed(0)
    x, y, x_test, y_test = images()
    stride = 2 if x.shape[-1] > 8 else 1
    model = nn.Sequential(
        nn.Conv2d(1, width, 3, stride), nn.ReLU(), nn.Conv2d(width, width, 3, stride),
        snopt.NeuralODE(Field(width)),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10),
    )  # fmt: skip
    optimizer = snopt.SNOpt(model)
    print(optimizer.summary())
    for i in range(60):
        index = torch.randint(len(x), (batch,))
        optimizer.zero_grad()
        loss = cross_entropy(model(x[index]), y[index])
        loss.backward()
        optimizer.step()
        if i % 20 == 19:
            with torch.no_grad():
                right = (model.eval()(x_test).argmax(1) == y_test).float().mean()
            model.train()
            print(f"iteration {i + 1:3d}  loss {loss.item():.3f}  test accuracy {right:.1%}")
    print("factors of the field's first layer:", optimizer.factors["3.field.first"].B.shape)


if __name__ == "__main__":
    main()
