"""Recurrent layers: RNN, LSTM, GRU over a sequence (`lm.scan`), and their cells for one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

from luminal.base.dtypes import float32, int64, promote
from luminal.base.errors import InputError, ShapeError
from luminal.frontend.handle import Shape, describe
from luminal.frontend.movement.views import concat, stack
from luminal.frontend.pointwise.binary import where
from luminal.frontend.scan import scan
from luminal.frontend.tensor import Tensor
from luminal.memory.parameter import Parameter
from luminal.nn import init
from luminal.nn.dropout import Dropout
from luminal.nn.linear import near_zero
from luminal.nn.module import Module
from luminal.nn.packed_sequence import PackedSequence, tensor_of
from luminal.shape.expression import const

Sequences = TypeVar("Sequences", Tensor, PackedSequence)
"""What a layer takes and gives: sequences of one length, or of several."""
Carry: TypeAlias = tuple[Tensor, ...]
"""What a step hands to the next: (h,) or, of an LSTM, (h, c)."""


class _Weights(NamedTuple):
    """One direction of one layer in a graph; `project` is an LSTM's weight_hr."""

    ih: Tensor
    hh: Tensor
    bias_ih: Tensor | None
    bias_hh: Tensor | None
    project: Tensor | None = None

    def from_input(self, x: Tensor) -> Tensor:
        """x's share of the gates, of all steps at once."""
        y = x @ self.ih.mT
        return y if self.bias_ih is None else y + self.bias_ih

    def from_hidden(self, h: Tensor) -> Tensor:
        """The hidden state's share of the gates."""
        y = h @ self.hh.mT
        return y if self.bias_hh is None else y + self.bias_hh


Step: TypeAlias = Callable[[_Weights, Tensor, Carry], Carry]


def _rnn_tanh(w: _Weights, x: Tensor, carry: Carry) -> Carry:
    return ((x + w.from_hidden(carry[0])).tanh(),)


def _rnn_relu(w: _Weights, x: Tensor, carry: Carry) -> Carry:
    return ((x + w.from_hidden(carry[0])).relu(),)


def _lstm(w: _Weights, x: Tensor, carry: Carry) -> Carry:
    h, c = carry
    # PyTorch's order of gates: input, forget, cell, output.
    i, f, g, o = (x + w.from_hidden(h)).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    return (h if w.project is None else h @ w.project.mT), c


def _gru(w: _Weights, x: Tensor, carry: Carry) -> Carry:
    (h,) = carry
    # The reset gate is applied after the product, as cuDNN and PyTorch do; Cho et al. apply it
    # before.
    r, z, n = w.from_hidden(h).chunk(3, -1)
    xr, xz, xn = x.chunk(3, -1)
    update = (xz + z).sigmoid()
    new = (xn + (xr + r).sigmoid() * n).tanh()
    return ((1 - update) * new + update * h,)


RNN_STEPS: dict[str, Step] = {"tanh": _rnn_tanh, "relu": _rnn_relu}


def _rnn_step(nonlinearity: str) -> Step:
    if nonlinearity not in RNN_STEPS:
        raise InputError(f"RNN: nonlinearity {nonlinearity!r} is not known; use 'tanh' or 'relu'")
    return RNN_STEPS[nonlinearity]


def _checked(what: str, begun: Any, batch: Shape, widths: Sequence[int], lead: Shape = ()) -> Carry:
    """States that a call begins with, (*lead, *batch, width) each. Raises ShapeError for others:
    they would be broadcast, or some of them left out.
    """
    listed = [begun] if len(widths) == 1 else begun
    if not isinstance(listed, tuple | list) or len(listed) != len(widths):
        raise ShapeError(f"{what}: it begins with h and c; give both, as (h, c)")
    states = tuple(tensor_of(what, state) for state in listed)
    for state, width in zip(states, widths, strict=True):
        wanted = (*lead, *batch, const(width))
        pairs = list(zip(state.extents, wanted, strict=False))
        if state.ndim != len(wanted) or any(n.is_const and m.is_const and n != m for n, m in pairs):
            shape = ", ".join(map(str, wanted))
            raise ShapeError(f"{what}: begins with {describe(state)}; it takes ({shape})")
        for n, m in pairs:
            state.graph.require(n.eq(m), f"{what}: the state that it begins with")
    return states


# --- over a sequence ------------------------------------------------------------------------------


