"""SigLIP and SigLIP 2: images and texts as vectors whose product says whether they belong together.

Zhai et al., arXiv 2303.15343; Tschannen et al., arXiv 2502.14786.
"""

from __future__ import annotations

from typing import Any

from luminal.base.dtypes import float32, promote
from luminal.base.records import dataclass
from luminal.frontend.tensor import Tensor
from luminal.models.transformer import Transformer, TransformerConfig
from luminal.models.vision_transformer import VisionConfig, VisionTransformer
from luminal.nn import Embedding, FeedForward, LayerNorm, Linear, MaskedAttention, Module, init


@dataclass(frozen=True, slots=True)
class SiglipConfig:
    """The sizes of both parts; vectors have `width` numbers. `filler`: the token that texts are
    filled up with to `max_position_embeddings`, as those that it was trained with.
    """

    width: int
    vision: VisionConfig
    vocab_size: int
    max_position_embeddings: int
    text: TransformerConfig
    filler: int


class AttentionPooling(Module):
    """One learned query that collects what all patches have become."""

    def __init__(self, layers: TransformerConfig, dtype: Any = float32) -> None:
        hidden = layers.hidden_size
        self.probe = init.parameter((hidden,), init.normal, dtype)
        self.attention = MaskedAttention(
            hidden, layers.num_attention_heads, layers.head_dim, True, dtype
        )
        self.norm = LayerNorm(hidden, layers.norm_eps, dtype=dtype)
        self.mlp = FeedForward(hidden, layers.intermediate_size, layers.activation, True, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, s, hidden) to (batch, hidden)."""
        probe = self.read(self.probe, x).cast(x.dtype)
        query = probe.expand(x.extents[0], 1, x.extents[2])
        pooled: Tensor = self.attention(query, self.attention.keys_values(x))
        pooled = pooled + self.mlp(self.norm(pooled))
        return pooled[:, 0]


class SiglipVision(Module):
    """The image part alone."""

    def __init__(self, config: VisionConfig, dtype: Any = float32) -> None:
        self.config = config
        self.width = config.layers.hidden_size
        self.encoder = VisionTransformer(config, dtype)
        self.pool = AttentionPooling(config.layers, dtype)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, height, width) to (batch, width)."""
        vectors: Tensor = self.pool(self.encoder.tokens(images))
        return vectors


class Siglip(Module):
    """An image part and a text part, whose vectors have one width."""

    def __init__(self, config: SiglipConfig, dtype: Any = float32) -> None:
        self.config = config
        hidden = config.text.hidden_size
        self.vision = SiglipVision(config.vision, dtype)
        self.embed_tokens = Embedding(config.vocab_size, hidden, dtype=dtype)
        self.embed_positions = Embedding(config.max_position_embeddings, hidden, dtype=dtype)
        self.text = Transformer(config.text, dtype)
        self.head = Linear(hidden, config.width, dtype=dtype)
        self.logit_scale = init.parameter((), init.ones, dtype)
        self.logit_bias = init.parameter((), init.zeros, dtype)

    def forward(self, images: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        """(images, texts): how well each text fits each image, logits of "yes" for each pair."""
        vectors = self.embed_images(images)
        scale = self.read(self.logit_scale, vectors).exp()
        bias = self.read(self.logit_bias, vectors)
        return vectors @ self.embed_texts(ids, lengths).mT * scale + bias

    def embed_images(self, images: Tensor) -> Tensor:
        """(batch, 3, height, width) to (batch, width), of length 1."""
        return self.vision(images).normalize(dim=-1)  # type: ignore[no-any-return]

    def embed_texts(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """(batch, max_position_embeddings) ids, filled up, to (batch, width), of length 1.

        A text is what the last place has become, which sees all others, fillers too: `lengths`
        mean nothing.
        """
        x = self.embed_tokens(ids)
        x = x.cast(promote(x.dtype, float32))  # 16-bit weights, 32-bit values
        hidden = self.text(x + self.embed_positions(ids.graph.arange(ids.extents[1])))
        return self.head(hidden[:, -1]).normalize(dim=-1)  # type: ignore[no-any-return]
