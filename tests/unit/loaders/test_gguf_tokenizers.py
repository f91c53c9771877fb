"""Tokenizers of GGUF files against those that the same pieces make elsewhere: sentencepiece's own
library, and tokenizers that transformers loads.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from luminal.loaders.gguf import read_gguf
from luminal.loaders.gguf_tokenizer import gguf_tokenizer
from luminal.loaders.pre_tokenizers import CUTS
from luminal.loaders.tokenizer import HuggingFaceTokenizer, StreamDecoder
from luminal.loaders.write_gguf import save_gguf
from tests.unit.loaders.texts import CORPUS, TEXTS

sentencepiece = pytest.importorskip("sentencepiece")

assert len(TEXTS) == 40


def of_file(path: Path, metadata: dict[str, Any]) -> HuggingFaceTokenizer:
    """By way of a file: what is written is what is read."""
    save_gguf(path, {}, metadata)
    return gguf_tokenizer(read_gguf(path).metadata, path)


# --- "llama"


@pytest.fixture(scope="module", params=[True, False], ids=["dummy_space", "no_space"])
def spm(request: pytest.FixtureRequest) -> Any:
    """A trained vocabulary of SentencePiece, with its own encoder."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=model, vocab_size=480, model_type="bpe",
        byte_fallback=True, add_dummy_prefix=request.param, character_coverage=0.98,
        normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2,
    )  # fmt: skip
    return request.param, sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def spm_metadata(processor: Any, add_space: bool) -> dict[str, Any]:
    """As llama.cpp writes it."""
    numbers = range(processor.vocab_size())
    kinds = [
        6 if processor.is_byte(n) else 3 if processor.is_control(n)
        else 2 if processor.is_unknown(n) else 1 for n in numbers
    ]  # fmt: skip
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [processor.id_to_piece(n) for n in numbers],
        "tokenizer.ggml.scores": [processor.get_score(n) for n in numbers],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": processor.bos_id(),
        "tokenizer.ggml.eos_token_id": processor.eos_id(),
        "tokenizer.ggml.unknown_token_id": processor.unk_id(),
        "tokenizer.ggml.add_space_prefix": add_space,
    }


def test_sentencepieces(tmp_path: Path, spm: Any) -> None:
    add_space, theirs = spm
    ours = of_file(tmp_path / "m.gguf", spm_metadata(theirs, add_space))
    for text in TEXTS:
        wanted = theirs.encode(text)
        assert ours.encode(text) == [theirs.bos_id(), *wanted], text
        # The library leaves out U+0000, which no text of a model has.
        assert ours.decode(ours.encode(text)).replace("\0", "") == text.replace("\0", "")


def test_streams_of_bytes_hand_out_whole_characters(tmp_path: Path, spm: Any) -> None:
    add_space, theirs = spm
    ours = of_file(tmp_path / "m.gguf", spm_metadata(theirs, add_space))
    text = "a 👩‍👩‍👧 ไทย हि🇫🇷!"
    ids = ours.encode(text)
    assert len(ids) > 2 * len(text)  # nearly all are single bytes
    stream = StreamDecoder(ours)
    pieces = [stream.push(number) for number in ids] + [stream.finish()]
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces)


def test_control_tokens_in_a_text_and_ends(tmp_path: Path, spm: Any) -> None:
    add_space, theirs = spm
    metadata = spm_metadata(theirs, add_space)
    ends = {"tokenizer.ggml.add_eos_token": True, "tokenizer.ggml.add_bos_token": False}
    ours = of_file(tmp_path / "m.gguf", metadata | ends | {"tokenizer.ggml.eot_token_id": 7})
    ids = ours.encode("hello</s>world")
    assert ids == [*theirs.encode("hello"), 2, *theirs.encode("world"), 2]
    assert ours.eos_ids == frozenset((1, 2, 7))


# --- "gpt2"


PUBLISHED = {"gpt-2": "GPT2Tokenizer", "command-r": "CohereTokenizer", "qwen2": "Qwen2Tokenizer"}
"""Classes of transformers that cut texts as files of these names say."""


