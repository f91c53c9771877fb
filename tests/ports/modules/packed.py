"""A tagger and classifier of sentences of several lengths, which a recurrent layer takes packed."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

PAD = 0


class Tagger(nn.Module):
    def __init__(self, vocab, emb, hidden, n_tags, n_classes):
        super().__init__()
        self.embedding = nn.Embedding(vocab, emb, padding_idx=PAD)
        self.rnn = nn.LSTM(emb, hidden, num_layers=2, bidirectional=True, batch_first=True)
        self.tag = nn.Linear(hidden * 2, n_tags)
        self.classify = nn.Linear(hidden * 2, n_classes)

    def forward(self, text, lengths):
        packed = pack_padded_sequence(
            self.embedding(text), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        output, (hidden, cell) = self.rnn(packed)
        hidden = torch.cat((hidden[-2, :, :], hidden[-1, :, :]), dim=1)
        tags = PackedSequence(
            self.tag(output.data),
            output.batch_sizes,
            output.sorted_indices,
            output.unsorted_indices,
        )
        return tags, self.classify(hidden)


def build():
    return Tagger(12, 6, 5, 4, 3)


def batch(rng):
    lengths = rng.permutation([6, 2, 4])
    text = rng.integers(1, 12, (3, 6))
    for row, length in zip(text, lengths):
        row[length:] = PAD
    return text, lengths, rng.integers(0, 4, (3, 6)), rng.integers(0, 3, 3)


def predict(model, text, lengths, tags, classes):
    scores, logits = model(text, lengths)
    padded, counts = pad_packed_sequence(scores, batch_first=True, padding_value=-1.0)
    assert counts.tolist() == lengths.tolist()
    return padded, logits


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=5e-3)


def train_step(model, optimizer, text, lengths, tags, classes):
    optimizer.zero_grad()
    scores, logits = model(text, lengths)
    targets = pack_padded_sequence(tags, lengths, batch_first=True, enforce_sorted=False)
    loss = F.cross_entropy(scores.data, targets[0]) + F.cross_entropy(logits, classes)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()
