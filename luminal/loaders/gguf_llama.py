"""A Llama in a GGUF file: its configuration, weights and tokenizer under the names used here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, processors

from luminal.errors import LoadError
from luminal.loaders.gguf import GGUFFile
from luminal.loaders.llama_config import ARCHITECTURE, LlamaConfig, check_sizes
from luminal.loaders.mapped import Array
from luminal.loaders.sentencepiece import Kind, Piece, SentencePieceTokenizer
from luminal.loaders.tokenizer import HuggingFaceTokenizer, Tokenizer

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
    metadata = file.metadata
    architecture = metadata.get("general.architecture")
    if architecture != "llama":
        raise LoadError(f"{path}: architecture {architecture!r} is not supported; 'llama' is")
    scaling = metadata.get("llama.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in file.tensors:
        raise LoadError(
            f"{path}: scaled rotary frequencies are not supported in GGUF; load the model's "
            f"safetensors folder instead"
        )
    if "token_embd.weight" not in file.tensors:
        raise LoadError(f"{path}: tensor 'token_embd.weight' is missing")
    hidden: int = _key(metadata, "llama.embedding_length", path)
    heads: int = _key(metadata, "llama.attention.head_count", path)
    config = LlamaConfig(
        architecture=ARCHITECTURE,
        hidden_size=hidden,
        intermediate_size=_key(metadata, "llama.feed_forward_length", path),
        num_hidden_layers=_key(metadata, "llama.block_count", path),
        num_attention_heads=heads,
        num_key_value_heads=metadata.get("llama.attention.head_count_kv", heads),
        head_dim=metadata.get("llama.attention.key_length", hidden // max(heads, 1)),
        rms_norm_eps=_key(metadata, "llama.attention.layer_norm_rms_epsilon", path),
        rope_theta=metadata.get("llama.rope.freq_base", 10000.0),
        rope_scaling=None,
        rope_interleaved=True,
        vocab_size=file.tensors["token_embd.weight"].shape[0],
        max_position_embeddings=_key(metadata, "llama.context_length", path),
        tie_word_embeddings="output.weight" not in file.tensors,
    )
    check_sizes(config, path)
    return config


def llama_weights(file: GGUFFile) -> dict[str, Array]:
    """The tensors under Hugging Face's names; an unknown name stays as it is."""
    return {_hugging_face_name(name): tensor for name, tensor in file.tensors.items()}


def gguf_tokenizer(metadata: Mapping[str, Any], path: Path) -> Tokenizer:
    """The tokenizer in the metadata: SentencePiece ("llama") or byte-level BPE ("gpt2")."""
    model = metadata.get("tokenizer.ggml.model")
    if model == "llama":
        return _sentencepiece(metadata, path)
    if model == "gpt2":
        return _byte_level(metadata, path)
    raise LoadError(
        f"{path}: tokenizer {model!r} is not supported; 'llama' and 'gpt2' are; "
        f"pass a tokenizer.json"
    )


def _hugging_face_name(name: str) -> str:
    block = _BLOCK.fullmatch(name)
    if block and block[2] in _NAMES:
        return f"model.layers.{block[1]}.{_NAMES[block[2]]}.weight"
    stem = name.removesuffix(".weight")
    return f"{_NAMES[stem]}.weight" if stem in _NAMES else name


def _key(metadata: Mapping[str, Any], key: str, path: Path) -> Any:
    if key not in metadata:
        raise LoadError(f"{path}: the metadata has no {key!r}")
    return metadata[key]


def _sentencepiece(metadata: Mapping[str, Any], path: Path) -> SentencePieceTokenizer:
    tokens = _key(metadata, "tokenizer.ggml.tokens", path)
    scores = _key(metadata, "tokenizer.ggml.scores", path)
    types = _key(metadata, "tokenizer.ggml.token_type", path)
    if not len(tokens) == len(scores) == len(types):
        raise LoadError(
            f"{path}: the tokenizer has {len(tokens)} tokens, {len(scores)} scores and "
            f"{len(types)} types; it must have as many of each"
        )
    pieces = []
    for token, score, kind_number in zip(tokens, scores, types, strict=True):
        kind = _KINDS.get(kind_number, Kind.CONTROL)
        if kind is Kind.BYTE:
            text = bytes([_byte_value(token, path)])
        else:
            text = token.replace("\u2581", " ").encode("utf-8", "surrogateescape")
        pieces.append(Piece(text, score, kind))
    return SentencePieceTokenizer(
        pieces,
        bos_id=_key(metadata, "tokenizer.ggml.bos_token_id", path),
        eos_id=_key(metadata, "tokenizer.ggml.eos_token_id", path),
        unknown_id=metadata.get("tokenizer.ggml.unknown_token_id", 0),
        add_bos=metadata.get("tokenizer.ggml.add_bos_token", True),
        add_space=metadata.get("tokenizer.ggml.add_space_prefix", True),
    )


def _byte_value(token: str, path: Path) -> int:
    match = re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", token)
    if not match:
        raise LoadError(f"{path}: byte token {token!r} must have the form <0xNN>")
    return int(match[1], 16)


def _byte_level(metadata: Mapping[str, Any], path: Path) -> HuggingFaceTokenizer:
    tokens: list[str] = _key(metadata, "tokenizer.ggml.tokens", path)
    merges = [tuple(pair.split(" ", 1)) for pair in _key(metadata, "tokenizer.ggml.merges", path)]
    cut = metadata.get("tokenizer.ggml.pre", "default")
    is_llama3 = cut in ("llama-bpe", "llama3", "llama-v3")
    vocab = {token: index for index, token in enumerate(tokens)}
    inner = tokenizers.Tokenizer(models.BPE(vocab, merges, ignore_merges=is_llama3))
    inner.pre_tokenizer = _pre_tokenizer(cut, path)
    inner.decoder = decoders.ByteLevel()
    types = metadata.get("tokenizer.ggml.token_type", [])
    special = [token for token, kind in zip(tokens, types, strict=False) if kind == _CONTROL]
    inner.add_special_tokens([AddedToken(token, special=True) for token in special])
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    if bos is not None and metadata.get("tokenizer.ggml.add_bos_token", is_llama3):
        inner.post_processor = processors.TemplateProcessing(
            single=f"{tokens[bos]} $A", special_tokens=[(tokens[bos], bos)]
        )
    ends = (
        metadata.get("tokenizer.ggml.eos_token_id"),
        metadata.get("tokenizer.ggml.eot_token_id"),
    )
    return HuggingFaceTokenizer(inner, bos, frozenset(end for end in ends if end is not None))


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
        f"{path}: pre-tokenizer {cut!r} is not supported; default, gpt-2, smollm and llama-bpe "
        f"are; pass a tokenizer.json"
    )
