"""Fit a latent SDE to noisy series, solved by torchsde: variational inference on paths.

SNOpt has no SDE solver. It sees the layers of drift and diffusion as ordinary layers and records
each evaluation that sdeint differentiates (with sdeint_adjoint those of the backward solve),
without weights of an integral along the path. The GRU is trained by Adam.
"""

import torch
from torch import nn

import snopt

try:
    import torchsde
except ImportError:
    print("torchsde is not installed: pip install torchsde")
    raise SystemExit from None

DEVIATION = 0.05  # of the observations


def network(*sizes):
    return nn.Sequential(nn.Linear(*sizes[:2]), nn.Softplus(), nn.Linear(*sizes[1:]))


class LatentSDE(nn.Module):
    """Prior dz = h(z) dt + g(z) dW, posterior dz = f(z, context) dt + g(z) dW (Li et al. 2020)."""

    noise_type, sde_type = "diagonal", "ito"

    def __init__(self, latent=3, context=16, width=32):
        super().__init__()
        self.encoder = nn.GRU(1, context, batch_first=True)
        self.start, self.decoder = nn.Linear(context, 2 * latent), nn.Linear(latent, 1)
        self.posterior = network(latent + context, width, latent)
        self.prior, self.diffusion = network(latent, width, latent), network(1, 8, 1)

    def f(self, t, z):
        now = min(int(torch.searchsorted(self.times, t, right=True)), len(self.times) - 1)
        return self.posterior(torch.cat([z, self.context[:, now]], dim=1))

    def h(self, t, z):
        return self.prior(z)

    def g(self, t, z):  # one number per component of z
        return torch.sigmoid(self.diffusion(z[..., None]))[..., 0]

    def forward(self, x, times):
        """Return minus the evidence lower bound, per observation."""
        self.times, self.context = times, self.encoder(x.flip(1))[0].flip(1)
        mean, log_std = self.start(self.context[:, 0]).chunk(2, dim=1)
        z = mean + log_std.exp() * torch.randn_like(mean)
        start = (0.5 * (mean**2 + (2 * log_std).exp() - 1) - log_std).sum(1)
        z, path = torchsde.sdeint(self, z, times, dt=0.05, method="euler", logqp=True)
        error = (self.decoder(z).transpose(0, 1) - x) / DEVIATION
        return (0.5 * error.square().sum((1, 2)) + start + path.sum(0)).mean() / x.shape[1]


def main(iterations=150, series=64, name="SNOpt"):
    torch.manual_seed(0)
    times = torch.linspace(0, 1, 21)
    clean = torch.exp(-times) * torch.sin(6.3 * (times + torch.rand(series, 1)))
    x = (clean + DEVIATION * torch.randn_like(clean))[..., None]
    model, losses = LatentSDE(), []
    adam = torch.optim.Adam(model.parameters(), lr=1e-2)
    optimizer = adam if name == "Adam" else snopt.SNOpt(model)
    for _ in range(iterations):
        optimizer.zero_grad()
        loss = model(x, times)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"{name:5s}  minus ELBO: " + "  ".join(f"{loss:.2f}" for loss in losses[24::25]))
    return optimizer, losses


if __name__ == "__main__":
    main()
    main(name="Adam")
