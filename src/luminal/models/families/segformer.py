"""SegFormer: labels of pixels, or of whole images. Xie et al., arXiv 2105.15203."""

from __future__ import annotations

from collections.abc import Mapping

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.settings import MAX_LAYERS, refuse
from luminal.models.classifier import Classifier
from luminal.models.families.family import Family
from luminal.models.families.renaming import Names, renamed
from luminal.models.families.settings import labels_of
from luminal.models.image_model import ImageClassifier
from luminal.models.segformer import SegFormer, SegFormerTrunk, StageConfig
from luminal.models.segment import Segmenter

_NAMES: Names = (
    (r"num_batches_tracked$", None),
    (r"^classifier\.", "head."),
    (r"^decode_head\.linear_c\.(\d+)\.proj\.", r"projections.\1."),
    (r"^decode_head\.linear_fuse\.", "fuse."),
    (r"^decode_head\.batch_norm\.", "norm."),
    (r"^decode_head\.classifier\.", "head."),
    (r"^segformer\.encoder\.patch_embeddings\.(\d+)\.proj\.", r"trunk.stages.\1.patches."),
    (r"^segformer\.encoder\.patch_embeddings\.(\d+)\.", r"trunk.stages.\1.first_"),
    (r"^segformer\.encoder\.layer_norm\.(\d+)\.", r"trunk.stages.\1.norm."),
    (r"^segformer\.encoder\.block\.(\d+)\.(\d+)\.", r"trunk.stages.\1.layers.\2."),
    (r"\.first_layer_norm\.", ".first_norm."),
    (r"\.layer_norm_1\.", ".before."),
    (r"\.layer_norm_2\.", ".after."),
    (r"\.attention\.self\.query\.", ".attention.q_proj."),
    (r"\.attention\.self\.key\.", ".attention.k_proj."),
    (r"\.attention\.self\.value\.", ".attention.v_proj."),
    (r"\.attention\.output\.dense\.", ".attention.o_proj."),
    (r"\.attention\.self\.sr\.", ".reduce."),
    (r"\.attention\.self\.layer_norm\.", ".reduced_norm."),
    (r"\.mlp\.dense1\.", ".up_proj."),
    (r"\.mlp\.dense2\.", ".down_proj."),
    (r"\.mlp\.dwconv\.dwconv\.", ".conv."),
)
_COLUMNS = {
    "hidden_sizes": [32, 64, 160, 256],
    "depths": [2, 2, 2, 2],
    "num_attention_heads": [1, 2, 5, 8],
    "patch_sizes": [7, 3, 3, 3],
    "strides": [4, 2, 2, 2],
    "sr_ratios": [8, 4, 2, 1],
    "mlp_ratios": [4, 4, 4, 4],
}
_MOST = 1 << 16  # of a width or a size


def _stages(fields: Fields) -> list[StageConfig]:
    columns = {key: fields.listed(key, int, default) for key, default in _COLUMNS.items()}
    count = len(columns["depths"])
    for key, numbers in columns.items():
        most = MAX_LAYERS if key == "depths" else _MOST
        if len(numbers) != count or not all(0 < number <= most for number in numbers) or not count:
            raise LoadError(
                f"{fields.path}: {key} is {numbers}; it must have a number from 1 to {most} for "
                f"each of the {count} stages of depths"
            )
    activation = fields.text("hidden_act", "gelu")
    inputs, stages = fields.integer("num_channels", 3), []
    for width, depth, heads, patch, stride, reduction, ratio in zip(*columns.values(), strict=True):
        if width % heads:
            raise LoadError(
                f"{fields.path}: hidden_sizes {width} does not divide among num_attention_heads "
                f"{heads}"
            )
        inner = width * ratio
        stages.append(
            StageConfig(inputs, width, depth, heads, patch, stride, reduction, inner, activation)
        )
        inputs = width
    return stages


def _model(fields: Fields) -> SegFormer:
    refuse(fields, reshape_last_stage=True)
    width = fields.integer("decoder_hidden_size", 256)
    return SegFormer(_stages(fields), width, len(labels_of(fields)))


def _classifier(fields: Fields) -> Classifier:
    trunk = SegFormerTrunk(_stages(fields))
    return Classifier(trunk, trunk.width, len(labels_of(fields)))


def _weights(tensors: Mapping[str, Array], fields: Fields) -> dict[str, Array]:
    return renamed(tensors, _NAMES)


SEGFORMER = Family(_model, _weights, Segmenter.of_folder)
SEGFORMER_CLASSIFIER = Family(_classifier, _weights, ImageClassifier.of_folder)
