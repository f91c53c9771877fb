"""A diffusion sampler: DDIM and Heun's method with guidance, around a small denoiser."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Denoiser(nn.Module):
    def __init__(self, dim=4, hidden=16, num_classes=3):
        super().__init__()
        self.null = num_classes
        self.label = nn.Embedding(num_classes + 1, hidden)
        self.time = nn.Linear(8, hidden)
        self.net = nn.Sequential(
            nn.Linear(dim + hidden, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU()
        )
        self.out = nn.Linear(hidden, dim)
        self.register_buffer("freqs", torch.logspace(0, 2, 4), persistent=False)

    def forward(self, x, sigma, label):
        angles = sigma.log().view(-1, 1) / 4 * self.freqs
        emb = self.time(torch.cat([angles.sin(), angles.cos()], dim=1)) + self.label(label)
        return self.out(self.net(torch.cat([x, emb], dim=1)))


def precondition(model, x, sigma, label, sigma_data=0.5):
    sigma = sigma.reshape(-1, 1)
    c_skip = sigma_data**2 / (sigma**2 + sigma_data**2)
    c_out = sigma * sigma_data / (sigma**2 + sigma_data**2).sqrt()
    c_in = 1 / (sigma_data**2 + sigma**2).sqrt()
    return c_skip * x + c_out * model(c_in * x, sigma.flatten(), label)


def guided(model, x, sigma, label, scale):
    both = precondition(
        model,
        torch.cat([x, x]),
        sigma.expand(2 * x.shape[0]),
        torch.cat([label, torch.full_like(label, model.null)]),
    )
    cond, uncond = both.chunk(2)
    return uncond + scale * (cond - uncond)


@torch.no_grad()
def heun(model, latents, label, num_steps=4, sigma_min=0.02, sigma_max=3.0, rho=7, scale=1.5):
    step_indices = torch.arange(num_steps, dtype=torch.float64)
    t_steps = (
        sigma_max ** (1 / rho)
        + step_indices / (num_steps - 1) * (sigma_min ** (1 / rho) - sigma_max ** (1 / rho))
    ) ** rho
    t_steps = torch.cat([t_steps, torch.zeros_like(t_steps[:1])]).to(torch.float32)
    x_next = latents * t_steps[0]
    for i, (t_cur, t_next) in enumerate(zip(t_steps[:-1], t_steps[1:])):
        x_cur = x_next
        d_cur = (x_cur - guided(model, x_cur, t_cur, label, scale)) / t_cur
        x_next = x_cur + (t_next - t_cur) * d_cur
        if i < num_steps - 1:
            d_prime = (x_next - guided(model, x_next, t_next, label, scale)) / t_next
            x_next = x_cur + (t_next - t_cur) * (0.5 * d_cur + 0.5 * d_prime)
    return x_next


@torch.inference_mode()
def ddim(model, x, label, steps=5, eta=0.0):
    alphas = torch.cos(torch.linspace(0.05, 0.95, steps) * math.pi / 2) ** 2
    for i in reversed(range(1, steps)):
        a, a_prev = alphas[i], alphas[i - 1]
        sigma = ((1 - a) / a).sqrt()
        x0 = precondition(model, x / a.sqrt(), sigma.expand(len(x)), label).clamp(-3, 3)
        eps = (x - a.sqrt() * x0) / (1 - a).sqrt()
        x = a_prev.sqrt() * x0 + (1 - a_prev).sqrt() * eps
        if eta > 0:
            x += eta * sigma * torch.randn_like(x)
    return x


def build():
    return Denoiser()


def batch(rng):
    x = rng.standard_normal((3, 4)).astype("float32")
    return x, rng.integers(0, 3, 3), rng.standard_normal((3, 4)).astype("float32")


def predict(model, x, label, noise):
    return heun(model, noise, label), ddim(model, noise, label)


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=1e-3)


def train_step(model, optimizer, x, label, noise):
    sigma = (noise[:, 0] * 1.2 - 1.2).exp()
    weight = (sigma**2 + 0.25) / (sigma * 0.5) ** 2
    denoised = precondition(model, x + noise * sigma[:, None], sigma, label)
    loss = (weight[:, None] * F.mse_loss(denoised, x, reduction="none")).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach().item()
