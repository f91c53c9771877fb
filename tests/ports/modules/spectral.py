"""A Fourier neural operator in one dimension: spectral convolutions beside pointwise ones."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class SpectralConv1d(nn.Module):
    def __init__(self, in_channels, out_channels, modes):
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.modes = modes
        scale = 1 / (in_channels * out_channels)
        self.weight = nn.Parameter(scale * torch.rand(in_channels, out_channels, modes, 2))

    def forward(self, x):
        n = x.size(-1)
        x_ft = torch.fft.rfft(x, norm="ortho")
        weight = torch.view_as_complex(self.weight)
        low = torch.einsum("bix,iox->box", x_ft[:, :, : self.modes], weight)
        out_ft = F.pad(low, (0, n // 2 + 1 - self.modes))
        return torch.fft.irfft(out_ft, n=n, norm="ortho")


class FNO1d(nn.Module):
    def __init__(self, modes=5, width=8, layers=2):
        super().__init__()
        self.lift = nn.Linear(2, width)
        self.spectral = nn.ModuleList([SpectralConv1d(width, width, modes) for _ in range(layers)])
        self.local = nn.ModuleList([nn.Conv1d(width, width, 1) for _ in range(layers)])
        self.proj = nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, 1))

    def forward(self, x):
        grid = torch.linspace(0, 1, x.shape[1]).reshape(1, -1, 1).repeat(x.shape[0], 1, 1)
        x = self.lift(torch.cat((x, grid.to(x.device)), dim=-1)).permute(0, 2, 1)
        for spectral, local in zip(self.spectral, self.local):
            x = F.gelu(spectral(x) + local(x))
        return self.proj(x.permute(0, 2, 1))


def spectrum_loss(pred, target):
    """Differences of magnitudes at each frequency."""
    a, b = torch.fft.rfft(pred.squeeze(-1)), torch.fft.rfft(target.squeeze(-1))
    return (a.abs() - b.abs()).pow(2).mean() + (a - b).abs().mean()


def build():
    return FNO1d()


def batch(rng):
    return rng.standard_normal((2, 30, 1)).astype("f4"), rng.standard_normal((2, 30, 1)).astype(
        "f4"
    )


def predict(model, x, y):
    return model(x)


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)


def train_step(model, optimizer, x, y):
    optimizer.zero_grad()
    out = model(x)
    loss = F.mse_loss(out.view(2, -1), y.view(2, -1)) + 0.01 * spectrum_loss(out, y)
    loss.backward()
    optimizer.step()
    return loss.item()