def along(
    step: Callable[[Tensor, Carry], Carry],
    start: Carry,
    gates: Tensor,
    backwards: bool = False,
    lengths: Tensor | None = None,
) -> tuple[Carry, Tensor]:
    """One direction over the input's share of gates (steps, ..., width): the last carry, and every
    step's h. With `lengths` (batch,) a sequence keeps its carry beyond its own, and h is 0 there.
    """

    def one(carry: Carry, slices: tuple[Tensor, ...]) -> tuple[Carry, Tensor]:
        # A Loop's carried values keep their types from trip to trip.
        new = [n.cast(old.dtype) for n, old in zip(step(slices[0], carry), carry, strict=True)]
        if lengths is None:
            return tuple(new), new[0]
        # A batch has one number of trips, so rows that are done run along.
        inside = (slices[1] < lengths.cast(int64)).unsqueeze(-1)
        kept = tuple(where(inside, n, old) for n, old in zip(new, carry, strict=True))
        return kept, where(inside, new[0], 0)

    streams: tuple[Tensor, ...] = (gates,)
    if lengths is not None:
        streams = (gates, gates.graph.arange(gates.extents[0]))
    # One step is no loop: what is called step by step is a product and what follows it.
    if gates.shape[0] == 1:
        last, y = one(start, tuple(stream.select(0, 0) for stream in streams))
        return last, y.unsqueeze(0)
    if backwards:
        streams = tuple(stream.flip(0) for stream in streams)
    last, ys = scan(one, start, streams)
    return last, ys.flip(0) if backwards else ys


class _Recurrent(Module):
    """Layers of steps over time; Parameters `weight_ih_l0`, `weight_hh_l0_reverse`, ..."""

    gates: ClassVar[int] = 1
    step: Step

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        dtype: Any = float32,
    ) -> None:
        if not 0 <= proj_size < hidden_size:
            raise InputError(f"LSTM: proj_size {proj_size} is not within 0..{hidden_size - 1}")
        self.hidden_size, self.num_layers, self.proj_size = hidden_size, num_layers, proj_size
        self.batch_first = batch_first
        self.dropout = Dropout(dropout)
        self.directions = ("", "_reverse") if bidirectional else ("",)
        width = self.gates * hidden_size
        outer = proj_size or hidden_size
        for layer in range(num_layers):
            inner = input_size if layer == 0 else outer * len(self.directions)
            shapes: dict[str, tuple[int, ...]] = {
                "weight_ih": (width, inner),
                "weight_hh": (width, outer),
            }
            if bias:
                shapes |= {"bias_ih": (width,), "bias_hh": (width,)}
            if proj_size:
                shapes["weight_hr"] = (proj_size, hidden_size)
            for direction in self.directions:
                for name, shape in shapes.items():
                    held = init.parameter(shape, near_zero(hidden_size), dtype)
                    setattr(self, f"{name}_l{layer}{direction}", held)

    def _weights(self, x: Tensor, suffix: str) -> _Weights:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        held: list[Parameter | None] = [getattr(self, f"{n}_{suffix}", None) for n in names]
        ih, hh, *rest = held
        assert ih is not None
        assert hh is not None
        return _Weights(self.read(ih, x), self.read(hh, x), *(self.read(p, x) for p in rest))

    def _run(self, sequences: Sequences, start: Any) -> tuple[Sequences, Carry]:
        """The last layer's outputs, and each part of the last carry, stacked."""
        if isinstance(sequences, PackedSequence):
            lengths = sequences.lengths
            y, final = self._through(sequences.padded, start, lengths.tensor)
            return PackedSequence.of_padded(y, lengths), final
        swapped = self.batch_first and sequences.ndim == 3
        y, final = self._through(sequences.transpose(0, 1) if swapped else sequences, start)
        return (y.transpose(0, 1) if swapped else y), final

    def _through(
        self, x: Tensor, start: Any, lengths: Tensor | None = None
    ) -> tuple[Tensor, Carry]:
        """All layers, of sequences (steps, batch, features)."""
        if x.ndim != 3 and (x.ndim != 2 or lengths is not None):
            raise ShapeError(
                f"{type(self).__name__}: {describe(x)}; it takes (length, batch, features), or "
                "(length, features)"
            )
        if start is not None:
            count = const(self.num_layers * len(self.directions))
            kind = type(self).__name__
            start = _checked(kind, start, x.extents[1:-1], self._widths, (count,))
        y, lasts = x, list[Carry]()
        for layer in range(self.num_layers):
            outputs = []
            for direction in self.directions:
                weights = self._weights(x, f"l{layer}{direction}")
                carry = self._start(y, weights, start, len(lasts))
                # The input's share of all steps is one large product before the loop; in the loop
                # only that of the hidden state is left.
                gates = weights.from_input(y)
                step = partial(self.step, weights)
                last, output = along(step, carry, gates, bool(direction), lengths)
                lasts.append(last)
                outputs.append(output)
            y = concat(outputs, -1) if len(outputs) > 1 else outputs[0]
            if layer + 1 < self.num_layers:
                y = self.dropout(y)
        return y, tuple(stack(states, 0) for states in zip(*lasts, strict=True))

    def _start(self, x: Tensor, w: _Weights, start: Carry | None, number: int) -> Carry:
        """Where a direction of a layer begins: zeros, or its slices of what was given."""
        # What a step gives has this dtype, and a Loop's values keep theirs: begun in a narrower one
        # the state would be rounded at every step.
        dtype = promote(promote(x.dtype, w.ih.dtype), w.hh.dtype)
        if start is not None:
            return tuple(states[number].cast(dtype) for states in start)
        return tuple(x.graph.zeros((*x.extents[1:-1], n), dtype) for n in self._widths)

    @property
    def _widths(self) -> tuple[int, ...]:
        """The width of h and, in an LSTM, that of c."""
        widths = (self.proj_size or self.hidden_size, self.hidden_size)
        return widths if isinstance(self, LSTM) else widths[:1]


