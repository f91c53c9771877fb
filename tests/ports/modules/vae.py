"""A variational autoencoder of small black and white images."""

import torch
from torch import nn, optim
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self, image=64, hidden=24, latent=5):
        super().__init__()
        self.fc1 = nn.Linear(image, hidden)
        self.fc21 = nn.Linear(hidden, latent)
        self.fc22 = nn.Linear(hidden, latent)
        self.fc3 = nn.Linear(latent, hidden)
        self.fc4 = nn.Linear(hidden, image)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar, eps=None):
        std = torch.exp(0.5 * logvar)
        if eps is None:
            eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        h3 = F.relu(self.fc3(z))
        return torch.sigmoid(self.fc4(h3))

    def forward(self, x, eps=None):
        mu, logvar = self.encode(x.view(x.size(0), -1))
        z = self.reparameterize(mu, logvar, eps)
        return self.decode(z), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 64), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


def build():
    return VAE()


def batch(rng):
    images = (rng.random((6, 1, 8, 8)) > 0.5).astype("float32")
    return images, rng.standard_normal((6, 5)).astype("float32")


def predict(model, images, eps):
    return model(images, eps)


def optimizer(model):
    return optim.Adam(model.parameters(), lr=1e-3)


def train_step(model, optimizer, images, eps):
    model.train()
    train_loss = 0
    optimizer.zero_grad()
    recon_batch, mu, logvar = model(images, eps)
    loss = loss_function(recon_batch, images, mu, logvar)
    loss.backward()
    train_loss += loss.item()
    optimizer.step()
    return train_loss / len(images)


def after(model, images, eps):
    with torch.no_grad():
        return model.decode(eps).cpu().view(-1, 1, 8, 8)
