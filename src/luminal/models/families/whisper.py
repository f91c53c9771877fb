"""Whisper. Radford et al., arXiv 2212.04356."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.settings import layer_count, refuse
from luminal.models.families.family import Family
from luminal.models.families.renaming import Names, renamed
from luminal.models.families.settings import head_dim
from luminal.models.transcribe import Transcriber
from luminal.models.transformer import TransformerConfig
from luminal.models.whisper import Whisper, WhisperConfig

_NAMES: Names = (
    (r"^proj_out\.", None),  # the embedding again
    (r"^model\.", ""),
    (r"^encoder\.(conv[12])\.", r"\1."),
    (r"^encoder\.embed_positions\.", "embed_frames."),
    (r"^decoder\.(embed_\w+)\.", r"\1."),
    (r"coder\.layer_norm\.", "coder.norm."),
    (r"\.self_attn\.", ".attention.part."),
    (r"\.self_attn_layer_norm\.", ".attention.norm."),
    (r"\.encoder_attn\.", ".cross.part."),
    (r"\.encoder_attn_layer_norm\.", ".cross.norm."),
    (r"\.out_proj\.", ".o_proj."),
    (r"\.fc1\.", ".mlp.part.up_proj."),
    (r"\.fc2\.", ".mlp.part.down_proj."),
    (r"\.final_layer_norm\.", ".mlp.norm."),
)


def _part(fields: Fields, name: str) -> TransformerConfig:
    return TransformerConfig(
        hidden_size=fields.integer("d_model"),
        intermediate_size=fields.integer(f"{name}_ffn_dim"),
        num_hidden_layers=layer_count(fields, f"{name}_layers"),
        num_attention_heads=fields.integer(f"{name}_attention_heads"),
        head_dim=head_dim(fields, "d_model", f"{name}_attention_heads"),
        activation=fields.text("activation_function", "gelu"),
        norm_eps=1e-5,
        key_bias=False,
        cross_attention=name == "decoder",
    )


def _model(fields: Fields) -> Whisper:
    refuse(fields, scale_embedding=False, tie_word_embeddings=True)
    return Whisper(
        WhisperConfig(
            fields.integer("vocab_size"),
            fields.integer("num_mel_bins", 80),
            fields.integer("max_source_positions", 1500),
            fields.integer("max_target_positions", 448),
            _part(fields, "encoder"),
            _part(fields, "decoder"),
        )
    )


WHISPER = Family(_model, lambda tensors, fields: renamed(tensors, _NAMES), Transcriber.of_folder)
