"""Stable Diffusion 1 and 2, in a folder of diffusers with a folder for each part."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from luminal.base.errors import InputError, LoadError, ShapeError
from luminal.frontend.handle import Array
from luminal.loaders.clip_tokenizer import read_clip_tokenizer
from luminal.loaders.fields import Fields, naming
from luminal.loaders.json_file import read_json
from luminal.loaders.mapped import is_there
from luminal.loaders.safetensors_file import read_safetensors, read_sharded
from luminal.loaders.shown import shown
from luminal.models.architectures.settings import MAX_LAYERS, refuse
from luminal.models.clip import ClipText
from luminal.models.diffusion.samplers import BETAS, PREDICTIONS, SPACINGS, Noise, alphas_of
from luminal.models.diffusion.text_to_image import TextToImage
from luminal.models.diffusion.unet import LevelConfig, UNet, UNetConfig
from luminal.models.diffusion.vae import Vae, VaeConfig
from luminal.models.families import PIPELINE
from luminal.models.families.clip import CLIP_NAMES, clip_text
from luminal.models.families.renaming import Names, renamed
from luminal.nn import Module

_KINDS = ("StableDiffusionPipeline",)
_MOST = 1 << 16  # of a width or a count
_MOST_MOMENTS = 1_000_000

_ATTENTION: Names = (
    (r"\.transformer_blocks\.", ".layers."),
    (r"\.attn1\.", ".attention."),
    (r"\.attn2\.", ".cross."),
    (r"\.ff\.net\.0\.proj\.", ".mlp.gates."),
    (r"\.ff\.net\.2\.", ".mlp.down_proj."),
    (r"\.(down|up)samplers\.0\.conv\.", ".resample."),
    (r"\.to_out\.0\.", ".o_proj."),
    (r"\.to_([qkv])\.", r".\1_proj."),
)
_VAE_NAMES: Names = (
    *_ATTENTION,
    (r"\.(query|to_q)\.", ".q_proj."),
    (r"\.(key|to_k)\.", ".k_proj."),
    (r"\.(value|to_v)\.", ".v_proj."),
    (r"\.proj_attn\.", ".o_proj."),
    (r"\.([qkvo]_proj)\.", r".attention.\1."),
    (r"\.(down|up)_blocks\.", ".levels."),
    (r"\.mid_block\.resnets\.0\.", ".middle.0."),
    (r"\.mid_block\.attentions\.0\.", ".middle.1."),
    (r"\.mid_block\.resnets\.1\.", ".middle.2."),
)
_LINEAR = re.compile(r"\.([qkvo]_proj|proj_in|proj_out)\.weight$")
"""Products of single places, which old files have as convolutions of one pixel."""


def read_pipeline(folder: Path, mode: Any, backend: str) -> TextToImage:
    """What draws with the models of a folder, compiled so. Raises LoadError."""
    index = _config(folder, PIPELINE)
    kind = index.text("_class_name", "")
    if kind not in _KINDS:
        raise LoadError(f"{index.path}: {shown(kind)} is not supported; {', '.join(_KINDS)} is")
    unet = _read(folder / "unet", "diffusion_pytorch_model", _unet, _unet_weights)
    vae = _read(folder / "vae", "diffusion_pytorch_model", _vae, _vae_weights)
    text = _read(folder / "text_encoder", "model", clip_text, _text_weights)
    tokenizer = read_clip_tokenizer(folder / "tokenizer", text.positions)
    _check_fit(folder, unet, vae, text)
    if tokenizer.tokenizer.vocab_size > text.vocab_size:
        raise LoadError(
            f"{folder}: the tokenizer has {tokenizer.tokenizer.vocab_size} tokens, the text "
            f"encoder {text.vocab_size}"
        )
    noise = noise_of(_config(folder / "scheduler", "scheduler_config.json"))
    return TextToImage(unet, vae, text, tokenizer, noise, mode, backend)


def _check_fit(folder: Path, unet: UNet, vae: Vae, text: ClipText) -> None:
    """The parts must have been made for each other."""
    width = text.width
    latents = vae.config.latents
    for what, count, other in (
        ("cross_attention_dim", unet.config.text, width),
        ("in_channels", unet.config.inputs, latents),
        ("out_channels", unet.config.outputs, latents),
    ):
        if count != other:
            raise LoadError(
                f"{folder}: {what} of the U-Net is {count}; the other parts need {other}"
            )


Kind = TypeVar("Kind", bound=Module)


def _read(
    folder: Path,
    stem: str,
    model_of: Callable[[Fields], Kind],
    weights_of: Callable[[Mapping[str, Array], Fields], dict[str, Array]],
) -> Kind:
    """The model of a part's folder, with its weights."""
    fields = _config(folder, "config.json")
    with naming(folder):
        try:
            model = model_of(fields)
        except (InputError, ShapeError) as error:
            raise LoadError(f"{fields.path}: {error}") from error
        weights = weights_of(_tensors(folder, stem), fields)
        model.load_state_dict(weights, adopt_dtypes=True)
    return model.eval()


