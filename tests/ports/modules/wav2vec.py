"""The features of wav2vec 2.0: convolutions over sound, masked transformer, quantised targets."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class FeatureExtractor(nn.Module):
    def __init__(self, layers=((8, 10, 5), (8, 3, 2), (8, 2, 2))):
        super().__init__()
        self.conv_layers = nn.ModuleList()
        in_d = 1
        for i, (dim, k, stride) in enumerate(layers):
            norm = nn.GroupNorm(dim, dim, affine=True) if i == 0 else nn.Identity()
            conv = nn.Conv1d(in_d, dim, k, stride=stride, bias=False)
            nn.init.kaiming_normal_(conv.weight)
            self.conv_layers.append(nn.Sequential(conv, norm, nn.GELU()))
            in_d = dim

    def forward(self, x):
        x = x.unsqueeze(1)
        for conv in self.conv_layers:
            x = conv(x)
        return x.transpose(1, 2)


class PositionalConv(nn.Module):
    def __init__(self, dim, kernel=4, groups=2):
        super().__init__()
        self.conv = nn.Conv1d(dim, dim, kernel, padding=kernel // 2, groups=groups)
        self.remove = 1 if kernel % 2 == 0 else 0

    def forward(self, x):
        y = self.conv(x.transpose(1, 2))
        if self.remove > 0:
            y = y[:, :, : -self.remove]
        return F.gelu(y).transpose(1, 2)


class Wav2Vec(nn.Module):
    def __init__(self, dim=16, heads=2, codes=6):
        super().__init__()
        self.extractor = FeatureExtractor()
        self.norm = nn.LayerNorm(8)
        self.project = nn.Linear(8, dim)
        self.mask_emb = nn.Parameter(torch.FloatTensor(dim).uniform_())
        self.pos_conv = PositionalConv(dim)
        layer = nn.TransformerEncoderLayer(
            d_model=dim,
            nhead=heads,
            dim_feedforward=32,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.codebook = nn.Parameter(torch.randn(codes, dim))
        self.to_logits = nn.Linear(8, codes)

    def quantize(self, features, tau=1.0):
        logits = self.to_logits(features)
        soft = F.softmax(logits / tau, dim=-1)
        hard = F.one_hot(soft.argmax(-1), soft.size(-1)).type_as(soft)
        onehot = hard - soft.detach() + soft
        perplexity = torch.exp(-torch.sum(soft.mean((0, 1)) * torch.log(soft.mean((0, 1)) + 1e-7)))
        return onehot @ self.codebook, perplexity

    def forward(self, wave, mask):
        features = self.norm(self.extractor(wave))
        x = self.project(features)
        x = torch.where(mask.unsqueeze(-1), self.mask_emb, x)
        x = x + self.pos_conv(x)
        x = self.encoder(x)
        targets, perplexity = self.quantize(features)
        return x, targets, perplexity


def build():
    return Wav2Vec()


def batch(rng):
    wave = rng.standard_normal((2, 150)).astype("float32")
    mask = rng.random((2, 7)) < 0.5
    negatives = rng.integers(0, 7, (2, 7, 3))
    return wave, mask, negatives


def predict(model, wave, mask, negatives):
    return model(wave, mask)


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-6)


def train_step(model, optimizer, wave, mask, negatives):
    x, targets, perplexity = model(wave, mask)
    b, t, d = x.shape
    index = negatives.view(b, -1, 1).expand(-1, -1, d)
    sampled = torch.gather(targets, 1, index).view(b, t, -1, d)
    choices = torch.cat([targets.unsqueeze(2), sampled], dim=2)
    logits = torch.cosine_similarity(x.unsqueeze(2), choices, dim=-1) / 0.1
    per_step = F.cross_entropy(
        logits.flatten(0, 1), torch.zeros(b * t, dtype=torch.long), reduction="none"
    )
    loss = (per_step * mask.flatten()).sum() / mask.sum()
    loss = loss + 0.1 * (6 - perplexity) / 6
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
