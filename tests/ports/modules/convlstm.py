"""A convolutional LSTM that predicts the next frame of a film."""

import torch
import torch.nn as nn


class ConvLSTMCell(nn.Module):
    def __init__(self, input_dim, hidden_dim, kernel_size):
        super().__init__()
        self.hidden_dim = hidden_dim
        self.conv = nn.Conv2d(
            in_channels=input_dim + hidden_dim,
            out_channels=4 * hidden_dim,
            kernel_size=kernel_size,
            padding=kernel_size // 2,
        )

    def forward(self, input_tensor, cur_state):
        h_cur, c_cur = cur_state
        combined = torch.cat([input_tensor, h_cur], dim=1)
        combined_conv = self.conv(combined)
        cc_i, cc_f, cc_o, cc_g = torch.split(combined_conv, self.hidden_dim, dim=1)
        i = torch.sigmoid(cc_i)
        f = torch.sigmoid(cc_f)
        o = torch.sigmoid(cc_o)
        g = torch.tanh(cc_g)
        c_next = f * c_cur + i * g
        h_next = o * torch.tanh(c_next)
        return h_next, c_next

    def init_hidden(self, batch_size, image_size):
        height, width = image_size
        device = self.conv.weight.device
        return (
            torch.zeros(batch_size, self.hidden_dim, height, width, device=device),
            torch.zeros(batch_size, self.hidden_dim, height, width, device=device),
        )


class ConvLSTM(nn.Module):
    def __init__(self, input_dim=1, hidden_dims=(4, 4), kernel_size=3):
        super().__init__()
        cells = []
        for i, hidden in enumerate(hidden_dims):
            cells.append(
                ConvLSTMCell(input_dim if i == 0 else hidden_dims[i - 1], hidden, kernel_size)
            )
        self.cell_list = nn.ModuleList(cells)
        self.readout = nn.Conv2d(hidden_dims[-1], 1, 1)

    def forward(self, frames):
        b, seq_len, _, h, w = frames.size()
        current = frames
        for cell in self.cell_list:
            state = cell.init_hidden(b, (h, w))
            output_inner = []
            for t in range(seq_len):
                state = cell(current[:, t, :, :, :], state)
                output_inner.append(state[0])
            current = torch.stack(output_inner, dim=1)
        return self.readout(current.flatten(0, 1)).unflatten(0, (b, seq_len))


def build():
    return ConvLSTM()


def batch(rng):
    return (rng.random((2, 4, 1, 6, 6)).astype("float32"),)


def predict(model, frames):
    return model(frames)


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=1e-3, amsgrad=True)


def train_step(model, optimizer, frames):
    criterion = nn.BCEWithLogitsLoss()
    loss = criterion(model(frames[:, :-1]), frames[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
