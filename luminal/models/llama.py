"""Llama, built from `luminal.nn` with Hugging Face's names. Touvron et al., arXiv 2302.13971."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from luminal.dtypes import float32, promote
from luminal.errors import LoadError
from luminal.frontend.handle import Extent
from luminal.frontend.tensor import Tensor
from luminal.nn import (
    Attention,
    Embedding,
    KVCache,
    Linear,
    Module,
    ModuleList,
    RMSNorm,
    RotaryEmbedding,
    SwiGLU,
)
from luminal.nn.rotary import Angles


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """The sizes of a Llama, under Hugging Face's names."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: Mapping[str, Any] | None = None
    rope_interleaved: bool = False
    tie_word_embeddings: bool = False

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> LlamaConfig:
        """From a Hugging Face `config.json`; keys that are no sizes are left out.

        Raises LoadError for another architecture or a missing key.
        """
        architecture = config.get("architecture") or config.get("architectures", ["?"])[0]
        if architecture != "LlamaForCausalLM":
            raise LoadError(f"architecture {architecture!r}: supported is 'LlamaForCausalLM'")
        values = {f.name: config[f.name] for f in fields(cls) if config.get(f.name) is not None}
        heads = values.get("num_attention_heads", 1)
        values.setdefault("num_key_value_heads", heads)
        values.setdefault("head_dim", values.get("hidden_size", 0) // heads)
        try:
            return cls(**values)
        except TypeError as error:
            raise LoadError(f"config: {str(error).split('() ')[-1]}") from None


class LlamaBlock(Module):
    """Attention and a SwiGLU, each after a norm and added to what came in."""

    def __init__(self, config: LlamaConfig, rotary: RotaryEmbedding, dtype: Any) -> None:
        hidden, eps = config.hidden_size, config.rms_norm_eps
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.self_attn = Attention(hidden, heads, kv_heads, config.head_dim, rotary, dtype=dtype)
        self.mlp = SwiGLU(hidden, config.intermediate_size, dtype=dtype)
        self.input_layernorm = RMSNorm(hidden, eps, dtype=dtype)
        self.post_attention_layernorm = RMSNorm(hidden, eps, dtype=dtype)

    def forward(
        self, x: Tensor, angles: Angles, cache: KVCache | None = None, past: Extent = 0
    ) -> Tensor:
        """(..., s, hidden) to the same shape."""
        x = x + self.self_attn(self.input_layernorm(x), angles, cache, past)
        result: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return result


class LlamaModel(Module):
    """Embedding, blocks and the last norm: token ids to hidden states."""

    def __init__(self, config: LlamaConfig, dtype: Any) -> None:
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size, dtype=dtype)
        self.rotary = RotaryEmbedding(
            config.head_dim, config.rope_theta, config.rope_scaling, config.rope_interleaved
        )
        self.layers = ModuleList(
            LlamaBlock(config, self.rotary, dtype) for _ in range(config.num_hidden_layers)
        )
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype)

    def forward(
        self, ids: Tensor, caches: Sequence[KVCache] | None = None, past: Extent = 0
    ) -> Tensor:
        """(..., s) ids to (..., s, hidden), in float32 (float64 for float64 weights)."""
        x = self.embed_tokens(ids)
        x = x.cast(promote(x.dtype, float32))  # 16-bit weights, 32-bit values
        angles = self.rotary.angles(ids.graph, ids.extents[-1], past)
        for number, layer in enumerate(self.layers):
            x = layer(x, angles, caches[number] if caches else None, past)
        normed: Tensor = self.norm(x)
        return normed


class Llama(Module):
    """A causal language model: token ids to logits."""

    def __init__(self, config: LlamaConfig, dtype: Any = float32) -> None:
        self.config = config
        self.model = LlamaModel(config, dtype)
        tied = config.tie_word_embeddings
        self.lm_head = None if tied else Linear(config.hidden_size, config.vocab_size, False, dtype)

    def forward(
        self,
        ids: Tensor,
        caches: Sequence[KVCache] | None = None,
        past: Extent = 0,
        last_only: bool = False,
    ) -> Tensor:
        """(..., s) ids at positions past .. past + s - 1 to logits (..., s, vocab_size).

        `last_only`: of the last position, (..., 1, vocab_size). Caches, one a layer, take 1-d ids.
        """
        hidden = self.model(ids, caches, past)
        if last_only:
            hidden = hidden[..., -1:, :]
        if self.lm_head is None:
            table = self.model.embed_tokens.weight
            logits: Tensor = hidden @ self.read(table, hidden).mT
        else:
            logits = self.lm_head(hidden)
        return logits

    def make_caches(self, max_len: int, dtype: Any = float32) -> list[KVCache]:
        """Empty caches for `max_len` positions, one a layer."""
        config = self.config
        shape = config.num_key_value_heads, max_len, config.head_dim
        layers = range(config.num_hidden_layers)
        return [KVCache.make(*shape, dtype, name=f"layers.{number}.cache") for number in layers]