class RNN(_Recurrent):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu. Elman 1990."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: Any = float32,
    ) -> None:
        self.step = _rnn_step(nonlinearity)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, dtype
        )

    def forward(self, x: Sequences, h0: Tensor | None = None) -> tuple[Sequences, Tensor]:
        """x (length, batch, input) to every h of the last layer, and the last h of every layer.

        Shapes: (length, batch, directions * hidden), (layers * directions, batch, hidden). Of a
        PackedSequence every h is one, and the last h is that of each sequence's own end.
        """
        y, (h,) = self._run(x, h0)
        return y, h


class GRU(_Recurrent):
    """Gated recurrent unit, with the reset gate after the product. Cho et al., arXiv 1406.1078."""

    gates = 3
    step = staticmethod(_gru)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: Any = float32,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, dtype
        )

    def forward(self, x: Sequences, h0: Tensor | None = None) -> tuple[Sequences, Tensor]:
        """Every h of the last layer, and the last h of every layer; see `RNN`."""
        y, (h,) = self._run(x, h0)
        return y, h


class LSTM(_Recurrent):
    """Long short-term memory; with `proj_size` h is projected. Hochreiter and Schmidhuber 1997."""

    gates = 4
    step = staticmethod(_lstm)

    def forward(
        self, x: Sequences, hc: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Sequences, tuple[Tensor, Tensor]]:
        """Every h of the last layer, and the last (h, c) of every layer; see `RNN`."""
        y, (h, c) = self._run(x, hc)
        return y, (h, c)


# --- one step -------------------------------------------------------------------------------------


class _Cell(Module):
    """One step; Parameters `weight_ih`, `weight_hh`, `bias_ih`, `bias_hh`."""

    gates: ClassVar[int] = 1
    step: Step

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = float32
    ) -> None:
        self.hidden_size = hidden_size
        width, draw = self.gates * hidden_size, near_zero(hidden_size)
        self.weight_ih = init.parameter((width, input_size), draw, dtype)
        self.weight_hh = init.parameter((width, hidden_size), draw, dtype)
        self.bias_ih = init.parameter((width,), draw, dtype) if bias else None
        self.bias_hh = init.parameter((width,), draw, dtype) if bias else None

    def _next(self, x: Tensor, state: Any) -> Carry:
        """The next h and, in an LSTM, c; `state` are those before, by default zeros."""
        widths = (self.hidden_size,) * (2 if isinstance(self, LSTMCell) else 1)
        if state is None:
            carry = tuple(x.graph.zeros((*x.extents[:-1], n), x.dtype) for n in widths)
        else:
            carry = _checked(type(self).__name__, state, x.extents[:-1], widths)
        held = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        weights = _Weights(*(self.read(p, x) for p in held))  # type: ignore[arg-type]
        return self.step(weights, weights.from_input(x), carry)


class RNNCell(_Cell):
    """One step of `RNN`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        dtype: Any = float32,
    ) -> None:
        self.step = _rnn_step(nonlinearity)
        super().__init__(input_size, hidden_size, bias, dtype)

    def forward(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        """(batch, input) and (batch, hidden), by default zeros, to (batch, hidden)."""
        return self._next(x, h)[0]


class GRUCell(_Cell):
    """One step of `GRU`."""

    gates = 3
    step = staticmethod(_gru)

    def forward(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        """The next h, (batch, hidden); see `RNNCell`."""
        return self._next(x, h)[0]


class LSTMCell(_Cell):
    """One step of `LSTM`."""

    gates = 4
    step = staticmethod(_lstm)

    def forward(self, x: Tensor, hc: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The next h and c, (batch, hidden) each; see `RNNCell`."""
        h, c = self._next(x, hc)
        return h, c
