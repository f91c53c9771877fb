"""Layers of a `config.json`: their windows, rotary positions and scalings, in all architectures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from luminal.base.errors import LoadError
from luminal.loaders.fields import MOST, Fields
from luminal.loaders.shown import shown
from luminal.models.architectures.settings import head_dim, layer_count, refuse
from luminal.models.decoder_config import LayerConfig, Layers, Rotary

_SCALINGS: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor",),
    "longrope": (),
    "proportional": (),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
}
"""Kinds of scaling, and the numbers that each needs."""
Windows = Sequence[int | None]
"""The sliding window of each layer; None where a layer sees all positions before."""
_ORIGINAL = "original_max_position_embeddings"
_OPTIONS = ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")


def layers_of(
    fields: Fields, windows: Windows | None = None, rotary: Rotary | None = None
) -> Layers:
    """Layers with one rotary embedding and these windows, none by default."""
    rotary = rotary or rotary_of(fields)
    lengths = windows or (None,) * layer_count(fields)
    return tuple(LayerConfig(window, rotary) for window in lengths)


def kinds_of(
    fields: Fields, number: int, *known: str, key: str = "layer_types"
) -> list[str] | None:
    """Each layer's kind, by the list under a key; None where it does not say so."""
    if fields.values.get(key) is None:
        return None
    kinds = fields.listed(key, str)
    # A kind that is not known must not pass for full attention: the model would run, and be wrong.
    if len(kinds) != number or not set(kinds) <= set(known):
        raise LoadError(
            f"{fields.path}: {key} is {shown(kinds)}; it must be "
            f"{' or '.join(map(repr, known))} for each of {number} layers"
        )
    return kinds


def windows_of(fields: Fields, slides: Callable[[int], bool]) -> Windows:
    """Each layer's sliding window, by `layer_types`, where no key says so by `slides`."""
    number = layer_count(fields)
    kinds = kinds_of(fields, number, "full_attention", "sliding_attention")
    if kinds is None:
        sliding = [slides(layer) for layer in range(number)]
    else:
        sliding = [kind == "sliding_attention" for kind in kinds]
    # The key is asked for only where a layer slides: models without windows have null in it.
    return [fields.integer("sliding_window") if slide else None for slide in sliding]


def same_windows(fields: Fields) -> Windows:
    """The `sliding_window` of every layer, if there is one; such models have no `layer_types`."""
    windowed = fields.values.get("sliding_window") is not None
    window = fields.integer("sliding_window") if windowed else None
    return [window] * layer_count(fields)


def later(layers: Layers, first: int, **changes: Any) -> Layers:
    """The layers, with `changes` to those from `first` on."""
    return tuple(
        replace(layer, **changes) if number >= first else layer
        for number, layer in enumerate(layers)
    )


def layers_of_two_rotaries(
    fields: Fields, slides: Callable[[int], bool], before: Fields, theta: float = 10000.0
) -> Layers:
    """Layers with a window turn by other angles than those without.

    `before`: the parameters of those with a window in files before `rope_parameters`.
    """
    rope = fields.section("rope_parameters")
    older = fields.section("rope_scaling")
    if older.values.get("rope_type") is None:
        refuse(older, type="default")  # some versions of transformers take no notice of another
    # Files of three generations of transformers: newer keys win over older ones.
    near = {**before.values, **rope.section("sliding_attention").values}
    far = {**rope.section("full_attention").values, **older.values}
    local = rotary_of(fields, Fields(near, fields.path), theta)
    whole = rotary_of(fields, Fields(far, fields.path), theta)
    windows = windows_of(fields, slides)
    return tuple(LayerConfig(window, whole if window is None else local) for window in windows)


def rotary_of(
    fields: Fields,
    rope: Fields | None = None,
    theta: float = 10000.0,
    share: float | None = None,
    interleaved: bool = False,
    width: int | None = None,
) -> Rotary:
    """From `rope_scaling` and `rope_theta`, or `rope_parameters`, which has both.

    `share`: of each head's `width` features (`head_dim` by default) that turn, where no
    `partial_rotary_factor` says so; None where the whole head does, and all else is refused.
    """
    rope = rope_section(fields) if rope is None else rope

    def number(key: str, default: float, least: float = 0) -> float:
        where = rope if rope.values.get(key) is not None else fields
        return where.number(key, default, least)

    if share is None:
        # A key that an architecture does not read must have its neutral value: what is passed over
        # in silence is how a model gets subtly wrong.
        refuse(fields, partial_rotary_factor=1)
        refuse(rope, partial_rotary_factor=1)
    share = 1.0 if share is None else number("partial_rotary_factor", share)
    scaling = _scaling(fields, rope)
    width = width or head_dim(fields)
    dims = int(width * share)
    if scaling is not None and scaling["rope_type"] == "proportional":
        scaling["partial_rotary_factor"], dims = share, width
    return Rotary(number("rope_theta", theta, 1), scaling, dims, interleaved, width)


def rope_section(fields: Fields) -> Fields:
    """The older `rope_scaling`, where a file has both, as transformers takes them."""
    return fields.section("rope_scaling") or fields.section("rope_parameters")


def original_positions(fields: Fields, rope: Fields, default: int | None = None) -> int:
    """How many there were before they were scaled; the key beside the scaling is preferred."""
    where = fields if fields.values.get(_ORIGINAL) is not None else rope
    return where.integer(_ORIGINAL) if default is None else where.integer(_ORIGINAL, default)


def _scaling(fields: Fields, rope: Fields) -> dict[str, Any] | None:
    """The scaling with its numbers checked."""
    kind = rope.values.get("rope_type") or rope.values.get("type") or "default"
    # "su" is what the first files of Phi-3 called it.
    kind = "longrope" if kind == "su" else kind
    if not isinstance(kind, str) or kind not in _SCALINGS:
        raise LoadError(
            f"{rope.path}: rope_type {shown(kind)} is not supported; {', '.join(_SCALINGS)} are"
        )
    if kind == "default":
        return None
    positions = fields.integer("max_position_embeddings", 2048)
    original = original_positions(fields, rope, positions)
    if kind == "dynamic":  # Hugging Face's grows from the longest text the model takes
        original = positions
    scaling: dict[str, Any] = {"rope_type": kind, _ORIGINAL: original}
    if kind == "proportional":
        scaling["factor"] = rope.number("factor", 1.0)
    for key in _SCALINGS[kind]:
        scaling[key] = rope.number(key, least=1e-3)
    for key in _OPTIONS:
        if rope.values.get(key) is not None:
            scaling[key] = rope.number(key)
    scaling["truncate"] = rope.flag("truncate", True)
    if kind == "longrope":
        scaling["factor"] = rope.number("factor", positions / original)
        for key in ("short_factor", "long_factor"):
            scaling[key] = rope.listed(key, float)
            # Frequencies are divided by these, and a damaged file must not make them infinite.
            if not all(1e-3 <= factor <= MOST for factor in scaling[key]):
                raise LoadError(f"{rope.path}: {key} has a number that is not from 0.001 to {MOST}")
    return scaling
