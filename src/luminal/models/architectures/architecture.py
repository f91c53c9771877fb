"""One record for each architecture: its settings, the names of its weights, and what is special.

Weights have three names: Hugging Face's in safetensors files, GGUF's, and those of a Decoder, which
stand between the two: a record has the way from the first to the last, `models/gguf/names.py` the
way from there to the second.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

import numpy as np

from luminal.base.errors import LoadError
from luminal.base.records import dataclass
from luminal.frontend.handle import Array
from luminal.frontend.matrices.packed import Packed
from luminal.loaders.fields import Fields
from luminal.loaders.ggml.types import unpacked
from luminal.loaders.mapped import WEIGHT_DTYPES
from luminal.loaders.shown import shown
from luminal.memory.row_order import StoredRows
from luminal.models.architectures.layers import layers_of
from luminal.models.architectures.settings import COMMON, decoder_config, experts_of, refuse
from luminal.models.checkpoint import EMBEDDING, OUTPUT
from luminal.models.decoder_config import DecoderConfig, Layers
from luminal.models.gguf.form import GGUF

Tensors = Mapping[str, Any]
"""Arrays, or StoredRows."""

_FUSED = re.compile(r"(.*)\.(qkv_proj|gate_up_proj)\.(weight|bias)")
_EXPERT = re.compile(r"(.*\.mlp\.experts)\.(\d+)\.(gate|up|down)_proj\.weight")
_KEYS = re.compile(r"model\.layers\.\d+\.self_attn\.[kv]_(proj|norm)\.\w+")
DERIVED = re.compile(r".*(rotary_emb\.inv_freq|\.attn\.(masked_)?bias|\.attention\.(masked_)?bias)")
"""Frequencies and masks that old checkpoints carry."""

NORMS_AFTER = {
    ".post_attention_layernorm.": ".attention_output_norm.",
    ".post_feedforward_layernorm.": ".mlp_output_norm.",
}
"""Names where norms come after attention and feed-forward. What Llama calls
`post_attention_layernorm` is the norm before the feed-forward part, and a Decoder calls it so."""
NORMS_AROUND = {
    ".post_attention_layernorm.": ".attention_output_norm.",
    ".pre_feedforward_layernorm.": ".post_attention_layernorm.",
    ".post_feedforward_layernorm.": ".mlp_output_norm.",
}
"""Names where norms come before and after both."""


def tie(tensors: dict[str, Array], embedding: str, output: str) -> None:
    """Leaves one of the two, whichever was saved; both where they differ, as transformers does."""
    # What config.json says of tying is often a default that nobody set; the arrays tell.
    if np.array_equal(tensors.setdefault(embedding, tensors[output]), tensors[output]):
        del tensors[output]


def _kept(name: str, array: Array) -> Array:
    return array


def _as_they_are(fields: Fields) -> Fields:
    return fields


@dataclass(frozen=True, slots=True)
class Architecture:
    """The models that a `config.json` calls `name`, as a Decoder.

    `settings`: fields of a DecoderConfig where they differ from `COMMON`: a Setting, a function of
    Fields, or a constant. `experts`: the same for an ExpertsConfig. `layers`: what differs between
    layers; None where nothing does and no layer is rotary. `only`: the one value that is supported
    of a key of `config.json`. `read`: the Fields in which all these look.

    `names`: what a name of Hugging Face's begins with, or holds (where it begins with a dot), and
    what that becomes; one after the other, and backwards for files in GGUF. `prefix`: what all
    names but the head's begin with, also where a file leaves it out.

    Fused projections become `qkv_proj` and `gate_up_proj`, and are split. `grouped`: fused rows lie
    by heads of keys, each after its queries; else all queries, all keys, all values.
    `adapted`: the array that is stored under a name of ours. `further_layers`: files may have
    layers beyond the last one, which guess further tokens and are left out. `divided`: an array and
    its name as those of several projections, where fusing is not by rows of the kinds above.
    `parts`: how the names of weights begin that are read, all if there are none. `unpacked`: the
    arrays of a file, of which some are packed. `sees`: the record of `luminal.models.seeing` for
    models that see, as "module:RECORD". `texts`: the records by the `model_type` of the
    `text_config`, where that may be one of several.

    `gguf`: what files in GGUF say otherwise; None where there are none of these models.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    layers: Callable[[Fields], Layers] | None = layers_of
    experts: Mapping[str, Any] | None = None
    only: Mapping[str, Any] = field(default_factory=dict)
    read: Callable[[Fields], Fields] = _as_they_are
    prefix: str = ""
    grouped: bool = False
    adapted: Callable[[str, Array], Array] = _kept
    further_layers: bool = False
    divided: Callable[[str, Array, DecoderConfig], Iterable[tuple[str, Array]]] | None = None
    parts: tuple[str, ...] = ()
    unpacked: Callable[[Tensors], Tensors] = dict
    sees: str = ""
    texts: Mapping[str, Architecture] = field(default_factory=dict)
    gguf: GGUF | None = None

    @property
    def all_settings(self) -> Mapping[str, Any]:
        """The common settings with those of this architecture, but for its experts."""
        return {**COMMON, **self.settings}

    def chosen(self, fields: Fields) -> Architecture:
        """The record for a `config.json`, where the `texts` are several. Raises LoadError."""
        if not self.texts:
            return self
        kind = fields.section("text_config").text("model_type", next(iter(self.texts)))
        if kind not in self.texts:
            raise LoadError(
                f"{fields.path}: a text_config of model_type {shown(kind)} is not supported here; "
                f"{', '.join(self.texts)} are"
            )
        return self.texts[kind]

    def config(self, fields: Fields) -> DecoderConfig:
        """The decoder that a `config.json` describes. LoadError for what is not supported."""
        fields = self.read(fields)
        refuse(fields, **self.only)
        settings = dict(self.all_settings)
        if self.experts is not None:
            experts = self.experts
            settings["experts"] = lambda fields: experts_of(experts, fields)
        return decoder_config(fields, settings, self.layers)

    def renamed(self, name: str) -> str:
        """The name of a Decoder's weight for one of Hugging Face's."""
        # Files of a model without its head lack the prefix, which transformers then adds as well.
        if self.prefix and not name.startswith((self.prefix, "lm_head.")):
            name = self.prefix + name
        for theirs, ours in self.names.items():
            name = _replaced(name, theirs, ours)
        return name

    def original(self, name: str) -> str:
        """The inverse of `renamed`: the name of a weight, or of its module, in Hugging Face's."""
        name += "."  # so that the name of a module is followed by one as that of its weights is
        # Renamings are applied one after the other, so they are undone from the last to the first.
        for theirs, ours in [*self.names.items()][::-1]:
            name = _replaced(name, ours, theirs)
        return name[:-1]

    def weights(self, tensors: Tensors, config: DecoderConfig) -> dict[str, Any]:
        """The arrays under the names of a Decoder; views where rows are only taken apart. Blocks
        stay records, (rows, blocks), but where more is done to them.

        A `lm_head.weight` among them is not that of the embedding, whatever `config` says.
        """
        weights: dict[str, Any] = {}
        experts: dict[str, dict[tuple[str, int], Array]] = {}
        readers = {n for n, layer in enumerate(config.layers) if layer.keys_of is not None}
        for theirs, array in self.unpacked(tensors).items():
            # What the program computes itself is not a weight, and saved values of it may be of
            # another length.
            if DERIVED.fullmatch(theirs) or not theirs.startswith(self.parts or ""):
                continue
            name = self.renamed(theirs)
            if self.further_layers and _number(name) >= config.num_hidden_layers:
                continue
            # Layers that attend the keys of earlier ones were saved with some that nobody reads.
            if _number(name) in readers and _KEYS.fullmatch(name):
                continue
            expert = _EXPERT.fullmatch(name)
            changes = bool(expert) or self.adapted is not _kept or self.divided is not None
            # Rows can stay as they lie only where nothing is done to them but naming.
            if isinstance(array, StoredRows | Packed) and (changes or _FUSED.fullmatch(name)):
                array = array.numpy() if isinstance(array, Packed) else np.asarray(array)
            if isinstance(array, Packed):
                weights[name] = array
                continue
            if changes:
                array = unpacked(array)
            if not (array.dtype in WEIGHT_DTYPES or array.dtype.names) or not array.ndim:
                raise LoadError(
                    f"weights: {theirs!r} is {array.dtype} of shape {array.shape}; it must be an "
                    "array of floats"
                )
            if isinstance(array, StoredRows):
                weights[name] = array
                continue
            array = self.adapted(name, array)
            # Experts are one array each, since one program takes any of them by an index that only
            # data tells.
            if expert:
                experts.setdefault(expert[1], {})[expert[3], int(expert[2])] = array
            else:
                weights.update((self.divided or self._parts)(name, array, config))
        # Experts come one by one, and a product over all needs them side by side.
        for path, arrays in experts.items():
            weights.update(_stacked(path, arrays))
        if config.tie_word_embeddings and OUTPUT in weights:
            tie(weights, EMBEDDING, OUTPUT)
        return weights

    def _parts(self, name: str, array: Array, config: DecoderConfig) -> Iterator[tuple[str, Array]]:
        """A fused projection as its parts."""
        match = _FUSED.fullmatch(name)
        if match is None:
            yield name, array
            return
        path, kind, last = match.groups()
        if kind == "gate_up_proj":
            parts = zip(("gate", "up"), _cut(name, array, (1, 1)), strict=True)
        else:
            split = _grouped if self.grouped else _cut
            counts = (
                config.num_attention_heads,
                config.num_key_value_heads,
                config.num_key_value_heads,
            )
            parts = zip("qkv", split(name, array, counts), strict=True)
        for part, rows in parts:
            yield f"{path}.{part}_proj.{last}", rows


