"""A translator with attention: a recurrent encoder, and a decoder that is told the target."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim

PAD = 0


class Encoder(nn.Module):
    def __init__(self, vocab, emb, hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab, emb, padding_idx=PAD)
        self.rnn = nn.GRU(emb, hidden, bidirectional=True)
        self.fc = nn.Linear(hidden * 2, hidden)

    def forward(self, src):
        outputs, hidden = self.rnn(self.embedding(src))
        hidden = torch.tanh(self.fc(torch.cat((hidden[-2, :, :], hidden[-1, :, :]), dim=1)))
        return outputs, hidden


class Attention(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.attn = nn.Linear(hidden * 3, hidden)
        self.v = nn.Linear(hidden, 1, bias=False)

    def forward(self, hidden, encoder_outputs, mask):
        src_len = encoder_outputs.shape[0]
        hidden = hidden.unsqueeze(1).repeat(1, src_len, 1)
        encoder_outputs = encoder_outputs.permute(1, 0, 2)
        energy = torch.tanh(self.attn(torch.cat((hidden, encoder_outputs), dim=2)))
        attention = self.v(energy).squeeze(2)
        attention = attention.masked_fill(mask == 0, -1e10)
        return F.softmax(attention, dim=1)


class Decoder(nn.Module):
    def __init__(self, vocab, emb, hidden):
        super().__init__()
        self.vocab = vocab
        self.embedding = nn.Embedding(vocab, emb)
        self.attention = Attention(hidden)
        self.rnn = nn.GRU(hidden * 2 + emb, hidden)
        self.fc_out = nn.Linear(hidden * 3 + emb, vocab)

    def forward(self, token, hidden, encoder_outputs, mask):
        embedded = self.embedding(token.unsqueeze(0))
        a = self.attention(hidden, encoder_outputs, mask).unsqueeze(1)
        weighted = torch.bmm(a, encoder_outputs.permute(1, 0, 2)).permute(1, 0, 2)
        output, hidden = self.rnn(torch.cat((embedded, weighted), dim=2), hidden.unsqueeze(0))
        assert output.shape == hidden.shape
        joined = torch.cat((output.squeeze(0), weighted.squeeze(0), embedded.squeeze(0)), dim=1)
        return self.fc_out(joined), hidden.squeeze(0)


class Seq2Seq(nn.Module):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(self, src, trg):
        trg_len = trg.shape[0]
        outputs = []
        encoder_outputs, hidden = self.encoder(src)
        mask = (src != PAD).permute(1, 0)
        for t in range(trg_len - 1):
            output, hidden = self.decoder(trg[t], hidden, encoder_outputs, mask)
            outputs.append(output)
        return torch.stack(outputs)


def init_weights(m):
    for name, param in m.named_parameters():
        if "weight" in name:
            nn.init.normal_(param.data, mean=0, std=0.1)
        else:
            nn.init.constant_(param.data, 0)


def build():
    model = Seq2Seq(Encoder(9, 6, 8), Decoder(10, 6, 8))
    model.apply(init_weights)
    return model


def batch(rng):
    src, trg = rng.integers(1, 9, (5, 3)), rng.integers(1, 10, (4, 3))
    src[3:, 1] = PAD
    trg[3:, 2] = PAD
    return src, trg


def predict(model, src, trg):
    return model(src, trg)


def optimizer(model):
    return optim.Adam(model.parameters(), lr=5e-3)


criterion = nn.CrossEntropyLoss(ignore_index=PAD)


def train_step(model, optimizer, src, trg):
    model.train()
    optimizer.zero_grad()
    output = model(src, trg)
    output = output.view(-1, output.shape[-1])
    loss = criterion(output, trg[1:].view(-1))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
    optimizer.step()
    return loss.item()


def after(model, src, trg):
    """Greedy decoding."""
    model.eval()
    with torch.no_grad():
        encoder_outputs, hidden = model.encoder(src)
        mask = (src != PAD).permute(1, 0)
        token = torch.ones(src.shape[1], dtype=torch.long)
        tokens = []
        for _ in range(3):
            output, hidden = model.decoder(token, hidden, encoder_outputs, mask)
            token = output.argmax(1)
            tokens.append(token.tolist())
    return torch.tensor(tokens)
