"""CLIP: images and texts as vectors that are close where they belong together.

Radford et al., arXiv 2103.00020.
"""

from __future__ import annotations

from typing import Any

from luminal.base.dtypes import float32, promote
from luminal.base.records import dataclass
from luminal.frontend.pointwise.binary import where
from luminal.frontend.tensor import Tensor
from luminal.models.transformer import Transformer, TransformerConfig
from luminal.models.vision_transformer import VisionConfig, VisionTransformer
from luminal.nn import Embedding, Linear, Module, causal_mask, init


@dataclass(frozen=True, slots=True)
class ClipConfig:
    """The sizes of both parts; vectors have `width` numbers. `end`: the token that ends a text, the
    one of the highest id where it is None.
    """

    width: int
    vision: VisionConfig
    vocab_size: int
    max_position_embeddings: int
    text: TransformerConfig
    end: int | None = None


class ClipText(Module):
    """The text part alone: each token sees only those before."""

    def __init__(
        self, vocab_size: int, positions: int, layers: TransformerConfig, dtype: Any = float32
    ) -> None:
        hidden = layers.hidden_size
        self.vocab_size, self.positions, self.width = vocab_size, positions, hidden
        self.embed_tokens = Embedding(vocab_size, hidden, dtype=dtype)
        self.embed_positions = Embedding(positions, hidden, dtype=dtype)
        self.transformer = Transformer(layers, dtype)

    def forward(self, ids: Tensor) -> Tensor:
        """(batch, s) ids to what each token has become, (batch, s, hidden)."""
        graph, count = ids.graph, ids.extents[1]
        x = self.embed_tokens(ids)
        x = x.cast(promote(x.dtype, float32))  # 16-bit weights, 32-bit values
        x = x + self.embed_positions(graph.arange(count))
        hidden: Tensor = self.transformer(x, causal_mask(graph, count, count))
        return hidden


class Clip(Module):
    """An image part and a text part."""

    def __init__(self, config: ClipConfig, dtype: Any = float32) -> None:
        self.config = config
        hidden, width = config.text.hidden_size, config.width
        self.vision = VisionTransformer(config.vision, dtype)
        self.visual_projection = Linear(self.vision.width, width, False, dtype)
        sizes = config.vocab_size, config.max_position_embeddings
        self.text = ClipText(*sizes, config.text, dtype)
        self.text_projection = Linear(hidden, width, False, dtype)
        self.logit_scale = init.parameter((), init.ones, dtype)

    def forward(self, images: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        """(images, texts): how well each text fits each image, logits over texts."""
        vectors = self.embed_images(images)
        scale = self.read(self.logit_scale, vectors).exp()
        return vectors @ self.embed_texts(ids, lengths).mT * scale

    def embed_images(self, images: Tensor) -> Tensor:
        """(batch, 3, height, width) to (batch, width), of length 1."""
        return self.visual_projection(self.vision(images)).normalize(dim=-1)  # type: ignore[no-any-return]

    def embed_texts(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """(batch, s) ids, of which `lengths` (batch,) are a text's own, to (batch, width).

        A text is what its first token that ends texts has become, or its last one; of length 1.
        """
        graph, count = ids.graph, ids.extents[1]
        hidden = self.text(ids)
        # The first files name no end token: there it is the one of the highest id, and the first of
        # these ends the text, as padding repeats it.
        end = ids.amax(1, keepdim=True) if self.config.end is None else self.config.end
        last = where(ids == end, graph.arange(count), (lengths - 1).unsqueeze(1)).amin(1)
        last = hidden[graph.arange(ids.extents[0]), last]
        return self.text_projection(last).normalize(dim=-1)  # type: ignore[no-any-return]
