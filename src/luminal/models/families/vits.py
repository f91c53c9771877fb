"""VITS, and the voices of MMS. Kim, Kong and Son, arXiv 2106.06103; arXiv 2305.13516."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.loaders.json_file import read_json
from luminal.models.architectures.settings import MAX_LAYERS, layer_count, refuse
from luminal.models.families.family import Family
from luminal.models.families.renaming import Names, renamed
from luminal.models.families.settings import MAX_SIZE, head_dim, odd_size
from luminal.models.families.weight_norm import without_weight_norms
from luminal.models.hifi_gan import HifiGanConfig
from luminal.models.speak import SpeechSynthesizer, SpokenLetters, Voice
from luminal.models.vits import Vits, VitsConfig
from luminal.models.vits_durations import LEAST, DurationsConfig
from luminal.models.vits_flow import FlowConfig

_NAMES: Names = (
    # Of training: what hears sounds, what hears durations, and the spline that runs leave out.
    (r"^posterior_encoder\.|^duration_predictor\.(post_|flows\.1\.)", None),
    (r"^text_encoder\.encoder\.", ""),
    (r"^text_encoder\.", ""),
    (r"\.attention\.out_proj\.", ".attention.o_proj."),
    (r"\.emb_rel_k$", ".near_keys"),
    (r"\.emb_rel_v$", ".near_values"),
    (r"\.feed_forward\.conv_1\.", ".up."),
    (r"\.feed_forward\.conv_2\.", ".down."),
    (r"^(layers\.\d+)\.layer_norm\.", r"\1.attention_norm."),
    (r"^(layers\.\d+)\.final_layer_norm\.", r"\1.norm."),
    (r"^flow\.flows\.", "flow.couplings."),
    (r"\.wavenet\.in_layers\.", ".wave_net.convs."),
    (r"\.wavenet\.res_skip_layers\.", ".wave_net.outputs."),
    (r"\.wavenet\.cond_layer\.", ".wave_net.condition."),
    (r"^decoder\.upsampler\.", "decoder.upsamplers."),
    (r"^decoder\.resblocks\.(\d+)\.convs1\.", r"decoder.blocks.\1.dilated."),
    (r"^decoder\.resblocks\.(\d+)\.convs2\.", r"decoder.blocks.\1.plain."),
    (r"^duration_predictor\.flows\.0\.translate$", "durations.affine.shift"),
    (r"^duration_predictor\.flows\.0\.", "durations.affine."),
    (r"^duration_predictor\.", "durations."),
    (r"^durations\.conv_1\.", "durations.first."),
    (r"^durations\.conv_2\.", "durations.second."),
    (r"^durations\.norm_1\.", "durations.first_norm."),
    (r"^durations\.norm_2\.", "durations.second_norm."),
    (r"^durations\.proj\.", "durations.output."),
    (r"\.cond\.", ".condition."),
    (r"\.conv_pre\.", ".before."),
    (r"\.conv_(post|proj)\.", ".after."),
    (r"\.conv_dds\.", ".convs."),
    (r"\.convs_dilated\.", ".dilated."),
    (r"\.convs_pointwise\.", ".pointwise."),
    (r"\.norms_1\.", ".first_norms."),
    (r"\.norms_2\.", ".second_norms."),
)
_VOICES = r"^embed_speaker\.|\.cond(_layer)?\."
"""Names of weights that a model of one voice may have, and does not use."""


def _voices(fields: Fields) -> tuple[int, int]:
    """How many speakers there are, and how many numbers describe each: 0 and 0 for one."""
    count = fields.integer("num_speakers", 1)
    return (count, fields.integer("speaker_embedding_size")) if count > 1 else (0, 0)


def _model(fields: Fields) -> Vits:
    refuse(fields, depth_separable_channels=2)
    epsilon = fields.number("layer_norm_eps", 1e-5, most=1)
    head_dim(fields, "hidden_size", "num_attention_heads")
    speakers, voice_size = _voices(fields)
    return Vits(
        VitsConfig(
            vocab_size=fields.integer("vocab_size"),
            hidden_size=fields.integer("hidden_size"),
            intermediate_size=fields.integer("ffn_dim", 768),
            num_hidden_layers=layer_count(fields),
            num_attention_heads=fields.integer("num_attention_heads"),
            window=fields.integer("window_size", 4, most=MAX_SIZE),
            kernel=fields.integer("ffn_kernel_size", 3, most=MAX_SIZE),
            flow=_flow(fields),
            durations=_durations(fields, epsilon),
            decoder=_decoder(fields),
            stochastic=fields.flag("use_stochastic_duration_prediction", True),
            activation=fields.text("hidden_act", "relu"),
            bias=fields.flag("use_bias", True),
            norm_eps=epsilon,
            speakers=speakers,
            voice_size=voice_size,
        )
    )


def _flow(fields: Fields) -> FlowConfig:
    size = fields.integer("flow_size", 192)
    if size % 2:
        raise LoadError(f"{fields.path}: flow_size is {size}; it must be even: halves change")
    config = FlowConfig(
        size,
        fields.integer("prior_encoder_num_flows", 4, most=MAX_LAYERS),
        fields.integer("prior_encoder_num_wavenet_layers", 4, most=MAX_LAYERS),
        odd_size(fields, "wavenet_kernel_size", 5),
        fields.integer("wavenet_dilation_rate", 1, most=MAX_SIZE),
    )
    _check_growth(fields, "wavenet_dilation_rate", config.dilation, config.layers)
    return config


def _durations(fields: Fields, epsilon: float) -> DurationsConfig:
    config = DurationsConfig(
        odd_size(fields, "duration_predictor_kernel_size", 3),
        fields.integer("duration_predictor_filter_channels", 256),
        fields.integer("duration_predictor_num_flows", 4, least=0, most=MAX_LAYERS),
        fields.integer("duration_predictor_flow_bins", 10, least=2, most=int(1 / LEAST)),
        fields.number("duration_predictor_tail_bound", 5.0),
        fields.integer("depth_separable_num_layers", 3, most=MAX_LAYERS),
        epsilon,
    )
    _check_growth(fields, "duration_predictor_kernel_size", config.kernel, config.layers)
    return config


def _check_growth(fields: Fields, key: str, base: int, layers: int) -> None:
    """Raises LoadError where the dilation of the last of so many layers is no size of anything."""
    if (base > 1 and layers > 32) or base ** (layers - 1) > MAX_SIZE:
        raise LoadError(
            f"{fields.path}: {key} is {base}; {layers} layers would skip more than {MAX_SIZE} "
            "frames"
        )


def _decoder(fields: Fields) -> HifiGanConfig:
    channels = fields.integer("upsample_initial_channel", 512)
    rates = fields.listed("upsample_rates", int, [8, 8, 2, 2])
    kernels = fields.listed("upsample_kernel_sizes", int, [16, 16, 4, 4])
    block_kernels = fields.listed("resblock_kernel_sizes", int, [3, 7, 11])
    dilations = fields.listed("resblock_dilation_sizes", list, [[1, 3, 5]] * 3)
    path = fields.path
    if len(rates) != len(kernels) or not rates or channels >> len(rates) == 0:
        raise LoadError(
            f"{path}: upsample_rates has {len(rates)} numbers, upsample_kernel_sizes "
            f"{len(kernels)}; there must be as many of both, and each halves the "
            f"{channels} channels of upsample_initial_channel"
        )
    for rate, kernel in zip(rates, kernels, strict=True):
        if not 1 <= rate <= kernel <= MAX_SIZE or (kernel - rate) % 2:
            raise LoadError(
                f"{path}: upsample_kernel_sizes has {kernel} for a rate of {rate}; it must be the "
                "rate and an even number more"
            )
    if not block_kernels or len(block_kernels) != len(dilations):
        raise LoadError(
            f"{path}: resblock_kernel_sizes has {len(block_kernels)} numbers, "
            f"resblock_dilation_sizes {len(dilations)}; each kernel has a list of dilations"
        )
    for size, gaps in zip(block_kernels, dilations, strict=True):
        numbers = [size, *gaps]
        if not all(type(n) is int and 1 <= n <= MAX_SIZE for n in numbers) or size % 2 == 0:
            raise LoadError(
                f"{path}: a block has kernel {size} and dilations {gaps}; a kernel is odd, and all "
                f"are from 1 to {MAX_SIZE}"
            )
    return HifiGanConfig(
        channels,
        tuple(rates),
        tuple(kernels),
        tuple(block_kernels),
        tuple(map(tuple, dilations)),
        fields.number("leaky_relu_slope", 0.1),
    )


def _weights(tensors: Mapping[str, Array], fields: Fields) -> dict[str, Array]:
    unused: Names = () if _voices(fields)[0] else ((_VOICES, None),)
    return without_weight_norms(renamed(tensors, (*unused, *_NAMES)))


def _synthesizer(folder: Path, model: Vits, mode: Any, backend: str) -> SpeechSynthesizer:
    """With the letters and the voice of its folder. Raises LoadError."""
    path = folder / "config.json"
    fields = Fields(read_json(path), path)
    voice = Voice(
        fields.integer("sampling_rate", 16000),
        fields.number("speaking_rate", 1.0),
        _share(fields, "noise_scale", 0.667),
        _share(fields, "noise_scale_duration", 0.8),
    )
    letters = SpokenLetters.of_folder(folder, model.config.vocab_size)
    return SpeechSynthesizer(model, letters, voice, mode, backend)


def _share(fields: Fields, key: str, default: float) -> float:
    """A number that may be 0."""
    return 0.0 if fields.values.get(key) == 0 else fields.number(key, default)


VITS = Family(_model, _weights, _synthesizer)
