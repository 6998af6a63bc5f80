"""SNOpt under torchrun: every process sees a share of each batch, and all take the same step.

    torchrun --standalone --nproc-per-node 2 examples/distributed.py
    python examples/distributed.py      # one process, the same losses

Gradients are averaged by DistributedDataParallel; SNOpt averages its factors over the processes and
shares out their eigendecompositions. `gloo` connects CPUs; on GPUs use `nccl` and move the model.
"""

import os

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import snopt


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, t, x):
        return self.net(x)


def main(iterations=40, batch_size=256):
    # Steps of fixed size, so that processes need not agree on them: an adaptive solver chooses
    # steps for its own share, and results then agree to its tolerance.
    torch.manual_seed(0)  # the same weights everywhere
    block = snopt.NeuralODE(Field(), method="rk4", options={"step_size": 0.125})
    model = nn.Sequential(block, nn.Linear(2, 2)).double()
    several = "RANK" in os.environ  # torchrun sets it
    if several:
        distributed.init_process_group("gloo")
        model = DistributedDataParallel(model)
    rank, size = (distributed.get_rank(), distributed.get_world_size()) if several else (0, 1)
    optimizer = snopt.SNOpt(model)

    train = snopt.lab.data.load("two_moons").train
    generator = torch.Generator().manual_seed(0)  # the same batches everywhere
    for iteration in range(1, iterations + 1):
        batch = train.batch(torch.randint(len(train), (batch_size,), generator=generator))
        x, y = batch.x[rank::size].double(), batch.y[rank::size]  # this process's share
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if iteration % 10 == 0:
            mean = loss.detach() / size
            if several:
                distributed.all_reduce(mean)
            if rank == 0:
                print(f"processes {size}  iteration {iteration:3d}  loss {mean.item():.10f}")
    if several:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
