"""Contrastive learning: two views of each example, NT-Xent among them, and CLIP's loss."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class NTXentLoss(nn.Module):
    def __init__(self, temperature=0.5):
        super().__init__()
        self.temperature = temperature

    def forward(self, z_i, z_j):
        n = z_i.shape[0]
        z = F.normalize(torch.cat([z_i, z_j], dim=0), p=2, dim=1)
        sim = torch.mm(z, z.t()) / self.temperature
        self_mask = torch.eye(2 * n, dtype=torch.bool, device=sim.device)
        sim.masked_fill_(self_mask, -9e15)
        pos_mask = self_mask.roll(shifts=n, dims=0)
        nll = -sim[pos_mask] + torch.logsumexp(sim, dim=-1)
        return nll.mean()


class Encoder(nn.Module):
    def __init__(self, dim=12, width=24, out=8):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(dim, width), nn.BatchNorm1d(width), nn.ReLU())
        self.projector = nn.Linear(width, out, bias=False)
        self.logit_scale = nn.Parameter(torch.ones([]) * np.log(1 / 0.07))

    def forward(self, x):
        return self.projector(self.backbone(x))


def clip_loss(a, b, logit_scale):
    a = a / a.norm(dim=-1, keepdim=True)
    b = b / b.norm(dim=-1, keepdim=True)
    logits = logit_scale.exp() * a @ b.t()
    labels = torch.arange(logits.shape[0], device=logits.device)
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2


def build():
    return Encoder()


def batch(rng):
    x = rng.standard_normal((6, 12))
    views = [(x + 0.1 * rng.standard_normal(x.shape)).astype("float32") for _ in range(2)]
    return tuple(views)


def predict(model, first, second):
    return model(first), model(second)


def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)


def train_step(model, optimizer, first, second):
    criterion = NTXentLoss(0.2)
    a, b = model(first), model(second)
    loss = criterion(a, b) + clip_loss(a, b, model.logit_scale)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        model.logit_scale.clamp_(0, np.log(100))
    return loss.item()
