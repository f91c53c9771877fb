"""RNN, GRU and LSTM: one or two directions, gates in ONNX's order, lengths of sequences."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import luminal as lm
from luminal.base.records import dataclass
from luminal.frontend.tensor import Tensor
from luminal.nn import functional as F
from luminal.nn.recurrent import Carry, along
from luminal.onnx.call import Call
from luminal.onnx.errors import OnnxError, UnsupportedError
from luminal.onnx.table import operator

Activation = Callable[[Tensor], Tensor]


def _activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    a = 1.0 if alpha is None else alpha
    b = 1.0 if beta is None else beta
    by_name: dict[str, Activation] = {
        "affine": lambda x: x * a + (0.0 if beta is None else beta),
        "elu": lambda x: F.elu(x, a),
        "hardsigmoid": lambda x: (
            x * (0.2 if alpha is None else alpha) + (0.5 if beta is None else beta)
        ).clip(0, 1),
        "leakyrelu": lambda x: F.leaky_relu(x, 0.01 if alpha is None else alpha),
        "relu": F.relu,
        "scaledtanh": lambda x: (x * b).tanh() * a,
        "sigmoid": lm.sigmoid,
        "softplus": F.softplus,
        "softsign": F.softsign,
        "tanh": lm.tanh,
        "thresholdedrelu": lambda x: lm.where(x > a, x, 0),
    }
    function = by_name.get(name.lower())
    if function is None:
        raise UnsupportedError(f"activation {name!r}; there are {', '.join(sorted(by_name))}")
    return function


@dataclass(frozen=True, slots=True)
class _Layer:
    """One direction: weights, biases as one vector each, activations, options."""

    x: Tensor  # (steps, batch, width)
    weight: Tensor  # (gates * hidden, width)
    recurrent: Tensor  # (gates * hidden, hidden)
    bias: Tensor | None  # (gates * hidden,), for the input
    recurrent_bias: Tensor | None
    peepholes: tuple[Tensor, ...]  # of an LSTM: i, o, f
    activations: tuple[Activation, ...]
    hidden: int
    clip: float | None
    option: bool  # linear_before_reset, or input_forget

    def cut(self, x: Tensor) -> Tensor:
        """Within -clip and clip."""
        return x if self.clip is None else x.clip(-self.clip, self.clip)

    def from_input(self) -> Tensor:
        """x's share of the gates, of all steps at once."""
        gates = self.x @ self.weight.mT
        return gates if self.bias is None else gates + self.bias

    def part(self, x: Tensor | None, k: int) -> Any:
        """The k-th gate's share of weights (rows) or of a vector."""
        return None if x is None else x.narrow(0, k * self.hidden, self.hidden)


def _rnn(layer: _Layer, gates: Tensor, carry: Carry) -> Carry:
    summed = gates + carry[0] @ layer.recurrent.mT
    if layer.recurrent_bias is not None:
        summed = summed + layer.recurrent_bias
    return (layer.activations[0](layer.cut(summed)),)


def _gru(layer: _Layer, gates: Tensor, carry: Carry) -> Carry:
    (h,) = carry
    f, g = layer.activations[:2]
    xz, xr, xn = gates.chunk(3, -1)
    rz, rr, rn = (layer.part(layer.recurrent, k) for k in range(3))
    bz, br, bn = (layer.part(layer.recurrent_bias, k) for k in range(3))

    def share(x: Tensor, weight: Tensor, bias: Any) -> Tensor:
        y = x @ weight.mT
        return y if bias is None else y + bias

    z = f(layer.cut(xz + share(h, rz, bz)))
    r = f(layer.cut(xr + share(h, rr, br)))
    # linear_before_reset: cuDNN and PyTorch reset the product, the paper (arXiv 1406.1078) what
    # enters it.
    inner = r * share(h, rn, bn) if layer.option else share(r * h, rn, bn)
    n = g(layer.cut(xn + inner))
    return ((1 - z) * n + z * h,)