def _config(folder: Path, name: str) -> Fields:
    path = folder / name
    if not is_there(path):
        raise LoadError(f"{path.parent}: no {name} in it; all folders of the pipeline are needed")
    return Fields(read_json(path), path)


def _tensors(folder: Path, stem: str) -> Mapping[str, Array]:
    """The arrays of a part, halves ("fp16") where there is nothing else."""
    index = folder / f"{stem}.safetensors.index.json"
    if is_there(index):
        return read_sharded(index)
    for path in (folder / f"{stem}.safetensors", folder / f"{stem}.fp16.safetensors"):
        if is_there(path):
            return read_safetensors(path)
    raise LoadError(
        f"{folder}: no {stem}.safetensors in it; other formats are to be converted to safetensors "
        "first"
    )


# --- the U-Net ------------------------------------------------------------------------------------


def _unet(fields: Fields) -> UNet:
    refuse(
        fields,
        center_input_sample=False,
        mid_block_type="UNetMidBlock2DCrossAttn",
        only_cross_attention=False,
        downsample_padding=1,
        mid_block_scale_factor=1,
        encoder_hid_dim=None,
        dual_cross_attention=False,
        class_embed_type=None,
        addition_embed_type=None,
        num_class_embeds=None,
        resnet_time_scale_shift="default",
        resnet_skip_time_act=False,
        resnet_out_scale_factor=1.0,
        time_embedding_type="positional",
        time_embedding_dim=None,
        time_embedding_act_fn=None,
        timestep_post_act=None,
        time_cond_proj_dim=None,
        conv_in_kernel=3,
        conv_out_kernel=3,
        attention_type="default",
        cross_attention_norm=None,
    )
    side = fields.integer("sample_size", 64, most=_MOST)
    return UNet(
        UNetConfig(
            fields.integer("in_channels", 4, most=_MOST),
            fields.integer("out_channels", 4, most=_MOST),
            _levels(fields),
            fields.integer("layers_per_block", 2, most=MAX_LAYERS),
            fields.integer("norm_num_groups", 32),
            fields.number("norm_eps", 1e-5, most=1),
            fields.text("act_fn", "silu"),
            fields.integer("cross_attention_dim", 1280, most=_MOST),
            fields.flag("flip_sin_to_cos", True),
            float(fields.integer("freq_shift", 0, least=0, most=1)),
            side,
        )
    )


def _levels(fields: Fields) -> tuple[LevelConfig, ...]:
    widths = _widths(fields)
    count = len(widths)
    down = _attends(fields, "down_block_types", ("DownBlock2D", "CrossAttnDownBlock2D"), count)
    up = _attends(fields, "up_block_types", ("UpBlock2D", "CrossAttnUpBlock2D"), count)
    # The key speaks of the width of heads, but diffusers has always read it as their number.
    heads = _each(fields, "attention_head_dim", 8, count)
    depths = _each(fields, "transformer_layers_per_block", 1, count)
    for width, number in zip(widths, heads, strict=True):
        if width % number:
            raise LoadError(
                f"{fields.path}: block_out_channels {width} does not divide among "
                f"attention_head_dim {number}, which is the number of heads"
            )
    return tuple(
        LevelConfig(*numbers) for numbers in zip(widths, heads, depths, down, up[::-1], strict=True)
    )


def _widths(fields: Fields) -> list[int]:
    widths = fields.listed("block_out_channels", int)
    if not 0 < len(widths) <= MAX_LAYERS or not all(0 < width <= _MOST for width in widths):
        raise LoadError(
            f"{fields.path}: block_out_channels is {shown(widths)}; all must be from 1 to {_MOST}"
        )
    return widths