def _replaced(name: str, old: str, new: str) -> str:
    """The name with `new` for `old`, wherever it is if it begins with a dot, else in front."""
    if old.startswith("."):
        return name.replace(old, new)
    return new + name.removeprefix(old) if name.startswith(old) else name


def _number(name: str) -> int:
    """The number of the layer that a weight is part of, -1 for none."""
    match = re.match(r"model\.layers\.(\d+)\.", name)
    return int(match[1]) if match else -1


def _cut(name: str, array: Array, counts: tuple[int, ...]) -> list[Array]:
    """Rows in the ratio of `counts`."""
    rows, whole = array.shape[0], sum(counts)
    if rows % whole or not rows:
        raise LoadError(f"weights: {name!r} has {rows} rows, which are not {whole} equal parts")
    # Views of the mapped file: cutting a fused projection copies nothing.
    ends = np.cumsum(counts) * (rows // whole)
    return np.split(array, ends[:-1])


def _grouped(name: str, array: Array, counts: tuple[int, ...]) -> list[Array]:
    """Rows in the ratio of `counts`, which lie by heads of keys: queries, keys, values of each."""
    heads, kv_heads, _ = counts
    group = heads // kv_heads
    if array.shape[0] % (heads + 2 * kv_heads):
        return _cut(name, array, counts)  # raises
    split = array.reshape(kv_heads, group + 2, -1, *array.shape[1:])
    parts = split[:, :group], split[:, group : group + 1], split[:, group + 1 :]
    return [np.ascontiguousarray(part).reshape(-1, *array.shape[1:]) for part in parts]


def _stacked(path: str, arrays: Mapping[tuple[str, int], Array]) -> Iterator[tuple[str, Array]]:
    """Matrices of the experts one by one as the two arrays of `luminal.nn.moe.Experts`."""
    count = len(arrays) // 3
    matrices: dict[str, list[Array]] = {"gate": [], "up": [], "down": []}
    for kind, ordered in matrices.items():
        for number in range(max(count, 1)):
            if (kind, number) not in arrays:
                raise LoadError(f"weights: '{path}.{number}.{kind}_proj.weight' is missing")
            ordered.append(arrays[kind, number])
        shapes = sorted({array.shape for array in ordered})
        if len(shapes) > 1:
            raise LoadError(
                f"weights: '{path}.*.{kind}_proj.weight' have the shapes {shapes[0]} and "
                f"{shapes[1]}; those of all experts must be the same"
            )
    gate, up = (matrices[kind][0].shape for kind in ("gate", "up"))
    if gate != up:
        raise LoadError(
            f"weights: '{path}.*' have gates of the shape {gate} and {up} for what they let "
            "through; both must be the same"
        )
    # Gates and what they let through are one matrix: a token's expert is then one product, which
    # reads its input once.
    gate_up = zip(matrices["gate"], matrices["up"], strict=True)
    yield f"{path}.gate_up_proj", np.stack([np.concatenate(pair) for pair in gate_up])
    yield f"{path}.down_proj", np.stack(matrices["down"])