def _lstm(layer: _Layer, gates: Tensor, carry: Carry) -> Carry:
    h, c = carry
    f, g, last = layer.activations[:3]
    summed = gates + h @ layer.recurrent.mT
    if layer.recurrent_bias is not None:
        summed = summed + layer.recurrent_bias
    i, o, forget, new = summed.chunk(4, -1)
    if layer.peepholes:
        i, forget = i + layer.peepholes[0] * c, forget + layer.peepholes[2] * c
    i = f(layer.cut(i))
    forget = 1 - i if layer.option else f(layer.cut(forget))
    c = forget * c + i * g(layer.cut(new))
    if layer.peepholes:
        o = o + layer.peepholes[1] * c
    return f(layer.cut(o)) * last(c), c


_KINDS: dict[str, tuple[Callable[[_Layer, Tensor, Carry], Carry], int, tuple[str, ...]]] = {
    "RNN": (_rnn, 1, ("Tanh",)),
    "GRU": (_gru, 3, ("Sigmoid", "Tanh")),
    "LSTM": (_lstm, 4, ("Sigmoid", "Tanh", "Tanh")),
}
"""The step, the number of gates, and the activations of one direction."""


@operator("RNN", "GRU", "LSTM")
def recurrent(call: Call, x: Tensor, *rest: Any) -> Any:
    """All outputs (steps, directions, batch, hidden), and the last ones of each direction."""
    weight, inner, bias, lengths, first, cell, peepholes = (*rest, *(None,) * 7)[:7]
    step, gates, _ = _KINDS[call.node.op_type]
    if call.attribute("layout", 0):
        x = x.transpose(0, 1)
    if lengths is not None:
        call.within(lengths, 0, x.extents[0] + 1, "length")
        first, cell = (None if s is None else s.transpose(0, 1) for s in (first, cell))
    hidden = inner.shape[-1]
    if call.attribute("hidden_size", hidden) != hidden:
        raise OnnxError(f"hidden_size is not that of {inner.value.type}")
    direction = call.attribute("direction", "forward")
    count = 2 if direction == "bidirectional" else 1
    outputs, lasts = [], []
    for k in range(count):
        vector = None if bias is None else bias.select(0, k)
        layer = _Layer(
            x, weight.select(0, k), inner.select(0, k),
            None if vector is None else vector.narrow(0, 0, gates * hidden),
            None if vector is None else vector.narrow(0, gates * hidden, gates * hidden),
            () if peepholes is None else peepholes.select(0, k).chunk(3, -1),
            _activations(call, k, count), hidden, call.attribute("clip"),
            bool(call.attribute("linear_before_reset", 0) or call.attribute("input_forget", 0)),
        )  # fmt: skip
        zeros = call.graph.zeros((x.extents[1], hidden), dtype=x.dtype)
        states = [first, cell] if call.node.op_type == "LSTM" else [first]
        start = tuple(zeros if s is None else s.select(0, k) for s in states)
        backward = direction == "reverse" or k == 1
        # The input's share is one product over all steps; the loop has only what depends on the
        # step before.
        last, y = along(partial(step, layer), start, layer.from_input(), backward, lengths)
        outputs.append(y)
        lasts.append(last)
    whole = lm.stack(outputs, 1)
    ends = [lm.stack(ends_of_kind) for ends_of_kind in zip(*lasts, strict=True)]
    if call.attribute("layout", 0):
        whole = whole.permute(2, 0, 1, 3)
        ends = [end.transpose(0, 1) for end in ends]
    return (whole, *ends)


def _activations(call: Call, direction: int, count: int) -> tuple[Activation, ...]:
    _, _, defaults = _KINDS[call.node.op_type]
    names = call.attribute("activations") or [*defaults] * count
    alphas = iter(call.attribute("activation_alpha") or [])
    betas = iter(call.attribute("activation_beta") or [])
    functions = []
    for name in names:  # a list of numbers for those that take one, in order
        takes_alpha, takes_beta = _TAKES.get(name.lower(), (False, False))
        alpha = next(alphas, None) if takes_alpha else None
        functions.append(_activation(name, alpha, next(betas, None) if takes_beta else None))
    size = len(defaults)
    return tuple(functions[direction * size : (direction + 1) * size])


_TAKES = {
    "affine": (True, True),
    "elu": (True, False),
    "hardsigmoid": (True, True),
    "leakyrelu": (True, False),
    "scaledtanh": (True, True),
    "thresholdedrelu": (True, False),
}
