"""Rotary frequencies for texts longer than a model was trained on, by Hugging Face's names.

"linear": Chen et al., arXiv 2306.15595; "dynamic" and "yarn": Peng et al., arXiv 2309.00071;
"longrope": Ding et al., arXiv 2402.13753; "llama3": Llama 3.1's; "proportional": Gemma 4's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from luminal.base.errors import ShapeError
from luminal.frontend.handle import Array
from luminal.frontend.tensor import Tensor


class Longer(NamedTuple):
    """Frequencies of texts of more than `above` positions, from their number (a float32 Tensor)."""

    above: int
    of: Callable[[Tensor], Tensor | Array]


class Scaled(NamedTuple):
    """Frequencies, (dims / 2,) in float32; cos and sin are times `attention_factor`."""

    frequencies: Array
    attention_factor: float = 1.0
    longer: Longer | None = None


def scaled_frequencies(dims: int, theta: float, scaling: Mapping[str, Any] | None) -> Scaled:
    """The frequencies of `dims` features that are turned. Raises ShapeError for a scaling that is
    not known.
    """
    plain = theta ** (-np.arange(0, dims, 2) / dims)
    options = scaling or {}
    # Files from before the key was renamed have it as `type`.
    kind = options.get("rope_type", options.get("type", "default"))
    if kind not in _KINDS:
        raise ShapeError(
            f"rotary: scaling {dict(options)} is not known; rope_type is one of {', '.join(_KINDS)}"
        )
    try:
        return _KINDS[kind](plain, theta, options)
    except KeyError as missing:
        raise ShapeError(f"rotary: scaling {dict(options)} needs {missing}") from None


def _default(plain: Array, theta: float, options: Mapping[str, Any]) -> Scaled:
    return Scaled(plain.astype(np.float32))


def _linear(plain: Array, theta: float, options: Mapping[str, Any]) -> Scaled:
    return Scaled((plain / options["factor"]).astype(np.float32))


def _llama3(plain: Array, theta: float, options: Mapping[str, Any]) -> Scaled:
    """Low frequencies divided by `factor`, high ones kept, those between blended."""
    low, high = options["low_freq_factor"], options["high_freq_factor"]
    # How often a pair turns over the texts that the model was trained on.
    turns = options["original_max_position_embeddings"] * plain / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return Scaled(_blended(plain, kept, options["factor"]))


def _yarn(plain: Array, theta: float, options: Mapping[str, Any]) -> Scaled:
    """A blend as llama3's, but linear in the feature's number; attention grows sharper."""
    dims, factor = 2 * len(plain), options["factor"]
    length = options["original_max_position_embeddings"]

    if theta <= 1:
        raise ShapeError(f"rotary: theta {theta} under yarn; it must be above 1")

    def feature(turns: float) -> float:
        """The pair that turns so many times over the original length."""
        return dims * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = feature(options.get("beta_fast") or 32), feature(options.get("beta_slow") or 1)
    if options.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    # The reference's bound is that of features, though only half as many pairs are numbered.
    low, high = max(low, 0), min(high, dims - 1)
    # Where both ends are one pair the blend is a step, as in the reference.
    width = high - low or 0.001
    kept = 1 - np.clip((np.arange(len(plain)) - low) / width, 0, 1)
    return Scaled(_blended(plain, kept, factor), _sharpness(factor, options))


def _sharpness(factor: float, options: Mapping[str, Any]) -> float:
    """What yarn's cos and sin are times."""

    def of(scale: float) -> float:
        return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0

    mscale, one, all_dims = (
        options.get(key) for key in ("attention_factor", "mscale", "mscale_all_dim")
    )
    if mscale is not None:
        return float(mscale)
    return of(one) / of(all_dims) if one and all_dims else of(1)


def _dynamic(plain: Array, theta: float, options: Mapping[str, Any]) -> Scaled:
    """Longer texts than the original length have a greater theta, which grows with them."""
    factor, length = options["factor"], options["original_max_position_embeddings"]
    dims = 2 * len(plain)
    if dims == 2:
        raise ShapeError("rotary: dynamic scaling of 2 features has no theta; it needs 4 or more")
    powers = (-np.arange(0, dims, 2) / (dims - 2)).astype(np.float32)
    kept = plain.astype(np.float32)
    return Scaled(kept, longer=Longer(length, partial(_stretched, factor, length, powers, kept)))


def _stretched(factor: float, length: int, powers: Array, kept: Array, total: Tensor) -> Tensor:
    # theta * stretch ** (dims / (dims - 2)), as Hugging Face's NTK scaling has it, as a factor of
    # the frequencies.
    stretch = total * (factor / length) - (factor - 1)
    frequencies: Tensor = (stretch.log() * powers).exp() * kept
    return frequencies


def _longrope(plain: Array, theta: float, options: Mapping[str, Any]) -> Scaled:
    """Every frequency divided by its own factor, one for short texts and one for long ones."""
    length, factor = options["original_max_position_embeddings"], options["factor"]
    for key in ("short_factor", "long_factor"):
        if len(options[key]) != len(plain):
            raise ShapeError(
                f"rotary: {key} has {len(options[key])} numbers for {len(plain)} frequencies"
            )
    short, long = (
        (plain / np.array(options[f"{length_kind}_factor"])).astype(np.float32)
        for length_kind in ("short", "long")
    )
    factor_given = options.get("attention_factor")
    if factor_given is None:
        factor_given = math.sqrt(1 + math.log(factor) / math.log(length)) if factor > 1 else 1.0
    # Then no run has to know how long its texts are.
    if np.array_equal(short, long):
        return Scaled(short, float(factor_given))
    return Scaled(short, float(factor_given), Longer(length, partial(_as_given, long)))


def _as_given(frequencies: Array, total: Tensor) -> Array:
    return frequencies


def _proportional(plain: Array, theta: float, options: Mapping[str, Any]) -> Scaled:
    """Only the highest `partial_rotary_factor` of the frequencies turn, in their whole range."""
    turned = int(options["partial_rotary_factor"] * 2 * len(plain) // 2)
    kept = np.where(np.arange(len(plain)) < turned, plain, 0) / options.get("factor", 1.0)
    return Scaled(kept.astype(np.float32))


def _blended(plain: Array, kept: Array, factor: float) -> Array:
    """Each frequency kept to its share, the rest of it divided by `factor`."""
    frequencies: Array = ((1 - kept) * plain / factor + kept * plain).astype(np.float32)
    return frequencies


_KINDS: Mapping[str, Callable[[Array, float, Mapping[str, Any]], Scaled]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "dynamic": _dynamic,
    "longrope": _longrope,
    "proportional": _proportional,
}