def trained(name: str) -> tokenizers.Tokenizer:
    """Pairs of bytes of the corpus, which is cut as transformers does."""
    transformers = pytest.importorskip("transformers")
    if name == "llama-bpe":
        slow = pytest.importorskip("transformers.convert_slow_tokenizer")
        cut = slow.TikTokenConverter(extra_special_tokens=[])
        words = pre_tokenizers.Split(tokenizers.Regex(cut.pattern), "isolated")
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        normalizer, pre_tokenizer = None, pre_tokenizers.Sequence([words, level])
    else:
        inner = getattr(transformers, PUBLISHED[name])(vocab={"a": 0}, merges=[])._tokenizer
        normalizer, pre_tokenizer = inner.normalizer, inner.pre_tokenizer
    found = tokenizers.Tokenizer(models.BPE(ignore_merges=name == "llama-bpe"))
    if name != "command-r":  # it joins characters, other models under this name do not
        found.normalizer = normalizer
    found.pre_tokenizer, found.decoder = pre_tokenizer, decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<|end|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    found.train_from_iterator(CORPUS, trainer)
    return found


@pytest.mark.parametrize("name", ["gpt-2", "command-r", "qwen2", "llama-bpe"])
def test_byte_level_pieces(tmp_path: Path, name: str) -> None:
    theirs = trained(name)
    settings = json.loads(theirs.to_str())["model"]
    tokens = sorted(settings["vocab"], key=settings["vocab"].__getitem__)
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": name,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, *[1] * (len(tokens) - 1)],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in settings["merges"]],
        "tokenizer.ggml.eos_token_id": 0,
    }
    ours = of_file(tmp_path / "m.gguf", metadata)
    for text in (*TEXTS, "one<|end|>two"):
        ids = theirs.encode(text).ids
        assert ours.encode(text) == ids, text
        assert ours.decode(ids) == theirs.decode(ids), text
    assert ours.eos_ids == frozenset((0,))


@pytest.mark.parametrize(
    ("name", "is_whole"), [("llama-bpe", True), ("tekken", True), ("gpt-2", False), ("dbrx", False)]
)
def test_a_piece_that_no_pairs_merge_to(tmp_path: Path, name: str, is_whole: bool) -> None:
    """Llama 3 and its like take a piece that is a token as it is; others begin from its bytes."""
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": name,
        "tokenizer.ggml.tokens": [*"helo", "he", "hello"],
        "tokenizer.ggml.token_type": [1] * 6,
        "tokenizer.ggml.merges": ["h e"],
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.eos_token_id": 0,
    }
    ours = of_file(tmp_path / "m.gguf", metadata)
    assert ours.encode("hello") == ([5] if is_whole else [4, 2, 2, 3])
    assert ours.encode("hell") == [4, 2, 2]


@pytest.mark.parametrize("name", CUTS)
def test_no_cut_loses_text(name: str) -> None:
    cutter = CUTS[name].pre_tokenizer()
    for text in TEXTS:
        pieces = cutter.pre_tokenize_str(text)
        assert "".join(text[begin:end] for _, (begin, end) in pieces) == text


# --- "bert"


def test_word_pieces(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = sorted({letter for text in CORPUS for letter in text.lower()} - set(" \n"))
    words = ["hello", "world", "the", "it", "line", "number", "in", "##ing", "##ere", "##re", "##s"]
    tokens = [*special, *letters, *(f"##{letter}" for letter in letters), *words]
    theirs = transformers.BertTokenizer(vocab={token: n for n, token in enumerate(tokens)})
    marked = [
        token if token in special else token[2:] if token.startswith("##") else f"\u2581{token}"
        for token in tokens
    ]
    metadata = {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": marked,
        "tokenizer.ggml.token_type": [3] * 5 + [1] * (len(tokens) - 5),
        "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.cls_token_id": 2,
        "tokenizer.ggml.seperator_token_id": 3,
    }
    ours = of_file(tmp_path / "m.gguf", metadata)
    for text in (*TEXTS, "hello [MASK] world"):
        ids = theirs.encode(text)
        assert ours.encode(text) == ids, text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True), text
