"""The transformer of Vaswani et al. (arXiv 1706.03762), with PyTorch's names and options."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from luminal.base.dtypes import float32
from luminal.base.errors import InputError
from luminal.frontend.handle import Array
from luminal.frontend.tensor import Tensor
from luminal.nn import init
from luminal.nn.containers import ModuleList
from luminal.nn.dropout import Dropout
from luminal.nn.init import DrawnParameter
from luminal.nn.linear import Linear
from luminal.nn.module import Module
from luminal.nn.multihead import Mask, MultiheadAttention
from luminal.nn.norm import LayerNorm

Activation: TypeAlias = str | Callable[[Tensor], Tensor]


def _activation(activation: Activation) -> Callable[[Tensor], Tensor]:
    if callable(activation):
        return activation
    if activation not in ("relu", "gelu"):
        raise InputError(
            f"activation {activation!r} is not known; use 'relu', 'gelu' or a function"
        )
    return Tensor.relu if activation == "relu" else Tensor.gelu


class _Layer(Module):
    """What encoder and decoder layers share: self-attention, feed-forward, two norms."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        dtype: Any = float32,
    ) -> None:
        def attention() -> MultiheadAttention:
            return MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype
            )

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)

        self.self_attn = attention()
        if isinstance(self, TransformerDecoderLayer):
            # PyTorch's place among the attributes: their order is that of a state_dict, and draws
            # follow it.
            self.multihead_attn = attention()
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype)
        self.norm1, self.norm2 = norm(), norm()
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        if isinstance(self, TransformerDecoderLayer):
            self.norm3, self.dropout3 = norm(), Dropout(dropout)
        self.norm_first = norm_first
        self.activation = _activation(activation)

    def _feed_forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return result

    def _added(self, x: Tensor, norm: Module, block: Callable[[Tensor], Tensor]) -> Tensor:
        """x plus a block of x, normalised before the block or after the sum."""
        result: Tensor = x + block(norm(x)) if self.norm_first else norm(x + block(x))
        return result


class TransformerEncoderLayer(_Layer):
    """Self-attention, then feed-forward; each is added to its input and normalised."""

    def forward(
        self,
        src: Tensor,
        src_mask: Mask = None,
        src_key_padding_mask: Mask = None,
        is_causal: bool = False,
    ) -> Tensor:
        """(length, batch, d_model) to the same; masks as for `MultiheadAttention`."""

        def attended(x: Tensor) -> Tensor:
            y, _ = self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, True, is_causal)
            return self.dropout1(y)  # type: ignore[no-any-return]

        x = self._added(src, self.norm1, attended)
        return self._added(x, self.norm2, lambda x: self.dropout2(self._feed_forward(x)))


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's output `memory`, then feed-forward."""

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Mask = None,
        memory_mask: Mask = None,
        tgt_key_padding_mask: Mask = None,
        memory_key_padding_mask: Mask = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """(length, batch, d_model) twice, to the first's shape."""
        masks = {
            "tgt": (tgt_key_padding_mask, False, tgt_mask, True, tgt_is_causal),
            "memory": (memory_key_padding_mask, False, memory_mask, True, memory_is_causal),
        }

        def attended(x: Tensor) -> Tensor:
            return self.dropout1(self.self_attn(x, x, x, *masks["tgt"])[0])  # type: ignore[no-any-return]

        def crossed(x: Tensor) -> Tensor:
            y, _ = self.multihead_attn(x, memory, memory, *masks["memory"])
            return self.dropout2(y)  # type: ignore[no-any-return]

        x = self._added(tgt, self.norm1, attended)
        x = self._added(x, self.norm2, crossed)
        return self._added(x, self.norm3, lambda x: self.dropout3(self._feed_forward(x)))


class TransformerEncoder(Module):
    """`num_layers` copies of a layer, then `norm`."""

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        self.layers = ModuleList(copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.norm = norm

    def forward(
        self,
        src: Tensor,
        mask: Mask = None,
        src_key_padding_mask: Mask = None,
        is_causal: bool = False,
    ) -> Tensor:
        """(length, batch, d_model) to the same."""
        x = src
        for layer in self.layers:
            x = layer(x, mask, src_key_padding_mask, is_causal)
        return x if self.norm is None else self.norm(x)


class TransformerDecoder(Module):
    """`num_layers` copies of a layer, then `norm`."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        self.layers = ModuleList(copy.deepcopy(decoder_layer) for _ in range(num_layers))
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Mask = None,
        memory_mask: Mask = None,
        tgt_key_padding_mask: Mask = None,
        memory_key_padding_mask: Mask = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """(length, batch, d_model) twice, to the first's shape."""
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        x = tgt
        for layer in self.layers:
            x = layer(x, memory, *masks, tgt_is_causal, memory_is_causal)
        return x if self.norm is None else self.norm(x)


class Transformer(Module):
    """The encoder and the decoder of "Attention is all you need", arXiv 1706.03762."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        dtype: Any = float32,
    ) -> None:
        sizes = d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps
        options = (*sizes, batch_first, norm_first, bias, dtype)

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*options), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*options), num_decoder_layers, norm()
        )
        # torch.nn.Transformer draws all its matrices anew, whatever its layers drew.
        for held in self.parameters():
            if isinstance(held, DrawnParameter) and len(held.shape) > 1:
                held.draw_with(init.xavier_uniform)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Mask = None,
        tgt_mask: Mask = None,
        memory_mask: Mask = None,
        src_key_padding_mask: Mask = None,
        tgt_key_padding_mask: Mask = None,
        memory_key_padding_mask: Mask = None,
        src_is_causal: bool = False,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """src (s, batch, d_model) and tgt (t, batch, d_model) to (t, batch, d_model)."""
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        result: Tensor = self.decoder(
            tgt,
            memory,
            tgt_mask,
            memory_mask,
            tgt_key_padding_mask,
            memory_key_padding_mask,
            tgt_is_causal,
            memory_is_causal,
        )
        return result

    @staticmethod
    def generate_square_subsequent_mask(sz: int) -> Array:
        """(sz, sz) float32: -inf above the diagonal, 0 elsewhere."""
        return np.triu(np.full((sz, sz), -np.inf, np.float32), 1)
