"""Text encoders with a head, and decoders with a label for a text: arXiv 1810.04805, 1907.11692,
1910.01108, 2412.13663.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from luminal.base.dtypes import float32
from luminal.base.errors import LoadError
from luminal.base.records import dataclass
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.loaders.shown import shown
from luminal.models.architectures import architecture_of, records
from luminal.models.architectures.architecture import Architecture
from luminal.models.decoder import DecoderModel
from luminal.models.decoder_config import DecoderConfig
from luminal.models.families.bert import BERT, DISTILBERT, ROBERTA
from luminal.models.families.family import Family
from luminal.models.families.modernbert import MODERNBERT
from luminal.models.families.renaming import Names, renamed
from luminal.models.families.settings import labels_of
from luminal.models.generate import MAX_CONTEXT
from luminal.models.text_head import HeadConfig, HeadedDecoder, HeadedEncoder
from luminal.models.text_reader import QuestionAnswerer, TextClassifier, TokenClassifier


@dataclass(frozen=True, slots=True)
class Head:
    """`config`: what a head is, by the configuration and the encoder's width. `names`: of its
    weights in files.
    """

    config: Callable[[Fields, int], HeadConfig]
    names: Names


OTHERS = (r"^(?!head\.).*$", None)
"""Drops what is no head's; a head's names come first and begin with "head."."""


def _plain(names: str) -> Head:
    """A layer that reads each token's vector."""
    return Head(
        lambda fields, hidden: HeadConfig(hidden, len(labels_of(fields))),
        ((rf"^{names}\.", "head.out."), OTHERS),
    )


def _first(activation: str, dense: str, out: str) -> Head:
    """Two layers that read the first token's vector."""
    return Head(
        lambda fields, hidden: HeadConfig(hidden, len(labels_of(fields)), "first", activation),
        ((rf"^{dense}\.", "head.dense."), (rf"^{out}\.", "head.out."), OTHERS),
    )


MODERN_POOLS = {"cls": "first", "mean": "mean"}


def _modern(pools: bool) -> Head:
    """ModernBERT's layers, which read one vector or each."""

    def config(fields: Fields, hidden: int) -> HeadConfig:
        pool = "none"
        if pools:
            kind = fields.text("classifier_pooling", "cls")
            if kind not in MODERN_POOLS:
                raise LoadError(
                    f"{fields.path}: classifier_pooling {shown(kind)} is not supported; "
                    f"{', '.join(MODERN_POOLS)} are"
                )
            pool = MODERN_POOLS[kind]
        return HeadConfig(
            hidden,
            len(labels_of(fields)),
            pool,
            fields.text("classifier_activation", "gelu"),
            fields.number("norm_eps", 1e-5, most=1),
            fields.flag("classifier_bias", False),
            fields.flag("norm_bias", False),
        )

    return Head(config, ((r"^head\.", "head."), (r"^classifier\.", "head.out."), OTHERS))


def _headed(family: Family, head: Head, runner: Any) -> Family:
    def model(fields: Fields) -> HeadedEncoder:
        encoder: Any = family.model(fields)
        return HeadedEncoder(encoder, head.config(fields, encoder.config.layers.hidden_size))

    def weights(tensors: Mapping[str, Array], fields: Fields) -> dict[str, Array]:
        below = family.weights(tensors, fields)
        encoder = {f"encoder.{name}": array for name, array in below.items()}
        return encoder | renamed(tensors, head.names)

    return Family(model, weights, runner.of_folder)


_POOLED = _first("tanh", r"bert\.pooler\.dense", "classifier")
_OF_ROBERTA = _first("tanh", r"classifier\.dense", r"classifier\.out_proj")
_OF_DISTILBERT = _first("relu", "pre_classifier", "classifier")
_LABELS, _SPANS = _plain("classifier"), _plain("qa_outputs")

BERT_TEXTS = _headed(BERT, _POOLED, TextClassifier)
BERT_TOKENS = _headed(BERT, _LABELS, TokenClassifier)
BERT_ANSWERS = _headed(BERT, _SPANS, QuestionAnswerer)
ROBERTA_TEXTS = _headed(ROBERTA, _OF_ROBERTA, TextClassifier)
ROBERTA_TOKENS = _headed(ROBERTA, _LABELS, TokenClassifier)
ROBERTA_ANSWERS = _headed(ROBERTA, _SPANS, QuestionAnswerer)
DISTILBERT_TEXTS = _headed(DISTILBERT, _OF_DISTILBERT, TextClassifier)
DISTILBERT_TOKENS = _headed(DISTILBERT, _LABELS, TokenClassifier)
DISTILBERT_ANSWERS = _headed(DISTILBERT, _SPANS, QuestionAnswerer)
MODERNBERT_TEXTS = _headed(MODERNBERT, _modern(True), TextClassifier)
MODERNBERT_TOKENS = _headed(MODERNBERT, _modern(False), TokenClassifier)
MODERNBERT_ANSWERS = _headed(MODERNBERT, _modern(False), QuestionAnswerer)


# --- decoders -------------------------------------------------------------------------------------


def _decoder_config(fields: Fields) -> tuple[Architecture, DecoderConfig]:
    """The record of the causal language model below a head, and its configuration.

    Raises LoadError where there is none.
    """
    (name,) = fields.listed("architectures", str)
    causal = name.replace(SEQUENCES, "ForCausalLM")
    record = next((record for record in records(causal) if record.name == causal), None)
    if record is None:
        record = architecture_of(fields.values, fields.path)  # whose error has the name in the file
    return record, record.config(fields)


def _decoder(fields: Fields) -> HeadedDecoder:
    _, config = _decoder_config(fields)
    count = len(labels_of(fields))
    head = HeadConfig(config.hidden_size, count, "last", out_bias=False)
    longest = min(config.max_position_embeddings, MAX_CONTEXT)
    return HeadedDecoder(DecoderModel(config, float32), head, longest)


def _decoder_weights(tensors: Mapping[str, Array], fields: Fields) -> dict[str, Array]:
    record, config = _decoder_config(fields)
    below = record.weights({k: v for k, v in tensors.items() if k != "score.weight"}, config)
    weights = {name: array for name, array in below.items() if name.startswith("model.")}
    return weights | renamed(tensors, ((r"^score\.", "head.out."), OTHERS))


SEQUENCES = "ForSequenceClassification"
DECODER_TEXTS = Family(_decoder, _decoder_weights, TextClassifier.of_folder)
