"""SNOpt in Lightning's loop (pip install lightning): clipping, a schedule, checkpoints, resuming.

Lightning puts the forward and the backward pass into a closure and calls `optimizer.step(closure)`.
SNOpt takes it as any optimizer of torch does. Writes to out/lightning.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader

import snopt

try:
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint
except ImportError:
    print("Lightning is not installed: pip install lightning")
    raise SystemExit from None


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, t, x):
        return self.net(x)


class Moons(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(snopt.NeuralODE(Field()), nn.Linear(2, 2))
        self.losses = []

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        self.log("accuracy", (self.model(x).argmax(1) == y).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        # The module, not its parameters: SNOpt listens to the layers. `self` covers everything
        # in this LightningModule; SNOpt(self.model) would train that part alone.
        optimizer = snopt.SNOpt(self)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)]


def loader(part, count):
    batch = part.take(count).tensors
    return DataLoader(list(zip(batch.x, batch.y, strict=True)), batch_size=128)


def fit(epochs, out="out/lightning", resume_from=None):
    lightning.seed_everything(0, verbose=False)
    module, splits = Moons(), snopt.lab.data.load("two_moons")
    keep = ModelCheckpoint(dirpath=out, filename="{epoch}", enable_version_counter=False)
    trainer = lightning.Trainer(
        max_epochs=epochs, gradient_clip_val=1.0, callbacks=[keep], default_root_dir=out,
        accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    batches = loader(splits.train, 2560), loader(splits.valid, 1000)
    trainer.fit(module, *batches, ckpt_path=resume_from)
    accuracy = float(trainer.callback_metrics["accuracy"])
    print(f"epoch {epochs}: accuracy {accuracy:.1%}, checkpoint {keep.best_model_path}")
    return module, accuracy, keep.best_model_path


def main():
    _, _, checkpoint = fit(epochs=2)
    return fit(epochs=4, resume_from=checkpoint)  # weights, optimizer and schedule go on


if __name__ == "__main__":
    main()
