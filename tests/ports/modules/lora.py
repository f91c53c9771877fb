"""A frozen network with low-rank updates beside its linear layers."""

import math

import torch
from torch import nn


class LoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, rank: int = 4, alpha: float = 8.0):
        super().__init__()
        self.base = base
        self.base.weight.requires_grad = False
        if self.base.bias is not None:
            self.base.bias.requires_grad = False
        self.scaling = alpha / rank
        self.lora_A = nn.Parameter(torch.empty(rank, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        update = x @ self.lora_A.T @ self.lora_B.T
        return self.base(x) + self.scaling * update

    @torch.no_grad()
    def merge(self):
        self.base.weight += self.scaling * (self.lora_B @ self.lora_A)
        self.lora_B.zero_()


def add_lora(module: nn.Module, rank: int = 4):
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, LoRALinear(child, rank))
        else:
            add_lora(child, rank)
    return module


class MLP(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.fc1 = nn.Linear(width, 2 * width)
        self.act = nn.SiLU()
        self.fc2 = nn.Linear(2 * width, width)
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 3))

    def forward(self, x):
        return self.out(x + self.fc2(self.act(self.fc1(x))))


def build():
    model = add_lora(MLP())
    for name, p in model.named_parameters():
        if "lora_" not in name:
            p.requires_grad_(False)
    return model


def batch(rng):
    return rng.standard_normal((8, 16)).astype("float32"), rng.integers(0, 3, 8)


def predict(model, x, y):
    return model(x)


def optimizer(model):
    trainable = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(trainable, lr=1e-2)


criterion = nn.CrossEntropyLoss()


def train_step(model, optimizer, x, y):
    optimizer.zero_grad(set_to_none=True)
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def after(model, x, y):
    for layer in model.modules():
        if isinstance(layer, LoRALinear):
            layer.merge()
    return model(x)
