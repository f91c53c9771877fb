"""How noise becomes latents: the numbers of each step of a sampler.

Every step is one line: latents become `keep * latents + add * prediction`, where the network has
seen `scale * latents` at the moment `time`. A sampler is a choice of these four numbers, so that
one compiled program serves all samplers and any number of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from luminal.base.records import dataclass

Array = np.ndarray[Any, Any]

PREDICTIONS = ("epsilon", "v_prediction")
SPACINGS = ("leading", "trailing", "linspace")
BETAS = ("linear", "scaled_linear")


@dataclass(frozen=True, slots=True)
class Noise:
    """How a model was trained: latents at moment t are `sqrt(a) * x + sqrt(1 - a) * noise`, where a
    is `alphas[t]`.

    `prediction`: the network says the noise ("epsilon"), or `sqrt(a) * noise - sqrt(1 - a) * x`
    ("v_prediction", Salimans and Ho, arXiv 2202.00512). `spacing`: which moments a sampler visits,
    None for its own way; `offset` is added to them if it is "leading". `to_one`: after the last
    moment there is no noise at all.
    """

    alphas: Array
    prediction: str = "epsilon"
    spacing: str | None = None
    offset: int = 0
    to_one: bool = True

    def moments(self, count: int, spacing: str) -> Array:
        """`count` moments from the noisiest on, (count,) in float64."""
        total = len(self.alphas)
        match self.spacing or spacing:
            case "leading":
                return (np.arange(count) * (total // count))[::-1] + float(self.offset)
            case "trailing":
                return np.round(total - np.arange(count) * (total / count)) - 1
            case _:
                return np.linspace(0, total - 1, count)[::-1]


def alphas_of(schedule: str, start: float, end: float, count: int) -> Array:
    """The products of 1 - beta up to each moment; betas rise, or their roots do
    ("scaled_linear").
    """
    if schedule == "linear":
        betas = np.linspace(start, end, count)
    else:
        betas = np.linspace(start**0.5, end**0.5, count) ** 2
    alphas: Array = np.cumprod(1 - betas)
    return alphas


class Step(NamedTuple):
    """The numbers of a step; see above."""

    time: float
    scale: float
    keep: float
    add: float


class Plan(NamedTuple):
    """`start`: what noise of variance 1 is times at the beginning; then the steps."""

    start: float
    steps: list[Step]


def ddim(noise: Noise, count: int) -> Plan:
    """Without new noise on the way. Song et al., arXiv 2010.02502, formula 12 with sigma 0."""
    moments = np.round(noise.moments(count, "leading")).astype(int)
    after = moments - len(noise.alphas) // count
    last = 1.0 if noise.to_one else noise.alphas[0]
    steps = []
    for time, following in zip(moments, after, strict=True):
        alpha = noise.alphas[min(time, len(noise.alphas) - 1)]
        beyond = noise.alphas[following] if following >= 0 else last
        a, b = np.sqrt(alpha), np.sqrt(1 - alpha)
        c, d = np.sqrt(beyond), np.sqrt(1 - beyond)
        if noise.prediction == "epsilon":
            keep, add = c / a, d - c * b / a
        else:
            keep, add = c * a + d * b, d * a - c * b
        steps.append(Step(float(time), 1.0, float(keep), float(add)))
    return Plan(1.0, steps)


def euler(noise: Noise, count: int) -> Plan:
    """Euler's method in the ratio of noise to signal. Karras et al., arXiv 2206.00364, algorithm 1.

    Latents are those of DDIM divided by sqrt(a), which the network sees times it.
    """
    moments = noise.moments(count, "linspace")
    ratios = np.sqrt((1 - noise.alphas) / noise.alphas)
    sigmas = np.interp(moments, np.arange(len(ratios)), ratios)
    steps = []
    for time, sigma, following in zip(moments, sigmas, [*sigmas[1:], 0.0], strict=True):
        length, rest = np.sqrt(sigma**2 + 1), following - sigma
        if noise.prediction == "epsilon":
            keep, add = 1.0, rest
        else:
            keep, add = 1 + rest * sigma / length**2, rest / length
        steps.append(Step(float(time), float(1 / length), float(keep), float(add)))
    greatest = float(sigmas.max())
    leading = (noise.spacing or "linspace") == "leading"
    # The moments that lead do not begin at the very end, where noise is all there is.
    return Plan(float(np.sqrt(greatest**2 + 1)) if leading else greatest, steps)


SAMPLERS: Mapping[str, Callable[[Noise, int], Plan]] = {"ddim": ddim, "euler": euler}
