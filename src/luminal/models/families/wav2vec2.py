"""wav2vec 2.0 and HuBERT with logits of characters. arXiv 2006.11477, 2106.07447."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.settings import MAX_LAYERS, layer_count, refuse
from luminal.models.checkpoint import folder_processor
from luminal.models.ctc import CtcTranscriber, Samples
from luminal.models.ctc_vocabulary import Characters
from luminal.models.families.family import Family
from luminal.models.families.renaming import Names, renamed
from luminal.models.families.settings import head_dim
from luminal.models.families.weight_norm import without_weight_norms
from luminal.models.transformer import TransformerConfig
from luminal.models.wav2vec2 import Wav2Vec2, Wav2Vec2Config

_NAMES: Names = (
    (r"masked_spec_embed$|^quantizer\.|^project_(q|hid)\.", None),
    (r"^(wav2vec2|hubert)\.", ""),
    (r"^lm_head\.", "head."),
    (r"^feature_extractor\.conv_layers\.(\d+)\.layer_norm\.", r"convs.\1.norm."),
    (r"^feature_extractor\.conv_layers\.", "convs."),
    (r"^feature_projection\.layer_norm\.", "feature_norm."),
    (r"^feature_projection\.projection\.", "projection."),
    (r"^encoder\.pos_conv_embed\.conv\.", "positions."),
    (r"^encoder\.layers\.", "transformer.layers."),
    (r"\.attention\.", ".attention.part."),
    (r"\.out_proj\.", ".o_proj."),
    (r"\.feed_forward\.intermediate_dense\.", ".mlp.part.up_proj."),
    (r"\.feed_forward\.output_dense\.", ".mlp.part.down_proj."),
    (r"\.final_layer_norm\.", ".mlp.norm."),
    (r"(layers\.\d+)\.layer_norm\.", r"\1.attention.norm."),
)


def _model(fields: Fields) -> Wav2Vec2:
    refuse(fields, add_adapter=False, adapter_attn_dim=None, conv_pos_batch_norm=False)
    norm = fields.text("feat_extract_norm", "group")
    if norm not in ("group", "layer"):
        raise LoadError(f"{fields.path}: feat_extract_norm {norm!r} is not 'group' or 'layer'")
    layers = TransformerConfig(
        hidden_size=fields.integer("hidden_size"),
        intermediate_size=fields.integer("intermediate_size"),
        num_hidden_layers=layer_count(fields),
        num_attention_heads=fields.integer("num_attention_heads"),
        head_dim=head_dim(fields, "hidden_size", "num_attention_heads"),
        activation=fields.text("hidden_act", "gelu"),
        norm_eps=fields.number("layer_norm_eps", 1e-5, most=1),
        norm_place="before" if fields.flag("do_stable_layer_norm", False) else "after",
    )
    return Wav2Vec2(
        Wav2Vec2Config(
            _convs(fields),
            norm == "layer",
            fields.flag("conv_bias", False),
            fields.text("feat_extract_activation", "gelu"),
            fields.integer("num_conv_pos_embeddings", 128, most=1 << 16),
            fields.integer("num_conv_pos_embedding_groups", 16),
            layers,
            fields.integer("vocab_size"),
            fields.flag("feat_proj_layer_norm", True),
        )
    )


def _convs(fields: Fields) -> tuple[tuple[int, int, int], ...]:
    """Channels, kernel and stride of each."""
    keys = "conv_dim", "conv_kernel", "conv_stride"
    columns = [fields.listed(key, int) for key in keys]
    lengths = {len(column) for column in columns}
    if len(lengths) != 1 or not 0 < len(columns[0]) <= MAX_LAYERS:
        raise LoadError(
            f"{fields.path}: {', '.join(keys)} have {', '.join(str(len(c)) for c in columns)} "
            "numbers; each must have one for each convolution"
        )
    if not all(0 < number <= 1 << 16 for column in columns for number in column):
        raise LoadError(f"{fields.path}: {', '.join(keys)}: all must be from 1 to {1 << 16}")
    return tuple(zip(*columns, strict=True))


def _weights(tensors: Mapping[str, Array], fields: Fields) -> dict[str, Array]:
    weights = renamed(tensors, _NAMES)
    if not fields.flag("do_stable_layer_norm", False):
        names = {name: name.removeprefix("encoder.layer_") for name in weights}
    else:
        names = {name: name.replace("encoder.layer_norm.", "transformer.norm.") for name in weights}
    return without_weight_norms({names[name]: array for name, array in weights.items()})


def _transcriber(folder: Path, model: Wav2Vec2, mode: Any, backend: str) -> CtcTranscriber:
    """With the characters and the preparation of its folder. Raises LoadError."""
    fields, config = folder_processor(folder, "feature_extractor"), model.config
    samples = Samples(
        config.hop,
        config.shortest,
        fields.integer("sampling_rate", 16000),
        fields.flag("do_normalize", True),
    )
    layers = config.layers
    about = (
        f"{layers.num_hidden_layers} layers of {layers.hidden_size}, {config.outputs} characters"
    )
    return CtcTranscriber(model, samples, Characters.of_folder(folder), mode, backend, about)


WAV2VEC2 = Family(_model, _weights, _transcriber)
