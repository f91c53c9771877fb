"""Models of Hugging Face's folders that are no causal decoders, by their names in `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from luminal.errors import InputError, LoadError, ShapeError
from luminal.loaders.checkpoint import folder_config, folder_tensors
from luminal.loaders.fields import Fields, naming
from luminal.loaders.shown import shown
from luminal.models.families.bert import BERT, DISTILBERT, ROBERTA
from luminal.models.families.clip import CLIP
from luminal.models.families.convolutional import CONVNEXT, MOBILENET_V1, MOBILENET_V2, RESNET
from luminal.models.families.family import Family
from luminal.models.families.modernbert import MODERNBERT
from luminal.models.families.t5 import T5_FAMILY
from luminal.models.families.vision import DINOV2, DINOV2_CLASSIFIER, VIT, VIT_CLASSIFIER
from luminal.models.families.whisper import WHISPER
from luminal.models.families.yolo import YOLO11, YOLOV8
from luminal.nn import Module

FAMILIES: Mapping[str, Family] = {
    "BertForMaskedLM": BERT,
    "BertModel": BERT,
    "CLIPModel": CLIP,
    "ConvNextForImageClassification": CONVNEXT,
    "Dinov2ForImageClassification": DINOV2_CLASSIFIER,
    "Dinov2Model": DINOV2,
    "DistilBertForMaskedLM": DISTILBERT,
    "DistilBertModel": DISTILBERT,
    "MobileNetV1ForImageClassification": MOBILENET_V1,
    "MobileNetV2ForImageClassification": MOBILENET_V2,
    "ModernBertForMaskedLM": MODERNBERT,
    "ModernBertModel": MODERNBERT,
    "ResNetForImageClassification": RESNET,
    "RobertaForMaskedLM": ROBERTA,
    "RobertaModel": ROBERTA,
    "T5ForConditionalGeneration": T5_FAMILY,
    "ViTForImageClassification": VIT_CLASSIFIER,
    "ViTModel": VIT,
    "WhisperForConditionalGeneration": WHISPER,
    "XLMRobertaForMaskedLM": ROBERTA,
    "XLMRobertaModel": ROBERTA,
    "YOLO11": YOLO11,
    "YOLOv8": YOLOV8,
}


def family_of(raw: Mapping[str, Any]) -> Family | None:
    """That of a `config.json`; None for one that is not here."""
    match raw.get("architectures"):
        case [str(name)]:
            return FAMILIES.get(name)
    return None


def read_model(folder: Path) -> Module:
    """The model of a folder with a `config.json` and safetensors, weights in the files' dtypes.

    Raises LoadError for an architecture or option that Luminal does not have, and for weights that
    do not fit the configuration.
    """
    return _read(folder)[1]


def read_family(folder: Path, mode: Any, backend: str) -> Any:
    """What runs the model of a folder, compiled so. Raises LoadError."""
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
