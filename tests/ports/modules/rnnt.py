"""An RNN transducer: encoder, prediction network, joint, and the loss as a loop over diagonals."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Joint(nn.Module):
    def __init__(self, enc_dim, pred_dim, joint_dim, vocab):
        super().__init__()
        self.enc_proj = nn.Linear(enc_dim, joint_dim)
        self.pred_proj = nn.Linear(pred_dim, joint_dim, bias=False)
        self.out = nn.Linear(joint_dim, vocab)

    def forward(self, enc, pred):
        # (B, T, 1, H) + (B, 1, U, H)
        h = torch.tanh(self.enc_proj(enc).unsqueeze(2) + self.pred_proj(pred).unsqueeze(1))
        return self.out(h)


class Transducer(nn.Module):
    def __init__(self, n_mels=8, vocab=6, hidden=12, blank=0):
        super().__init__()
        self.blank = blank
        self.encoder = nn.LSTM(n_mels, hidden, num_layers=2, batch_first=True, bidirectional=True)
        self.embed = nn.Embedding(vocab, hidden, padding_idx=blank)
        self.predictor = nn.GRU(hidden, hidden, batch_first=True)
        self.joint = Joint(2 * hidden, hidden, 16, vocab)

    def forward(self, audio, targets):
        enc, _ = self.encoder(audio)
        start = torch.full((targets.size(0), 1), self.blank, dtype=torch.long)
        history = torch.cat([start, targets], dim=1)
        pred, _ = self.predictor(self.embed(history))
        return self.joint(enc, pred)


def transducer_loss(logits, targets, blank=0):
    """All sequences have the full length here."""
    log_probs = F.log_softmax(logits, dim=-1)
    B, T, U1, _ = log_probs.shape
    blanks = log_probs[..., blank]
    labels = (
        log_probs[:, :, :-1].gather(3, targets[:, None, :, None].expand(B, T, U1 - 1, 1)).squeeze(3)
    )
    alpha = [[None] * U1 for _ in range(T)]
    alpha[0][0] = log_probs.new_zeros(B)
    for t in range(T):
        for u in range(U1):
            terms = []
            if t > 0:
                terms.append(alpha[t - 1][u] + blanks[:, t - 1, u])
            if u > 0:
                terms.append(alpha[t][u - 1] + labels[:, t, u - 1])
            if terms:
                alpha[t][u] = torch.logsumexp(torch.stack(terms), dim=0)
    return -(alpha[-1][-1] + blanks[:, -1, -1]).mean()


def build():
    return Transducer()


def batch(rng):
    return rng.standard_normal((2, 5, 8)).astype("float32"), rng.integers(1, 6, (2, 3))


def predict(model, audio, targets):
    return model(audio, targets)


def optimizer(model):
    return torch.optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.95)


def train_step(model, optimizer, audio, targets):
    optimizer.zero_grad()
    loss = transducer_loss(model(audio, targets), targets)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=5.0)
    optimizer.step()
    return loss.item()


@torch.no_grad()
def after(model, audio, targets):
    model.eval()
    enc, (h, c) = model.encoder(audio)
    pred, state = model.predictor(model.embed(targets[:, :1]))
    best = model.joint(enc, pred).argmax(-1)
    return best, h, c, state
