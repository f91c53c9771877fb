"""One causal decoder for many language models: a configuration says how its layers are made.

Vaswani et al., arXiv 1706.03762. `luminal.models.architectures` has the configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from luminal.base.dtypes import DType, bfloat16, float32, int32, promote
from luminal.base.errors import DTypeError
from luminal.frontend.matrices.packed import Packed
from luminal.frontend.tensor import Tensor
from luminal.models.decoder_config import DecoderConfig, LayerConfig
from luminal.models.layer_inputs import LayerInputs
from luminal.models.seen import Seen
from luminal.nn import (
    Attention,
    Cache,
    Embedding,
    FeedForward,
    GatedFeedForward,
    Linear,
    Module,
    ModuleList,
    RotaryEmbedding,
    alibi_slopes,
)
from luminal.nn.adapted import Adapters
from luminal.nn.altup import Streams
from luminal.nn.attention import soft_capped
from luminal.nn.cache import Passing, Positions
from luminal.nn.module import factors_dtype
from luminal.nn.rotary import Angles


def _attention(config: DecoderConfig, layer: LayerConfig, rotary: Any, dtype: Any) -> Attention:
    """The attention of one layer."""
    counts = config.num_attention_heads, config.num_key_value_heads
    # Two modules, since each has weights of its own.
    q_norm, k_norm = (config.make_qk_norm(count, rotary is not None, dtype) for count in counts)
    return Attention(
        config.hidden_size,
        *counts,
        config.head_dim,
        rotary,
        config.attention_bias,
        dtype,
        output_bias=config.output_bias,
        limit=config.projection_limit,
        q_norm=q_norm,
        k_norm=k_norm,
        turned_first=config.turned_first,
        scale=config.query_scale,
        temperature=layer.temperature,
        gate=config.attention_gate,
        window=layer.window,
        chunk=layer.chunk,
        softcap=config.attention_softcap,
        slopes=alibi_slopes(config.num_attention_heads) if config.positions == "alibi" else None,
        sinks=config.sinks,
    )


def _feed_forward(config: DecoderConfig, layer: LayerConfig, dtype: Any) -> Module | None:
    """The feed-forward part of one layer."""
    if not layer.feed_forward:
        return None
    if layer.experts:
        assert config.experts is not None
        return config.experts.make(config.hidden_size, config.activation, dtype)
    kind = GatedFeedForward if config.gated else FeedForward
    sizes = config.hidden_size, layer.intermediate_size or config.intermediate_size
    return kind(*sizes, config.activation, config.mlp_bias, dtype)


class DecoderLayer(Module):
    """Attention and a feed-forward part, added to what came in.

    Names as in Hugging Face's Llama, where `post_attention_layernorm` is the norm before the
    feed-forward part; norms after the two parts: `attention_output_norm` and `mlp_output_norm`.
    """

    def __init__(
        self,
        config: DecoderConfig,
        layer: LayerConfig,
        rotary: RotaryEmbedding | None,
        dtype: Any,
    ) -> None:
        hidden = config.hidden_size
        before, after = config.norm_place != "after", config.norm_place != "before"
        two = before and layer.feed_forward and config.parallel != "shared"
        self.parallel, self.residual_scale = config.parallel is not None, config.residual_scale
        self.self_attn: Any = (
            layer.mixer.make(config, rotary, dtype)
            if layer.mixer
            else _attention(config, layer, rotary, dtype)
        )
        self.mlp = _feed_forward(config, layer, dtype)
        self.input_layernorm = config.make_norm(hidden, dtype) if before else None
        self.post_attention_layernorm = config.make_norm(hidden, dtype) if two else None
        self.attention_output_norm = config.make_norm(hidden, dtype) if after else None
        self.mlp_output_norm = config.make_norm(hidden, dtype) if after else None

    def forward(
        self,
        x: Tensor,
        angles: Angles | None,
        cache: Cache | None = None,
        positions: Positions = 0,
    ) -> Tensor:
        """(..., s, hidden) to the same shape."""
        # Everything that models do otherwise here is whether a norm is there, so four optional
        # norms say it all: before, after, around, and once for both parts.
        first = applied(self.input_layernorm, x)
        attended = self.self_attn(first, angles, cache, positions)
        between = x + self._scaled(applied(self.attention_output_norm, attended))
        # Layers of a state space are a mixer alone.
        if self.mlp is None:
            return between
        if self.parallel:
            second = first
            if self.post_attention_layernorm is not None:
                second = self.post_attention_layernorm(x)
        else:
            second = applied(self.post_attention_layernorm, between)
        return between + self._scaled(applied(self.mlp_output_norm, self.mlp(second)))

    def _scaled(self, part: Tensor) -> Tensor:
        # No product by 1 where there is no scale: it would be computed, and in 16 bits rounded.
        return part if self.residual_scale is None else part * self.residual_scale

    def make_cache(self, max_len: int, dtype: Any, name: str, batch: int | None = None) -> Any:
        """What the layer keeps of `max_len` positions, of one text or a batch of them."""
        return self.self_attn.make_cache(max_len, dtype, name, batch)


def _each(positions: Positions, ids: Tensor) -> Tensor:
    """The position of every id, for rows that have the same ones (s,)."""
    if isinstance(positions, Tensor) and positions.ndim:
        return positions
    return ids.graph.arange(ids.extents[-1]) + ids.graph.constant(positions)


def applied(module: Module | None, x: Tensor) -> Tensor:
    """x, or what the module makes of it if there is one."""
    return x if module is None else module(x)


class DecoderModel(Module):
    """Embedding, layers and the last norm: token ids to hidden states."""

    def __init__(self, config: DecoderConfig, dtype: Any) -> None:
        hidden = config.hidden_size
        self.scale = config.embedding_scale
        self.embed_tokens = Embedding(config.vocab_size, hidden, dtype=dtype)
        learned = config.positions == "learned"
        positions = config.max_position_embeddings
        self.embed_positions = Embedding(positions, hidden, dtype=dtype) if learned else None
        self.embed_norm = config.make_norm(hidden, dtype) if config.embedding_norm else None
        self.rotaries = {
            rotary: RotaryEmbedding(
                rotary.head_dim or config.head_dim,
                rotary.theta,
                rotary.scaling,
                rotary.interleaved,
                rotary.dims,
                rotary.sections,
            )
            for rotary in (layer.rotary for layer in config.layers)
            if rotary is not None
        }
        self.kinds, self.passing = config.layers, config.passing
        self.layers = ModuleList(
            (layer.block or DecoderLayer)(
                config, layer, self.rotaries[layer.rotary] if layer.rotary else None, dtype
            )
            for layer in config.layers
        )
        self.layer_inputs = LayerInputs(config, dtype) if config.layer_inputs else None
        self.streams = Streams(hidden, config.streams, dtype) if config.streams > 1 else None
        self.norm = config.make_norm(hidden, dtype)

    def forward(
        self,
        ids: Tensor,
        caches: Sequence[Any] | None = None,
        positions: Positions = 0,
        states: list[Tensor] | None = None,
        seen: Seen | None = None,
    ) -> Tensor:
        """(..., s) ids to (..., s, hidden), in float32 (float64 for float64 weights).

        `states`: gets what goes into each layer, then what is returned; (..., s, streams, hidden)
        of layers that pass on several. `seen`: what images add.
        """
        seen = seen or Seen()
        graph, count = ids.graph, ids.extents[-1]
        # A position that data gives is one for each row from here on, so attention has two cases,
        # not three.
        if isinstance(positions, Tensor) and not positions.ndim:
            positions = _each(positions, ids).cast(int32).expand(*ids.extents)
        x = self._embedded(ids, positions, seen)
        layer_inputs = self.layer_inputs(ids, x) if self.layer_inputs is not None else None
        x = x if self.streams is None else self.streams.spread(x)
        # Some scalings change the frequencies once a text is longer than the training's. Keys that
        # a cache holds were turned by the old ones, so the program refuses to cross that end.
        if caches and self.cache_end is not None and not isinstance(positions, Tensor):
            end = graph.extent(positions) + count
            graph.require(end <= self.cache_end, "rotary of cached keys")
        # Layers with the same Rotary record share their angles: a model of a hundred layers
        # computes cosines once or twice.
        angles = {
            key: rotary.angles(graph, count, positions)
            if seen.places is None
            else rotary.angles_of_axes(seen.places)
            for key, rotary in self.rotaries.items()
        }
        # Without caches, keys still have to get from the layer that makes them to those that read
        # them.
        passes = seen.spans is not None or any(kind.keys_of is not None for kind in self.kinds)
        if caches is None and passes:
            caches = self.each_cache(lambda number: Passing())
        if caches is not None and seen.spans is not None:
            caches = [cache.spanning(seen.spans) for cache in caches]
        passed: Tensor | None = None
        for number, (kind, layer) in enumerate(zip(self.kinds, self.layers, strict=True)):
            turned = angles[kind.rotary] if kind.rotary else None
            inputs = (
                [passed] if self.passing else [] if layer_inputs is None else [layer_inputs[number]]
            )
            if states is not None:
                states.append(x)
            y = layer(x, turned, caches[number] if caches else None, positions, *inputs)
            x, passed = y if self.passing else (y, None)
        x = x if self.streams is None else self.streams.merged(x)
        normed: Tensor = self.norm(x)
        if states is not None:
            states.append(normed)
        return normed

    def _embedded(self, ids: Tensor, positions: Positions, seen: Seen) -> Tensor:
        """What goes into the first layer."""
        x = self.embed_tokens(ids)
        x = x.cast(promote(x.dtype, float32))  # 16-bit weights, 32-bit values
        if self.scale is not None:
            x = x * self.scale
        x = seen.placed(x)
        if self.embed_positions is not None:
            x = x + self.embed_positions(_each(positions, ids))
        return applied(self.embed_norm, x)

    def each_cache(self, make: Callable[[int], Any]) -> list[Any]:
        """A cache for each layer, or that of the layer whose keys it attends."""
        caches: list[Any] = []
        for number, kind in enumerate(self.kinds):
            # The same object and not an equal one: who makes States of them makes each once.
            caches.append(make(number) if kind.keys_of is None else caches[kind.keys_of])
        return caches

    @property
    def cache_end(self) -> int | None:
        """The longest text with caches: cached keys stay as the frequencies of its start turned."""
        changes = (rotary.scaled.longer for rotary in self.rotaries.values())
        return min((change.above for change in changes if change is not None), default=None)


class Decoder(Module):
    """A causal language model: token ids to logits.

    `adapters`: what lies beside its matrices (`luminal.models.named_adapters`), None where nothing
    does.
    """

    adapters: Adapters | None = None

    def __init__(self, config: DecoderConfig, dtype: Any = float32) -> None:
        self.config: Any = config  # a Llama's is a LlamaConfig
        self.logit_scale, self.logit_softcap = config.logit_scale, config.logit_softcap
        self.model = DecoderModel(config, dtype)
        tied, sizes = config.tie_word_embeddings, (config.hidden_size, config.vocab_size)
        self.lm_head = None if tied else Linear(*sizes, config.head_bias, dtype)

    def forward(
        self,
        ids: Tensor,
        caches: Sequence[Cache] | None = None,
        positions: Positions = 0,
        last_only: bool = False,
        seen: Seen | None = None,
    ) -> Tensor:
        """(..., s) ids to logits (..., s, vocab_size).

        `positions`: an Extent, or a Tensor of one number, is the position of the first id, the
        others follow it; a Tensor of the ids' shape (int32) is that of each. `caches`, one a layer,
        keep the keys and values of positions before; Tensors of positions must lie below
        `longest_text` then. Rows of different lengths are padded on the right: what a padded id
        leaves in a cache lies after its text's end, where nobody sees it until the next id is
        written there.
        `last_only`: logits of the last column, (..., 1, vocab_size). `seen`: what images add.
        """
        hidden = self.model(ids, caches, positions, seen=seen)
        return self.logits(hidden[..., -1:, :] if last_only else hidden)

    def logits(self, hidden: Tensor) -> Tensor:
        """What `self.model` gives, (..., hidden), to logits (..., vocab_size)."""
        # A tied head is the embedding's matrix read the other way: an index map, so nothing is
        # transposed.
        if self.lm_head is None:
            logits: Tensor = self.product(hidden, self.model.embed_tokens.weight)
        else:
            logits = self.lm_head(hidden)
        if self.logit_scale is not None:
            logits = logits * self.logit_scale
        cap = self.logit_softcap
        return logits if cap is None else soft_capped(logits, cap)

    @property
    def longest_text(self) -> int:
        """How many positions a text with caches may have."""
        longest: int = self.config.max_position_embeddings
        end = self.model.cache_end
        return longest if end is None else min(longest, end)

    def make_caches(
        self, max_len: int, dtype: Any = float32, batch: int | None = None
    ) -> list[Any]:
        """Empty caches for `max_len` positions, one a layer; for `batch` texts at most."""
        layers: Sequence[Any] = list(self.model.layers)
        return self.model.each_cache(
            lambda number: layers[number].make_cache(
                max_len, dtype, f"layers.{number}.cache", batch
            )
        )


def compute_dtype_of(model: Decoder, wanted: Any = None) -> DType | None:
    """What a model rounds the factors of its products to (`Module.computing`): a dtype that is
    wanted, else bfloat16 where all its matrices are. None for float32, as which products are added
    up; float16's values are float32's, which is as fast and overflows later. Raises DTypeError for
    a dtype of a byte where no matrix is packed.
    """
    # Norms and biases are vectors, often in float32 beside 16-bit matrices, and say nothing of how
    # products are computed.
    matrices = [held for held in model.parameters() if len(held.shape) > 1]
    asked = None if wanted is None else factors_dtype(wanted)
    if asked is not None and asked.size == 1:
        if not any(isinstance(held, Packed) for held in matrices):
            raise DTypeError(
                f"compute_dtype: {asked.name} is for matrices that are packed, and none of the "
                "model's is; open a quantised file with keep_quantized=True, or give bfloat16"
            )
        return asked
    narrow = bool(matrices) and all(held.dtype is bfloat16 for held in matrices)
    dtype = asked or (bfloat16 if narrow else float32)
    return None if dtype is float32 else dtype
