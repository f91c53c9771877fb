"""A Llama in a GGUF file: its configuration, weights and tokenizer under the names used here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, processors

from luminal.errors import LoadError
from luminal.loaders.fields import Fields
from luminal.loaders.gguf import GGUFFile
from luminal.loaders.llama_config import ARCHITECTURE, LlamaConfig, check_sizes
from luminal.loaders.mapped import Array
from luminal.loaders.sentencepiece import Kind, Piece, SentencePieceTokenizer
from luminal.loaders.shown import shown
from luminal.loaders.tokenizer import HuggingFaceTokenizer, Tokenizer, library_errors

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.weight")

# GGUF's tokenizer.ggml.token_type: normal 1, unknown 2, control 3, user-defined 4, unused 5, byte 6
_CONTROL, _BYTE = 3, 6
_KINDS = {1: Kind.TEXT, 4: Kind.TEXT, _BYTE: Kind.BYTE}

# How Llama 3 cuts text before byte-pair encoding: contractions, words, up to three digits,
# punctuation, line ends, spaces (the pattern in its published tokenizer.json).
_LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def llama_config(file: GGUFFile, path: Path) -> LlamaConfig:
    """The configuration in the metadata. Raises LoadError for another architecture or option."""
    fields = Fields(file.metadata, path, "the metadata")
    architecture = file.metadata.get("general.architecture")
    if architecture != "llama":
        raise LoadError(f"{path}: architecture {shown(architecture)} is not supported; 'llama' is")
    scaling = file.metadata.get("llama.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in file.tensors:
        raise LoadError(
            f"{path}: scaled rotary frequencies are not supported in GGUF; load the model's "
            f"safetensors folder instead"
        )
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise LoadError(f"{path}: tensor 'token_embd.weight' is missing or no matrix")
    hidden = fields.integer("llama.embedding_length")
    heads = fields.integer("llama.attention.head_count")
    config = LlamaConfig(
        architecture=ARCHITECTURE,
        hidden_size=hidden,
        intermediate_size=fields.integer("llama.feed_forward_length"),
        num_hidden_layers=fields.integer("llama.block_count"),
        num_attention_heads=heads,
        num_key_value_heads=fields.integer("llama.attention.head_count_kv", heads),
        head_dim=fields.integer("llama.attention.key_length", hidden // heads),
        rms_norm_eps=fields.number("llama.attention.layer_norm_rms_epsilon", most=1),
        rope_theta=fields.number("llama.rope.freq_base", 10000.0, least=1),
        rope_scaling=None,
        rope_interleaved=True,
        vocab_size=embedding.shape[0],
        max_position_embeddings=fields.integer("llama.context_length"),
        tie_word_embeddings="output.weight" not in file.tensors,
    )
    check_sizes(config, path)
    return config


def llama_weights(file: GGUFFile) -> dict[str, Array]:
    """The tensors under Hugging Face's names; an unknown name stays as it is."""
    return {_hugging_face_name(name): each.array() for name, each in file.tensors.items()}


def gguf_tokenizer(metadata: Mapping[str, Any], path: Path) -> Tokenizer:
    """The tokenizer in the metadata: SentencePiece ("llama") or byte-level BPE ("gpt2")."""
    fields = Fields(metadata, path, "the metadata")
    model = metadata.get("tokenizer.ggml.model")
    if model == "llama":
        return _sentencepiece(fields)
    if model == "gpt2":
        return _byte_level(fields)
    raise LoadError(
        f"{path}: tokenizer {shown(model)} is not supported; 'llama' and 'gpt2' are; "
        f"pass a tokenizer.json"
    )


def _hugging_face_name(name: str) -> str:
    block = _BLOCK.fullmatch(name)
    if block and block[2] in _NAMES:
        return f"model.layers.{block[1]}.{_NAMES[block[2]]}.weight"
    stem = name.removesuffix(".weight")
    return f"{_NAMES[stem]}.weight" if stem in _NAMES else name


