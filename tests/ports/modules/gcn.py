"""A graph convolutional network that labels nodes, from a list of edges."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class GCNConv(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.FloatTensor(in_features, out_features))
        self.bias = nn.Parameter(torch.FloatTensor(out_features))
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1.0 / self.weight.size(1) ** 0.5
        self.weight.data.uniform_(-stdv, stdv)
        self.bias.data.uniform_(-stdv, stdv)

    def forward(self, x, edge_index, num_nodes):
        loops = torch.arange(num_nodes, device=x.device)
        row = torch.cat([edge_index[0], loops])
        col = torch.cat([edge_index[1], loops])
        deg = torch.zeros(num_nodes, device=x.device).scatter_add(
            0, col, torch.ones_like(col, dtype=x.dtype)
        )
        deg_inv_sqrt = deg.pow(-0.5)
        deg_inv_sqrt = deg_inv_sqrt.masked_fill(deg_inv_sqrt == float("inf"), 0)
        norm = deg_inv_sqrt[row] * deg_inv_sqrt[col]
        h = x @ self.weight
        out = torch.zeros_like(h).index_add(0, col, norm.view(-1, 1) * h[row])
        return out + self.bias


class GCN(nn.Module):
    def __init__(self, nfeat=7, nhid=16, nclass=3, dropout=0.0):
        super().__init__()
        self.gc1 = GCNConv(nfeat, nhid)
        self.gc2 = GCNConv(nhid, nclass)
        self.dropout = dropout

    def forward(self, x, edge_index):
        n = x.size(0)
        x = F.relu(self.gc1(x, edge_index, n))
        x = F.dropout(x, self.dropout, training=self.training)
        x = self.gc2(x, edge_index, n)
        return F.log_softmax(x, dim=1)


def build():
    return GCN()


def batch(rng):
    x = rng.standard_normal((12, 7)).astype("float32")
    edges = rng.integers(0, 12, (2, 30))
    return x, edges, rng.integers(0, 3, 12), rng.random(12) < 0.6


def predict(model, x, edge_index, labels, train_mask):
    return model(x, edge_index)


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)


def train_step(model, optimizer, x, edge_index, labels, train_mask):
    model.train()
    optimizer.zero_grad()
    out = model(x, edge_index)
    loss = F.nll_loss(out[train_mask], labels[train_mask])
    loss.backward()
    optimizer.step()
    return loss.item()


def after(model, x, edge_index, labels, train_mask):
    model.eval()
    pred = model(x, edge_index).argmax(dim=1)
    correct = (pred[~train_mask] == labels[~train_mask]).sum()
    return model(x, edge_index), correct
