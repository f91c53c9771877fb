"""A step of a denoising diffusion model: noise at a drawn time, and a network that predicts it."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, t):
        half = self.dim // 2
        freqs = torch.exp(
            -math.log(10000) * torch.arange(start=0, end=half, dtype=torch.float32) / half
        ).to(device=t.device)
        args = t[:, None].float() * freqs[None]
        return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


class ResBlock(nn.Module):
    def __init__(self, channels, emb):
        super().__init__()
        self.in_layers = nn.Sequential(
            nn.GroupNorm(4, channels), nn.SiLU(), nn.Conv2d(channels, channels, 3, padding=1)
        )
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(emb, 2 * channels))
        self.norm = nn.GroupNorm(4, channels)
        self.out = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x, emb):
        h = self.in_layers(x)
        emb_out = self.emb_layers(emb)
        while len(emb_out.shape) < len(h.shape):
            emb_out = emb_out[..., None]
        scale, shift = torch.chunk(emb_out, 2, dim=1)
        h = self.norm(h) * (1 + scale) + shift
        return x + self.out(F.silu(h))


class Denoiser(nn.Module):
    def __init__(self, channels=8, emb=16):
        super().__init__()
        self.time = nn.Sequential(TimeEmbedding(emb), nn.Linear(emb, emb), nn.SiLU())
        self.inp = nn.Conv2d(1, channels, 3, padding=1)
        self.blocks = nn.ModuleList(ResBlock(channels, emb) for _ in range(2))
        self.out = nn.Conv2d(channels, 1, 3, padding=1)

    def forward(self, x, t):
        emb = self.time(t)
        x = self.inp(x)
        for block in self.blocks:
            x = block(x, emb)
        return self.out(x)


def extract(a, t, x_shape):
    out = a.gather(-1, t)
    return out.reshape(t.shape[0], *((1,) * (len(x_shape) - 1)))


class Diffusion(nn.Module):
    def __init__(self, timesteps=50):
        super().__init__()
        self.model = Denoiser()
        betas = torch.linspace(1e-4, 0.02, timesteps)
        alphas_cumprod = torch.cumprod(1.0 - betas, dim=0)
        self.register_buffer("sqrt_alphas_cumprod", torch.sqrt(alphas_cumprod))
        self.register_buffer("sqrt_one_minus", torch.sqrt(1.0 - alphas_cumprod))

    def q_sample(self, x0, t, noise):
        return (
            extract(self.sqrt_alphas_cumprod, t, x0.shape) * x0
            + extract(self.sqrt_one_minus, t, x0.shape) * noise
        )

    def forward(self, x0, t, noise):
        return self.model(self.q_sample(x0, t, noise), t)


class EMA:
    def __init__(self, model, decay=0.9):
        self.decay = decay
        self.shadow = copy.deepcopy(model)
        for p in self.shadow.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.mul_(self.decay).add_(p, alpha=1 - self.decay)


def build():
    return Diffusion()


def batch(rng):
    x0 = rng.standard_normal((3, 1, 8, 8)).astype("float32")
    return x0, rng.integers(0, 50, 3), rng.standard_normal(x0.shape).astype("float32")


def predict(model, x0, t, noise):
    return model(x0, t, noise)


def optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def train_step(model, optimizer, x0, t, noise):
    loss = F.mse_loss(model(x0, t, noise), noise)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.item()


def after(model, x0, t, noise):
    ema = EMA(model)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.01)
    ema.update(model)
    return model(x0, t, noise), ema.shadow(x0, t, noise)