def _sentencepiece(fields: Fields) -> SentencePieceTokenizer:
    tokens = fields.listed("tokenizer.ggml.tokens", str)
    scores = fields.listed("tokenizer.ggml.scores", float)
    types = fields.listed("tokenizer.ggml.token_type", int)
    if not len(tokens) == len(scores) == len(types):
        raise LoadError(
            f"{fields.path}: the tokenizer has {len(tokens)} tokens, {len(scores)} scores and "
            f"{len(types)} types; it must have as many of each"
        )
    pieces = []
    for token, score, kind_number in zip(tokens, scores, types, strict=True):
        kind = _KINDS.get(kind_number, Kind.CONTROL)
        if kind is Kind.BYTE:
            text = bytes([_byte_value(token, fields.path)])
        else:
            text = token.replace("\u2581", " ").encode("utf-8", "surrogateescape")
        pieces.append(Piece(text, score, kind))
    count = len(pieces)
    unknown = fields.id_or_none("tokenizer.ggml.unknown_token_id", count)
    return SentencePieceTokenizer(
        pieces,
        bos_id=fields.token_id("tokenizer.ggml.bos_token_id", count),
        eos_id=fields.token_id("tokenizer.ggml.eos_token_id", count),
        unknown_id=0 if unknown is None else unknown,
        add_bos=fields.flag("tokenizer.ggml.add_bos_token", True),
        add_space=fields.flag("tokenizer.ggml.add_space_prefix", True),
    )


def _byte_value(token: str, path: Path) -> int:
    match = re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", token)
    if not match:
        raise LoadError(f"{path}: byte token {shown(token)} must have the form <0xNN>")
    return int(match[1], 16)


def _byte_level(fields: Fields) -> HuggingFaceTokenizer:
    path = fields.path
    tokens = fields.listed("tokenizer.ggml.tokens", str)
    lines = fields.listed("tokenizer.ggml.merges", str)
    merges = [(left, right) for left, _, right in (line.partition(" ") for line in lines)]
    types = fields.listed("tokenizer.ggml.token_type", int, [])
    cut = fields.text("tokenizer.ggml.pre", "default")
    bos, eos, eot = (
        fields.id_or_none(f"tokenizer.ggml.{name}_token_id", len(tokens))
        for name in ("bos", "eos", "eot")
    )
    is_llama3 = cut in ("llama-bpe", "llama3", "llama-v3")
    with_bos = fields.flag("tokenizer.ggml.add_bos_token", is_llama3)
    vocab = {token: index for index, token in enumerate(tokens)}
    with library_errors(path):
        inner = tokenizers.Tokenizer(models.BPE(vocab, merges, ignore_merges=is_llama3))
        inner.pre_tokenizer = _pre_tokenizer(cut, path)
        inner.decoder = decoders.ByteLevel()
        special = [token for token, kind in zip(tokens, types, strict=False) if kind == _CONTROL]
        inner.add_special_tokens([AddedToken(token, special=True) for token in special])
        if bos is not None and with_bos:
            inner.post_processor = processors.TemplateProcessing(
                single=f"{tokens[bos]} $A", special_tokens=[(tokens[bos], bos)]
            )
    ends = frozenset(end for end in (eos, eot) if end is not None)
    return HuggingFaceTokenizer(inner, bos, ends, path)


def _pre_tokenizer(cut: str, path: Path) -> pre_tokenizers.PreTokenizer:
    if cut in ("default", "gpt-2"):
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if cut == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    if cut in ("llama-bpe", "llama3", "llama-v3"):
        words = pre_tokenizers.Split(Regex(_LLAMA3_PATTERN), "isolated")
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([words, level])
    raise LoadError(
        f"{path}: pre-tokenizer {shown(cut)} is not supported; default, gpt-2, smollm and "
        f"llama-bpe are; pass a tokenizer.json"
    )
