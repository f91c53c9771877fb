"""A mixture density network, with the densities of torch.distributions."""

import torch
import torch.distributions as D
import torch.nn as nn
import torch.nn.functional as F


class MDN(nn.Module):
    def __init__(self, n_in=2, n_out=3, hidden=16, components=4):
        super().__init__()
        self.n_out, self.k = n_out, components
        self.trunk = nn.Sequential(nn.Linear(n_in, hidden), nn.Tanh())
        self.pi = nn.Linear(hidden, components)
        self.mu = nn.Linear(hidden, components * n_out)
        self.sigma = nn.Linear(hidden, components * n_out)

    def forward(self, x):
        h = self.trunk(x)
        mean = self.mu(h).view(-1, self.k, self.n_out)
        std = F.softplus(self.sigma(h)).view(-1, self.k, self.n_out) + 1e-3
        mix = D.Categorical(logits=self.pi(h))
        comp = D.Independent(D.Normal(mean, std), 1)
        return D.MixtureSameFamily(mix, comp)


def build():
    return MDN()


def batch(rng):
    return rng.standard_normal((7, 2)).astype("float32"), rng.random((7, 3)).astype("float32")


def predict(model, x, y):
    gmm = model(x)
    return gmm.log_prob(y), gmm.mean, gmm.mixture_distribution.probs


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=1e-2)


def train_step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = -model(x).log_prob(y).mean()
    prior = D.Normal(0.0, 1.0)
    penalty = sum(-prior.log_prob(p).sum() for p in model.parameters())
    total = loss + 1e-4 * penalty
    total.backward()
    optimizer.step()
    return total.item()


def after(model, x, y):
    gmm = model(x)
    sample = gmm.sample()
    assert sample.shape == y.shape and bool(torch.isfinite(sample).all())
    q, p = gmm.component_distribution.base_dist, D.Normal(torch.zeros(3), torch.ones(3))
    return D.kl_divergence(q, p), q.entropy(), gmm.variance
