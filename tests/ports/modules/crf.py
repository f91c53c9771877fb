"""A linear-chain CRF on top of a recurrent tagger: likelihood, and Viterbi's best path."""

import torch
import torch.nn as nn


class CRF(nn.Module):
    def __init__(self, num_tags):
        super().__init__()
        self.num_tags = num_tags
        self.start_transitions = nn.Parameter(torch.empty(num_tags))
        self.end_transitions = nn.Parameter(torch.empty(num_tags))
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags))
        for p in (self.start_transitions, self.end_transitions, self.transitions):
            nn.init.uniform_(p, -0.1, 0.1)

    def forward(self, emissions, tags, mask):
        """The mean log likelihood; emissions are (length, batch, tags)."""
        numerator = self._score(emissions, tags, mask.float())
        denominator = self._normalizer(emissions, mask)
        return (numerator - denominator).mean()

    def _score(self, emissions, tags, mask):
        seq_length, batch_size = tags.shape
        rows = torch.arange(batch_size)
        score = self.start_transitions[tags[0]]
        score += emissions[0, rows, tags[0]]
        for i in range(1, seq_length):
            score += self.transitions[tags[i - 1], tags[i]] * mask[i]
            score += emissions[i, rows, tags[i]] * mask[i]
        seq_ends = mask.long().sum(dim=0) - 1
        last_tags = tags[seq_ends, rows]
        score += self.end_transitions[last_tags]
        return score

    def _normalizer(self, emissions, mask):
        score = self.start_transitions + emissions[0]
        for i in range(1, emissions.size(0)):
            broadcast_score = score.unsqueeze(2)
            broadcast_emissions = emissions[i].unsqueeze(1)
            next_score = broadcast_score + self.transitions + broadcast_emissions
            next_score = torch.logsumexp(next_score, dim=1)
            score = torch.where(mask[i].unsqueeze(1), next_score, score)
        score += self.end_transitions
        return torch.logsumexp(score, dim=1)

    @torch.no_grad()
    def decode(self, emissions, mask):
        seq_length, batch_size = mask.shape
        score = self.start_transitions + emissions[0]
        history = []
        for i in range(1, seq_length):
            next_score = score.unsqueeze(2) + self.transitions + emissions[i].unsqueeze(1)
            next_score, indices = next_score.max(dim=1)
            score = torch.where(mask[i].unsqueeze(1), next_score, score)
            history.append(indices)
        score += self.end_transitions
        seq_ends = mask.long().sum(dim=0) - 1
        best = []
        for b in range(batch_size):
            _, last = score[b].max(dim=0)
            tags = [last.item()]
            for hist in reversed(history[: seq_ends[b]]):
                tags.append(hist[b][tags[-1]].item())
            tags.reverse()
            best.append(tags)
        return best


class Tagger(nn.Module):
    def __init__(self, vocab=13, hidden=10, tags=4):
        super().__init__()
        self.word_embeds = nn.Embedding(vocab, 6)
        self.lstm = nn.LSTM(6, hidden // 2, num_layers=1, bidirectional=True)
        self.hidden2tag = nn.Linear(hidden, tags)
        self.crf = CRF(tags)

    def features(self, words):
        out, _ = self.lstm(self.word_embeds(words))
        return self.hidden2tag(out)

    def forward(self, words, tags, mask):
        return -self.crf(self.features(words), tags, mask)


def build():
    return Tagger()


def batch(rng):
    lengths = rng.integers(2, 7, 3)
    mask = (rng.permutation(7) * 0 + range(7))[:, None] < lengths
    return rng.integers(0, 13, (7, 3)), rng.integers(0, 4, (7, 3)), mask


def predict(model, words, tags, mask):
    return model(words, tags, mask)


def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, weight_decay=1e-4)


def train_step(model, optimizer, words, tags, mask):
    model.zero_grad()
    loss = model(words, tags, mask)
    loss.backward()
    optimizer.step()
    return loss.item()


def after(model, words, tags, mask):
    paths = model.crf.decode(model.features(words), mask)
    assert [len(path) for path in paths] == mask.sum(0).tolist()
    return torch.tensor(sum(paths, []))
