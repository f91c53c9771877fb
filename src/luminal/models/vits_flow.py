"""The normalising flow of VITS, run backwards: couplings of halves, by gated convolutions.

Kim, Kong and Son, arXiv 2106.06103; van den Oord et al. (WaveNet), arXiv 1609.03499.
"""

from __future__ import annotations

from typing import Any

from luminal.base.dtypes import float32
from luminal.base.records import dataclass
from luminal.frontend.movement.views import concat
from luminal.frontend.pointwise.binary import where
from luminal.frontend.tensor import Tensor
from luminal.nn import Conv1d, Module, ModuleList


def masked(x: Tensor, visible: Tensor | None) -> Tensor:
    """x (batch, channels, s), and 0 where `visible` (batch, 1, s) is not."""
    return x if visible is None else where(visible, x, 0.0)


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """`couplings` of `size` channels; each has `layers` convolutions of `kernel`, the next one's
    dilation `dilation` times that of the one before.
    """

    size: int
    couplings: int
    layers: int
    kernel: int
    dilation: int = 1


class WaveNet(Module):
    """Convolutions with gates, all of which are added up."""

    def __init__(self, config: FlowConfig, hidden: int, voice: int, dtype: Any = float32) -> None:
        self.hidden, convs, outputs = hidden, [], []
        for layer in range(config.layers):
            gap, width = config.dilation**layer, 2 * hidden
            convs.append(
                Conv1d(hidden, width, config.kernel, padding="same", dilation=gap, dtype=dtype)
            )
            last = layer == config.layers - 1
            outputs.append(Conv1d(hidden, hidden if last else width, 1, dtype=dtype))
        self.convs, self.outputs = ModuleList(convs), ModuleList(outputs)
        width = 2 * hidden * config.layers
        self.condition = Conv1d(voice, width, 1, dtype=dtype) if voice else None

    def forward(self, x: Tensor, visible: Tensor | None, voice: Tensor | None) -> Tensor:
        """(batch, hidden, s) to the same shape; `voice` (batch, voice_size, 1)."""
        hidden, total = self.hidden, None
        moved = None if self.condition is None or voice is None else self.condition(voice)
        for number, (conv, output) in enumerate(zip(self.convs, self.outputs, strict=True)):
            inner = conv(x)
            if moved is not None:
                inner = inner + moved[:, 2 * hidden * number : 2 * hidden * (number + 1)]
            gated = output(inner[:, :hidden].tanh() * inner[:, hidden:].sigmoid())
            if number < len(self.convs) - 1:
                x = masked(x + gated[:, :hidden], visible)
                gated = gated[:, hidden:]
            total = gated if total is None else total + gated
        assert total is not None
        return masked(total, visible)


class Coupling(Module):
    """One half less what the other half says."""

    def __init__(self, config: FlowConfig, hidden: int, voice: int, dtype: Any = float32) -> None:
        self.half_size = config.size // 2
        self.before = Conv1d(self.half_size, hidden, 1, dtype=dtype)
        self.wave_net = WaveNet(config, hidden, voice, dtype)
        self.after = Conv1d(hidden, self.half_size, 1, dtype=dtype)

    def forward(self, x: Tensor, visible: Tensor | None, voice: Tensor | None) -> Tensor:
        """(batch, size, s) to the same shape."""
        first, second = x[:, : self.half_size], x[:, self.half_size :]
        inner = self.wave_net(masked(self.before(first), visible), visible, voice)
        return concat([first, masked(second - self.after(inner), visible)], 1)


class Couplings(Module):
    """All couplings, the last one first; channels change their places before each."""

    def __init__(self, config: FlowConfig, hidden: int, voice: int, dtype: Any = float32) -> None:
        self.couplings = ModuleList(
            Coupling(config, hidden, voice, dtype) for _ in range(config.couplings)
        )

    def forward(self, x: Tensor, visible: Tensor | None, voice: Tensor | None) -> Tensor:
        """(batch, size, s) to the same shape."""
        for coupling in reversed([*self.couplings]):
            x = coupling(x.flip(1), visible, voice)
        return x
