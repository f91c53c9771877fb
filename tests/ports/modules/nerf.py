"""A NeRF: positions with frequencies, a multilayer perceptron, and volume rendering along rays."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class PositionalEncoding(nn.Module):
    def __init__(self, num_freqs, include_input=True):
        super().__init__()
        self.include_input = include_input
        self.register_buffer("freqs", 2.0 ** torch.linspace(0.0, num_freqs - 1, num_freqs))

    def forward(self, x):
        scaled = (x[..., None, :] * self.freqs[:, None]).flatten(-2)
        parts = [torch.sin(scaled), torch.cos(scaled)]
        if self.include_input:
            parts.insert(0, x)
        return torch.cat(parts, -1)


class NeRF(nn.Module):
    def __init__(self, D=3, W=24, skips=(1,), pos_freqs=4, dir_freqs=2):
        super().__init__()
        self.skips = skips
        self.pos_enc = PositionalEncoding(pos_freqs)
        self.dir_enc = PositionalEncoding(dir_freqs)
        in_pos, in_dir = 3 + 6 * pos_freqs, 3 + 6 * dir_freqs
        self.pts_linears = nn.ModuleList(
            [nn.Linear(in_pos, W)]
            + [nn.Linear(W + in_pos if i in self.skips else W, W) for i in range(D - 1)]
        )
        self.sigma = nn.Linear(W, 1)
        self.feature = nn.Linear(W, W)
        self.view = nn.Linear(W + in_dir, W // 2)
        self.rgb = nn.Linear(W // 2, 3)

    def forward(self, pts, viewdirs):
        encoded = self.pos_enc(pts)
        h = encoded
        for i, layer in enumerate(self.pts_linears):
            h = F.relu(layer(h))
            if i in self.skips:
                h = torch.cat([encoded, h], -1)
        sigma = F.relu(self.sigma(h)).squeeze(-1)
        dirs = self.dir_enc(viewdirs)[:, None].expand(-1, pts.shape[1], -1)
        h = F.relu(self.view(torch.cat([self.feature(h), dirs], -1)))
        return torch.sigmoid(self.rgb(h)), sigma


def render_rays(model, rays_o, rays_d, near=1.0, far=3.0, n_samples=8):
    z_vals = torch.linspace(near, far, n_samples, device=rays_o.device)
    pts = rays_o[:, None, :] + rays_d[:, None, :] * z_vals[None, :, None]
    rgb, sigma = model(pts, F.normalize(rays_d, dim=-1))
    deltas = z_vals[1:] - z_vals[:-1]
    deltas = torch.cat([deltas, torch.tensor([1e10])])
    alpha = 1.0 - torch.exp(-sigma * deltas)
    trans = torch.cumprod(
        torch.cat([torch.ones((alpha.shape[0], 1)), 1.0 - alpha + 1e-10], -1), -1
    )[:, :-1]
    weights = alpha * trans
    color = torch.sum(weights[..., None] * rgb, -2)
    depth = torch.sum(weights * z_vals, -1)
    return color, depth


def build():
    return NeRF()


def batch(rng):
    origins = rng.standard_normal((6, 3)).astype("float32") * 0.1
    directions = rng.standard_normal((6, 3)).astype("float32")
    return origins, directions, rng.random((6, 3)).astype("float32")


def predict(model, rays_o, rays_d, target):
    return render_rays(model, rays_o, rays_d)


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=5e-4, betas=(0.9, 0.999))


def train_step(model, optimizer, rays_o, rays_d, target):
    color, _ = render_rays(model, rays_o, rays_d)
    loss = torch.mean((color - target) ** 2)
    psnr = -10.0 * torch.log10(loss.detach())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for group in optimizer.param_groups:
        group["lr"] *= 0.9
    return psnr.item()
