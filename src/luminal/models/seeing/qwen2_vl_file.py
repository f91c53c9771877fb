"""mmproj files of Qwen2-VL and Qwen2.5-VL.

What is in them: https://github.com/ggml-org/llama.cpp/tree/master/conversion, and how it is read:
https://github.com/ggml-org/llama.cpp/tree/master/tools/mtmd.
"""

from __future__ import annotations

from typing import Any

from luminal.loaders.fields import Fields
from luminal.models.architectures.settings import MAX_LAYERS
from luminal.models.seeing.metadata import activation_of, image_values
from luminal.models.seeing.record import ProjectorFile, Said

_LEAST_PIXELS, _MOST_PIXELS = 56 * 56, 28 * 28 * 16384
"""Of the processors of all published models, which files of the two do not say."""
_WINDOW = 112  # pixels along a side; files say it where it is another
_PARTS = {
    "attn_q": "attn.q_proj",
    "attn_k": "attn.k_proj",
    "attn_v": "attn.v_proj",
    "attn_out": "attn.proj",
    "ln1": "norm1",
    "ln2": "norm2",
    "ffn_gate": "mlp.gate_proj",
}
_OUTSIDE = {
    "v.patch_embd.weight": "patch_embed.proj.weight",
    # That of the second of two frames; an image is two equal ones.
    "v.patch_embd.weight.1": "patch_embed.proj.weight.1",
    "v.post_ln.weight": "merger.ln_q.weight",
    "v.post_ln.bias": "merger.ln_q.bias",
    **{
        f"mm.{number}.{end}": f"merger.mlp.{number}.{end}"
        for number in (0, 2)
        for end in ("weight", "bias")
    },
}


def _common(metadata: Fields) -> tuple[dict[str, Any], dict[str, Any]]:
    """What both towers are, and how images are prepared."""
    vision = {
        "depth": metadata.integer("clip.vision.block_count", most=MAX_LAYERS),
        "num_heads": metadata.integer("clip.vision.attention.head_count"),
        "patch_size": metadata.integer("clip.vision.patch_size"),
        "spatial_merge_size": metadata.integer("clip.vision.spatial_merge_size", 2),
        "hidden_act": activation_of(metadata, "gelu"),
    }
    settings = {
        **image_values(metadata),
        "min_pixels": metadata.integer("clip.vision.image_min_pixels", _LEAST_PIXELS),
        "max_pixels": metadata.integer("clip.vision.image_max_pixels", _MOST_PIXELS),
    }
    return vision, settings


def _first(metadata: Fields) -> Said:
    """Feed-forward parts are four times as wide as the tower. `feed_forward_length` has instead the
    features of the text model, since `config.json` calls those the tower's `hidden_size`.
    """
    vision, settings = _common(metadata)
    vision["embed_dim"] = metadata.integer("clip.vision.embedding_length")
    return Said({"vision_config": vision}, settings)


def _second(metadata: Fields) -> Said:
    """Every so many-th layer sees all of an image, the others windows of it; 0: all see all."""
    vision, settings = _common(metadata)
    every = metadata.integer("clip.vision.n_wa_pattern", least=0)
    whole = [n for n in range(vision["depth"]) if not every or (n + 1) % every == 0]
    vision |= {
        "hidden_size": metadata.integer("clip.vision.embedding_length"),
        "intermediate_size": metadata.integer("clip.vision.feed_forward_length"),
        "window_size": metadata.integer("clip.vision.window_size", _WINDOW),
        "fullatt_block_indexes": whole,
    }
    return Said({"vision_config": vision}, settings)


def _file(read: Any, up: str, down: str) -> ProjectorFile:
    return ProjectorFile(
        tower="visual.",
        projector="visual.",
        names=_OUTSIDE,
        output=("mm.2.weight", 0),
        read=read,
        tokens={"image_token_id": ("<|image_pad|>",)},
        layers="blocks.",
        parts={**_PARTS, "ffn_up": up, "ffn_down": down},
    )


QWEN2_VL_FILE = _file(_first, "mlp.fc1", "mlp.fc2")
QWEN2_5_VL_FILE = _file(_second, "mlp.up_proj", "mlp.down_proj")
