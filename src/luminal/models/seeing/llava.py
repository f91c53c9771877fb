"""LLaVA: the patches of a tower's last layer but one, through two layers. arXiv 2310.03744."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from luminal.base.errors import LoadError
from luminal.frontend.tensor import Tensor
from luminal.loaders.fields import Fields
from luminal.loaders.image import BICUBIC, preparation_of
from luminal.loaders.shown import shown
from luminal.models.architectures.settings import refuse
from luminal.models.families.renaming import Names
from luminal.models.seeing.metadata import image_values, vision_config
from luminal.models.seeing.record import Prepare, Prepared, ProjectorFile, Said, Seeing
from luminal.models.seeing.tower import NAMES, ImageTower, check_size, clip, runs_of, siglip
from luminal.models.vision_transformer import VisionConfig
from luminal.nn import Linear, Module
from luminal.nn.feed_forward import activation_of

if TYPE_CHECKING:
    from PIL.Image import Image

_VISION = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 336,
    "patch_size": 14,
}
_TOWERS = {"clip_vision_model": clip, "siglip_vision_model": siglip}


class Projector(Module):
    """Two layers, for all tokens but the first `skipped`."""

    def __init__(self, width: int, hidden: int, name: str, bias: bool, skipped: int) -> None:
        self.linear_1, self.linear_2 = Linear(width, hidden, bias), Linear(hidden, hidden, bias)
        self.activation, self.skipped = activation_of(name), skipped

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) to (batch, tokens - skipped, hidden)."""
        x = self.linear_1(x[:, self.skipped :])
        return self.linear_2(self.activation(x))  # type: ignore[no-any-return]


def _vision(fields: Fields) -> VisionConfig:
    """The tower up to the layer whose output is taken, which no norm follows."""
    section = fields.section("vision_config")
    kind = section.text("model_type", "clip_vision_model")
    if kind not in _TOWERS:
        raise LoadError(
            f"{fields.path}: a tower of model_type {shown(kind)} is not supported; "
            f"{', '.join(_TOWERS)} are"
        )
    config = _TOWERS[kind](replace(section, values={**_VISION, **section.values}))
    count = config.layers.num_hidden_layers
    layer = fields.values.get("vision_feature_layer", -2)
    if type(layer) is not int or not -count <= layer <= count:
        raise LoadError(
            f"{fields.path}: vision_feature_layer is {shown(layer)}; one number of {count} layers "
            "is supported"
        )
    taken = layer if layer >= 0 else count + 1 + layer
    layers = replace(config.layers, num_hidden_layers=taken, last_norm=False)
    return replace(config, layers=layers)


def _skipped(fields: Fields) -> int:
    """How many tokens in front are no patches that are taken."""
    strategy = fields.text("vision_feature_select_strategy", "default")
    if strategy not in ("default", "full"):
        raise LoadError(
            f"{fields.path}: vision_feature_select_strategy {shown(strategy)} is not supported; "
            "default and full are"
        )
    return int(strategy == "default")


def _tower(fields: Fields, hidden: int) -> ImageTower:
    config = _vision(fields)
    projector = Projector(
        config.layers.hidden_size,
        hidden,
        fields.text("projector_hidden_act", "gelu"),
        fields.flag("multimodal_projector_bias", True),
        _skipped(fields),
    )
    return ImageTower(config, projector)


def _names(fields: Fields) -> Names:
    """Layers behind the one that is taken are left out, and so is what pools their output."""
    taken = _vision(fields).layers.num_hidden_layers
    count = fields.section("vision_config").integer(
        "num_hidden_layers", _VISION["num_hidden_layers"]
    )
    later = "|".join(map(str, range(taken, count)))
    return (
        (r"^(model\.)?vision_tower\.(vision_model\.)?", "vision."),
        (r"^(model\.)?multi_modal_projector\.", "projector."),
        (rf"^vision\.(head|post_layernorm|encoder\.layers\.({later or 'none'}))\.", None),
        *NAMES,
    )


def _prepare(fields: Fields, processor: Fields, name: Callable[[int], str]) -> Prepare:
    refuse(processor, do_pad=False)
    values, config = preparation_of(processor), _vision(fields)
    check_size(values.shape, config.image_size, processor)
    patches = (config.image_size // config.patch_size) ** 2
    count = patches + int(config.first_token) - _skipped(fields)
    image_token = name(fields.integer("image_token_index", 32000))

    def prepare(image: Image) -> Prepared:
        return Prepared(runs_of([values(image)]), image_token * count, count)

    return prepare


def _said(metadata: Fields) -> Said:
    """Files have the layers that run, and CLIP's tower alone. Raises LoadError for LLaVA 1.6."""
    if metadata.values.get(_TILES):
        raise LoadError(
            f"{metadata.path}: it has {_TILES}, as files of LLaVA 1.6, whose images are tiles; "
            "that is not supported; take a file of LLaVA 1.5"
        )
    vision = vision_config(metadata, "gelu", 1e-5)
    layer, size = vision["num_hidden_layers"], vision["image_size"]
    taken = metadata.listed("clip.vision.feature_layer", int, [layer])
    if taken != [layer]:
        raise LoadError(
            f"{metadata.path}: clip.vision.feature_layer is {shown(taken)}; only the last of the "
            f"{layer} layers is supported"
        )
    settings = {
        **image_values(metadata),
        "size": {"shortest_edge": size},
        "crop_size": {"height": size, "width": size},
        "resample": BICUBIC,
    }
    kind = {"model_type": "clip_vision_model"}
    return Said({"vision_config": {**vision, **kind}, "vision_feature_layer": layer}, settings)


_TILES = "clip.vision.image_grid_pinpoints"


LLAVA = Seeing(
    _tower,
    ("vision_tower.", "multi_modal_projector.", "model.vision", "model.multi_modal"),
    _names,
    _prepare,
    tokens=("image_token_index", "image_token_id"),
    placeholders=("image_token_index", "image_token_id"),
    file=ProjectorFile(
        tower="model.vision_tower.vision_model.",
        projector="model.multi_modal_projector.",
        names={
            f"mm.{there}.{end}": f"linear_{here}.{end}"
            for there, here in ((0, 1), (2, 2))
            for end in ("weight", "bias")
        },
        output=("mm.2.weight", 0),
        read=_said,
        # The first model's decoder, Vicuna, has no token for images.
        tokens={"image_token_index": ("<image>", "<unk>")},
        placeholder="<image>",
    ),
)
