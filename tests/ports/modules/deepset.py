"""Deep sets: a function of a padded set of points that their order does not change."""

import torch
import torch.nn as nn


class DeepSet(nn.Module):
    def __init__(self, dim_in=3, hidden=32, dim_out=2, pool="mean"):
        super().__init__()
        self.pool = pool
        self.phi = nn.Sequential(
            nn.Linear(dim_in, hidden), nn.ELU(inplace=True), nn.Linear(hidden, hidden), nn.ELU()
        )
        self.rho = nn.Sequential(
            nn.Linear(2 * hidden, hidden), nn.ELU(), nn.Linear(hidden, dim_out)
        )

    def forward(self, x, mask):
        h = self.phi(x)
        m = mask.unsqueeze(-1)
        total = (h * m).sum(dim=1)
        if self.pool == "mean":
            total = total / m.sum(dim=1).clamp(min=1)
        highest, _ = h.masked_fill(~m, float("-inf")).max(dim=1)
        return self.rho(torch.cat([total, highest], dim=-1))


def build():
    return DeepSet()


def batch(rng):
    points = rng.standard_normal((5, 7, 3)).astype("float32")
    lengths = rng.integers(1, 8, 5)
    target = rng.standard_normal((5, 2)).astype("float32")
    return points, lengths, target


def predict(model, points, lengths, target):
    mask = torch.arange(points.size(1))[None, :] < lengths[:, None]
    return model(points, mask)


def optimizer(model):
    return torch.optim.Adamax(model.parameters(), lr=2e-3)


def train_step(model, optimizer, points, lengths, target):
    loss_fn = nn.SmoothL1Loss()
    loss = loss_fn(predict(model, points, lengths, target), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