def _attends(fields: Fields, key: str, kinds: tuple[str, str], count: int) -> list[bool]:
    """Which levels look at the text, by the names of their blocks without and with attention."""
    names = fields.listed(key, str)
    if len(names) != count or not set(names) <= set(kinds):
        raise LoadError(
            f"{fields.path}: {key} is {shown(names)}; it must have {count} of {', '.join(kinds)}"
        )
    return [name == kinds[1] for name in names]


def _each(fields: Fields, key: str, default: int, count: int) -> list[int]:
    """A number for all levels, or one for each."""
    value = fields.values.get(key, default)
    if not isinstance(value, list):
        return [fields.integer(key, default, most=_MOST)] * count
    numbers = fields.listed(key, int)
    if len(numbers) != count or not all(0 < number <= _MOST for number in numbers):
        raise LoadError(
            f"{fields.path}: {key} is {shown(numbers)}; it must have {count} numbers from 1 to "
            f"{_MOST}"
        )
    return numbers


def _unet_weights(tensors: Mapping[str, Array], fields: Fields) -> dict[str, Array]:
    weights: dict[str, Array] = {}
    for name, array in _plain(renamed(tensors, _ATTENTION)).items():
        if ".mlp.gates." in name:
            for part, rows in zip(("up", "gate"), np.split(array, 2), strict=True):
                weights[name.replace(".gates.", f".{part}_proj.")] = rows
        else:
            weights[name] = array
    return weights


def _plain(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Weights of products as matrices."""
    return {
        name: array.reshape(array.shape[:2]) if _LINEAR.search(name) else array
        for name, array in weights.items()
    }


# --- the other parts ------------------------------------------------------------------------------


def _vae(fields: Fields) -> Vae:
    refuse(
        fields,
        shift_factor=None,
        latents_mean=None,
        latents_std=None,
        mid_block_add_attention=True,
    )
    widths = _widths(fields)
    for key, kind in (("down", "DownEncoderBlock2D"), ("up", "UpDecoderBlock2D")):
        refuse(fields, **{f"{key}_block_types": [kind] * len(widths)})
    return Vae(
        VaeConfig(
            fields.integer("in_channels", 3, most=_MOST),
            fields.integer("latent_channels", 4, most=_MOST),
            tuple(widths),
            fields.integer("layers_per_block", 1, most=MAX_LAYERS),
            fields.integer("norm_num_groups", 32),
            fields.text("act_fn", "silu"),
            fields.number("scaling_factor", 0.18215),
            (fields.flag("use_quant_conv", True), fields.flag("use_post_quant_conv", True)),
        )
    )


def _vae_weights(tensors: Mapping[str, Array], fields: Fields) -> dict[str, Array]:
    return _plain(renamed(tensors, _VAE_NAMES))


def _text_weights(tensors: Mapping[str, Array], fields: Fields) -> dict[str, Array]:
    # Files of the text part alone may lack the prefix that tells it from the image's.
    prefix = "" if any(name.startswith("text_model.") for name in tensors) else "text_model."
    named = {prefix + name: array for name, array in tensors.items()}
    return {
        name.removeprefix("text."): array
        for name, array in renamed(named, CLIP_NAMES).items()
        if name.startswith("text.")
    }


def noise_of(fields: Fields) -> Noise:
    """How a `scheduler_config.json` says that the model was trained. Raises LoadError."""
    refuse(
        fields,
        trained_betas=None,
        rescale_betas_zero_snr=False,
        thresholding=False,
        use_karras_sigmas=False,
        use_exponential_sigmas=False,
        use_beta_sigmas=False,
    )
    count = fields.integer("num_train_timesteps", 1000, most=_MOST_MOMENTS)
    schedule = _one_of(fields, "beta_schedule", "linear", BETAS)
    start, end = fields.number("beta_start", 1e-4, most=1), fields.number("beta_end", 0.02, most=1)
    spacing = fields.values.get("timestep_spacing")
    return Noise(
        alphas_of(schedule, start, end, count),
        _one_of(fields, "prediction_type", "epsilon", PREDICTIONS),
        None if spacing is None else _one_of(fields, "timestep_spacing", "", SPACINGS),
        fields.integer("steps_offset", 0, least=0, most=count),
        fields.flag("set_alpha_to_one", True),
    )


def _one_of(fields: Fields, key: str, default: str, options: tuple[str, ...]) -> str:
    value = fields.text(key, default)
    if value not in options:
        raise LoadError(
            f"{fields.path}: {key} {shown(value)} is not supported; {', '.join(options)} are"
        )
    return value
