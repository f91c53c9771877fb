"""Models of Hugging Face's folders that are no causal decoders, by their names in `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from luminal.base import lazy
from luminal.base.errors import InputError, LoadError, ShapeError
from luminal.loaders.fields import Fields, naming
from luminal.loaders.mapped import is_there
from luminal.loaders.shown import shown
from luminal.models.checkpoint import folder_config, folder_tensors
from luminal.models.families.family import Family
from luminal.nn import Module

FAMILIES: Mapping[str, str] = {
    "BertForMaskedLM": "bert:BERT",
    "BertForQuestionAnswering": "text_heads:BERT_ANSWERS",
    "BertForSequenceClassification": "text_heads:BERT_TEXTS",
    "BertForTokenClassification": "text_heads:BERT_TOKENS",
    "BertModel": "bert:BERT",
    "CLIPModel": "clip:CLIP",
    "ConvNextForImageClassification": "convolutional:CONVNEXT",
    "DetrForObjectDetection": "detr:DETR",
    "Dinov2ForImageClassification": "vision:DINOV2_CLASSIFIER",
    "Dinov2Model": "vision:DINOV2",
    "DistilBertForMaskedLM": "bert:DISTILBERT",
    "DistilBertForQuestionAnswering": "text_heads:DISTILBERT_ANSWERS",
    "DistilBertForSequenceClassification": "text_heads:DISTILBERT_TEXTS",
    "DistilBertForTokenClassification": "text_heads:DISTILBERT_TOKENS",
    "DistilBertModel": "bert:DISTILBERT",
    "HubertForCTC": "wav2vec2:WAV2VEC2",
    "MobileNetV1ForImageClassification": "convolutional:MOBILENET_V1",
    "MobileNetV2ForImageClassification": "convolutional:MOBILENET_V2",
    "ModernBertForMaskedLM": "modernbert:MODERNBERT",
    "ModernBertForQuestionAnswering": "text_heads:MODERNBERT_ANSWERS",
    "ModernBertForSequenceClassification": "text_heads:MODERNBERT_TEXTS",
    "ModernBertForTokenClassification": "text_heads:MODERNBERT_TOKENS",
    "ModernBertModel": "modernbert:MODERNBERT",
    "ParakeetForCTC": "parakeet:PARAKEET",
    "ResNetForImageClassification": "convolutional:RESNET",
    "RobertaForMaskedLM": "bert:ROBERTA",
    "RobertaForQuestionAnswering": "text_heads:ROBERTA_ANSWERS",
    "RobertaForSequenceClassification": "text_heads:ROBERTA_TEXTS",
    "RobertaForTokenClassification": "text_heads:ROBERTA_TOKENS",
    "RobertaModel": "bert:ROBERTA",
    "SamModel": "sam:SAM",
    "SegformerForImageClassification": "segformer:SEGFORMER_CLASSIFIER",
    "SegformerForSemanticSegmentation": "segformer:SEGFORMER",
    "Siglip2Model": "siglip:SIGLIP",
    "Siglip2VisionModel": "siglip:SIGLIP_VISION",
    "SiglipModel": "siglip:SIGLIP",
    "SiglipVisionModel": "siglip:SIGLIP_VISION",
    "T5ForConditionalGeneration": "t5:T5_FAMILY",
    "ViTForImageClassification": "vision:VIT_CLASSIFIER",
    "ViTModel": "vision:VIT",
    "VitsModel": "vits:VITS",
    "Wav2Vec2ForCTC": "wav2vec2:WAV2VEC2",
    "WhisperForConditionalGeneration": "whisper:WHISPER",
    "XLMRobertaForMaskedLM": "bert:ROBERTA",
    "XLMRobertaForQuestionAnswering": "text_heads:ROBERTA_ANSWERS",
    "XLMRobertaForSequenceClassification": "text_heads:ROBERTA_TEXTS",
    "XLMRobertaForTokenClassification": "text_heads:ROBERTA_TOKENS",
    "XLMRobertaModel": "bert:ROBERTA",
    "YOLO11": "yolo:YOLO11",
    "YOLOv8": "yolo:YOLOV8",
}
"""Modules of this package and what is there: one is imported when a model of it is read."""


def family_of(raw: Mapping[str, Any]) -> Family | None:
    """The family of a `config.json`, or None for one that is not here."""
    match raw.get("architectures"):
        # A table of texts and no imports: a process that reads a decoder loads none of these
        # modules.
        case [str(name)] if name in FAMILIES:
            family: Family = lazy.found(f"{__name__}.{FAMILIES[name]}")
            return family
        case [str(name)] if name.endswith("ForSequenceClassification"):
            decoder: Family = lazy.found(f"{__name__}.text_heads:DECODER_TEXTS")
            return decoder
    return None


PIPELINE = "model_index.json"
"""What diffusers saves beside folders of parts, instead of a `config.json`."""


def is_family(folder: Path) -> bool:
    """Whether a folder has a model of these families, or several in a pipeline."""
    return is_there(folder / PIPELINE) or family_of(folder_config(folder)) is not None


def read_model(folder: Path) -> Module:
    """The model of a folder with a `config.json` and safetensors, weights in the files' dtypes.

    Raises LoadError for an architecture or option that Luminal does not have, and for weights that
    do not fit the configuration.
    """
    return _read(folder)[1]


def read_family(folder: Path, mode: Any, backend: str) -> Any:
    """What runs the model of a folder, compiled so. Raises LoadError."""
    if is_there(folder / PIPELINE):
        return lazy.found(f"{__name__}.diffusion:read_pipeline")(folder, mode, backend)
    family, model = _read(folder)
    return family.runner(folder, model, mode, backend)


def _read(folder: Path) -> tuple[Family, Module]:
    path = folder / "config.json"
    raw = folder_config(folder)
    family = family_of(raw)
    if family is None:
        raise LoadError(
            f"{path}: architectures is {shown(raw.get('architectures'))}; supported are "
            f"{', '.join(FAMILIES)}"
        )
    fields = Fields(raw, path)
    try:
        model = family.model(fields)
    except (InputError, ShapeError) as error:
        raise LoadError(f"{path}: {error}") from error
    with naming(folder):
        model.load_state_dict(family.weights(folder_tensors(folder), fields), adopt_dtypes=True)
    return family, model.eval()
