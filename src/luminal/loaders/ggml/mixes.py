"""Which packed type each matrix of a model takes: one for all, or two in a mix.

A mix stores with more bits what errors cost most in: the output (or the embedding, where that is
the output too), and of the first and the last eighth of the layers and every third between, the
values of the attention and the last product of the MLP. Rows of no whole blocks of 256 take a type
of blocks of 32 with as many bits or the next more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from luminal.loaders.ggml.quantize import QUANTIZERS
from luminal.loaders.ggml.types import BLOCKS

MIXES: Mapping[str, tuple[str, str]] = {
    "Q3_K_M": ("Q3_K", "Q5_K"),
    "Q4_K_M": ("Q4_K", "Q6_K"),
    "Q5_K_M": ("Q5_K", "Q6_K"),
}
"""The type of most matrices, and of those with more bits."""
CHOICES = tuple(name.lower() for name in (*QUANTIZERS, *MIXES))

_SHORT = {"Q2_K": "IQ4_NL", "Q3_K": "IQ4_NL", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
_LAYER = re.compile(r"(?:^|\.)(\d+)\.")
_LAST = re.compile(r"\.(attn_v|v_proj|ffn_down(_exps|_shexp)?|down_proj)(\.|$)")
_OUTPUT = re.compile(r"(.*\.)?lm_head\.weight|output\.weight")
_EMBEDDING = re.compile(r"(.*\.)?embed_tokens\.weight|token_embd\.weight")


_ROUTER = re.compile(
    r"(^|\.)(ffn_gate_inp(_shexp)?|mlp\.gate|block_sparse_moe\.gate|shared_expert_gate|router(\.layer)?)"
    r"\.weight$"
)


def types_of(choice: str, rows: Mapping[str, int]) -> dict[str, str]:
    """The type of each matrix by its name, of lengths of rows by theirs.

    Those without whole blocks are not in it, nor those that choose experts: another expert is no
    small error. `choice`: one of CHOICES in capitals; names as in GGUF files or Hugging Face's.
    """
    usual, finer = MIXES.get(choice, (choice, choice))
    layers = {name: _LAYER.search(name) for name in rows}
    numbers = {name: int(layer[1]) for name, layer in layers.items() if layer is not None}
    count = 1 + max(numbers.values(), default=0)
    outputs = [name for name in rows if _OUTPUT.fullmatch(name)]
    outputs = outputs or [name for name in rows if _EMBEDDING.fullmatch(name)]
    types = {}
    for name, length in rows.items():
        if _ROUTER.search(name):
            continue
        costs = name in outputs or (
            name in numbers
            and _LAST.search(name) is not None
            and _is_sensitive(numbers[name], count)
        )
        kind = finer if costs else usual
        kind = _SHORT.get(kind, kind) if length % BLOCKS[kind].size else kind
        if length % BLOCKS[kind].size == 0:
            types[name] = kind
    return types


# The rule of llama.cpp's mixes: what is lost in the first and last eighth of the layers costs most.
def _is_sensitive(layer: int, count: int) -> bool:
    eighth = count // 8
    return layer < eighth or layer >= count * 7 // 8 or (layer - eighth) % 3 == 2


def why_not(name: str, length: int, size: int = 32) -> str:
    """Why a matrix has no type."""
    if _ROUTER.search(name):
        return "chooses experts"
    return f"its rows of {length} are no whole blocks of {size}"


def few_of(reasons: Mapping[str, str], few: int = 3) -> str:
    """A line of the first names and why they are not packed."""
    shown = [f"{name}: {why}" for name, why in [*reasons.items()][:few]]
    further = [f"and {len(reasons) - few} more"] if len(reasons) > few else []
    return "; ".join([*shown, *further])
