"""Llamas of published sizes with random weights, as GGUF files: what is timed whole.

Every matrix is a view of one pool of random numbers at a place of its own, so that a file of 16 GB
takes the memory of its largest matrix to write.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from luminal.loaders.gguf import StoredTensor
from luminal.loaders.write_gguf import save_gguf
from luminal.models.shapes import shape

Array = np.ndarray[Any, Any]
STEP = 4096 + 64  # bytes between the places of matrices in the pool
BLOCK = 32  # weights of a block of Q4_0, with 2 bytes of scale and 16 of numbers
Q4_SCALE = 0.0034  # numbers from -8 to 7 become weights whose root of mean square is 1/64
HUGGING_FACE = {
    "token_embd": "model.embed_tokens", "attn_output": "self_attn.o_proj",
    "output.weight": "lm_head.weight", "blk": "model.layers",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}  # fmt: skip
EPSILON, THETA = 1e-5, 500_000.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """A Llama's sizes, by the names of `config.json`."""

    keys: Mapping[str, Any]

    @staticmethod
    def named(size: str) -> Sizes:
        """A published one: "1b", "8b"."""
        return Sizes(shape("llama", size))

    def matrices(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Each matrix by its name in GGUF, with its rows and columns."""
        k = self.keys
        width, inner, head = k["hidden_size"], k["intermediate_size"], k["head_dim"]
        queries, keys = k["num_attention_heads"] * head, k["num_key_value_heads"] * head
        yield "token_embd.weight", (k["vocab_size"], width)
        for layer in range(k["num_hidden_layers"]):
            for name, rows, columns in (
                ("attn_q", queries, width), ("attn_k", keys, width), ("attn_v", keys, width),
                ("attn_output", width, queries), ("ffn_gate", inner, width),
                ("ffn_up", inner, width), ("ffn_down", width, inner),
            ):  # fmt: skip
                yield f"blk.{layer}.{name}.weight", (rows, columns)
        if not k["tie_word_embeddings"]:
            yield "output.weight", (k["vocab_size"], width)

    @property
    def multiplied(self) -> int:
        """Weights that a token is multiplied by: all but the embedding, unless that is the head."""
        counts: dict[str, int] = {name: math.prod(shape) for name, shape in self.matrices()}
        if not self.keys["tie_word_embeddings"]:
            del counts["token_embd.weight"]
        return sum(counts.values())

    @property
    def head(self) -> int:
        """Weights of the head, which only the last token of a prompt meets."""
        return int(self.keys["vocab_size"] * self.keys["hidden_size"])

    @property
    def parameters(self) -> int:
        """All of them, norms too."""
        layers, width = self.keys["num_hidden_layers"], self.keys["hidden_size"]
        weights = sum(rows * columns for _, (rows, columns) in self.matrices())
        return int(weights + (2 * layers + 1) * width)

    def arrays(self) -> dict[str, Array]:
        """All Parameters in bfloat16, by Hugging Face's names: views of one pool."""
        shapes = {_hugging_face(name): shape for name, shape in self.matrices()}
        longest = max(map(math.prod, shapes.values()))
        pool = _pool(2 * longest + STEP * (len(shapes) + 1), "bf16").view(ml_dtypes.bfloat16)
        found = {}
        for number, (name, (rows, columns)) in enumerate(shapes.items()):
            start = number * STEP // 2
            found[name] = pool[start : start + rows * columns].reshape(rows, columns)
        ones = np.ones(self.keys["hidden_size"], ml_dtypes.bfloat16)
        layers = [f"model.layers.{k}." for k in range(self.keys["num_hidden_layers"])]
        norms = ("input_layernorm.weight", "post_attention_layernorm.weight")
        found |= {layer + norm: ones for layer in layers for norm in norms}
        return found | {"model.norm.weight": ones}

    def cached(self, tokens: int) -> int:
        """Bytes of keys and values of so many tokens, in f32."""
        k = self.keys
        return int(8 * tokens * k["num_hidden_layers"] * k["num_key_value_heads"] * k["head_dim"])

    def flops(self, tokens: int, past: int) -> int:
        """Of reading so many tokens after `past` others, to the logits of the last: products of
        matrices and attention.
        """
        return self.flops_of_all(tokens, past) - 2 * self.head * (tokens - 1)

    def flops_of_all(self, tokens: int, past: int = 0) -> int:
        """The same with the logits of every token, as training needs them."""
        k = self.keys
        width = k["num_attention_heads"] * k["head_dim"]
        seen = tokens * past + tokens * (tokens + 1) // 2
        return int(2 * self.multiplied * tokens + 4 * k["num_hidden_layers"] * width * seen)


def _hugging_face(name: str) -> str:
    """The name in Hugging Face's files of a matrix of GGUF's."""
    for part, other in HUGGING_FACE.items():
        name = name.replace(part, other)
    return name


def stored_bytes(weights: int, kind: str) -> int:
    """Of so many weights in a file."""
    return 2 * weights if kind == "bf16" else weights // BLOCK * 18


def write_llama(path: Path, sizes: Sizes, kind: str) -> None:
    """Writes the model; `kind` is that of all matrices ("bf16", "q4_0")."""
    shapes = dict(sizes.matrices())
    longest = max(map(math.prod, shapes.values()))
    pool = _pool(stored_bytes(longest, kind) + STEP * (len(shapes) + 1), kind)
    tensors: dict[str, StoredTensor] = {}
    for number, (name, (rows, columns)) in enumerate(shapes.items()):
        size = stored_bytes(rows * columns, kind)
        start = STEP * number // 18 * 18  # of a block, and even
        data = pool[start : start + size].reshape(rows, -1)
        tensors[name] = StoredTensor(
            kind.upper(),
            (rows, columns),
            data.view(ml_dtypes.bfloat16) if kind == "bf16" else data,
        )
    width, layers = sizes.keys["hidden_size"], sizes.keys["num_hidden_layers"]
    ones = StoredTensor("F32", (width,), np.ones(width, np.float32))
    norms = [f"blk.{k}.{part}_norm.weight" for k in range(layers) for part in ("attn", "ffn")]
    tensors |= dict.fromkeys((*norms, "output_norm.weight"), ones)
    save_gguf(path, tensors, _metadata(sizes))


def _metadata(sizes: Sizes) -> dict[str, Any]:
    k = sizes.keys
    said = {
        "block_count": k["num_hidden_layers"],
        "context_length": k["max_position_embeddings"],
        "embedding_length": k["hidden_size"],
        "feed_forward_length": k["intermediate_size"],
        "attention.head_count": k["num_attention_heads"],
        "attention.head_count_kv": k["num_key_value_heads"],
        "attention.key_length": k["head_dim"],
        "attention.value_length": k["head_dim"],
        "attention.layer_norm_rms_epsilon": EPSILON,
        "rope.dimension_count": k["head_dim"],
        "rope.freq_base": THETA,
        "vocab_size": k["vocab_size"],
    }
    return {
        "general.architecture": "llama",
        **{f"llama.{key}": value for key, value in said.items()},
        "tokenizer.ggml.model": "none",
    }


def _pool(size: int, kind: str) -> Array:
    """Random bytes of weights: of bfloat16, numbers of either sign from 2^-7 to 2^-6; of Q4_0,
    blocks of one scale and any numbers.
    """
    words = -(-size // 36) * 18
    drawn = np.random.default_rng(0).integers(0, 1 << 16, words, np.uint16)
    if kind == "bf16":
        drawn &= 0x807F
        drawn |= 120 << 7  # the exponent's bits
        return drawn.view(np.uint8)
    blocks = drawn.view(np.uint8).reshape(-1, 18)
    blocks[:, :2] = np.array([Q4_SCALE], "<f2").view(np.uint8)
    return blocks.reshape(-1)
