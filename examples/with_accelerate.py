"""SNOpt in a loop of Hugging Face Accelerate: clipping, accumulation, checkpoints, processes.

    pip install accelerate
    python examples/with_accelerate.py
    torchrun --standalone --nproc-per-node 2 examples/with_accelerate.py

Create the optimizer from the model, then pass both to `prepare`. Writes to out/accelerate.
"""

from torch import nn
from torch.utils.data import DataLoader

import snopt

try:
    from accelerate import Accelerator
    from accelerate.utils import set_seed
except ImportError:
    print("Accelerate is not installed: pip install accelerate")
    raise SystemExit from None


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, t, x):
        return self.net(x)


def prepare():
    set_seed(0)
    accelerator = Accelerator(gradient_accumulation_steps=2)
    model = nn.Sequential(snopt.NeuralODE(Field()), nn.Linear(2, 2))
    optimizer = snopt.SNOpt(model)
    batch = snopt.lab.data.load("two_moons").train.take(2560).tensors
    loader = DataLoader(list(zip(batch.x, batch.y, strict=True)), batch_size=64)
    return accelerator, accelerator.prepare(model, optimizer, loader)


def train(accelerator, parts, epochs):
    model, optimizer, loader = parts
    losses = []
    for _ in range(epochs):
        for x, y in loader:
            with accelerator.accumulate(model):  # an update every second batch
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            losses.append(accelerator.reduce(loss.detach(), "mean").item())
        accelerator.print(f"processes {accelerator.num_processes}  loss {losses[-1]:.3f}")
    return losses


def main(epochs=2, out="out/accelerate"):
    accelerator, parts = prepare()
    losses = train(accelerator, parts, epochs)
    accelerator.save_state(out)
    straight = train(accelerator, parts, 1)

    accelerator, parts = prepare()  # a new start ...
    accelerator.load_state(out)  # ... from what was saved
    resumed = train(accelerator, parts, 1)
    accelerator.print("the resumed run equals the uninterrupted one:", straight == resumed)
    return losses, straight, resumed


if __name__ == "__main__":
    main()
