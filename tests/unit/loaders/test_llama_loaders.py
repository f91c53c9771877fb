"""llama2.c files, SentencePiece merging, weights of a folder and where a checkpoint is found."""

from __future__ import annotations

import itertools
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file
from tokenizers import processors

from luminal.base.errors import LoadError
from luminal.loaders.hub import is_hub_id
from luminal.loaders.llama2c import read_llama2c, read_llama2c_tokenizer
from luminal.loaders.sentencepiece import SPACE, Kind, Piece, sentencepiece
from luminal.loaders.tokenizer import HuggingFaceTokenizer, StreamDecoder
from luminal.models import Llama, LlamaConfig
from luminal.models.architectures import decoder_of, read_decoder
from luminal.models.checkpoint import load_checkpoint, read_tokenizer

TINY: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 16,
    "max_position_embeddings": 32,
}


def shapes(vocabulary: int, hidden: int, inner: int, tied: bool) -> dict[str, tuple[int, ...]]:
    """Of two layers with four heads of queries and two of keys."""
    config = LlamaConfig(hidden, inner, 2, 4, 2, hidden // 4, vocabulary, tie_word_embeddings=tied)
    return {name: each.shape for name, each in Llama(config).named_parameters()}


def llama2c_file(path: Path, shared: bool) -> int:
    """A checkpoint whose n-th number is n; returns the count of numbers."""
    dim, hidden, layers, heads, kv, vocab, length = 8, 12, 2, 4, 2, 16, 5
    per_layer = dim + dim * dim + 2 * dim * kv * 2 + dim * dim + dim + 3 * dim * hidden
    count = vocab * dim + layers * per_layer + dim + length * 2 + (0 if shared else vocab * dim)
    head = struct.pack("<7i", dim, hidden, layers, heads, kv, vocab if shared else -vocab, length)
    path.write_bytes(head + np.arange(count, dtype="<f4").tobytes())
    return count


@pytest.mark.parametrize("shared", [True, False])
def test_llama2c_weights_lie_in_order(tmp_path: Path, shared: bool) -> None:
    count = llama2c_file(tmp_path / "m.bin", shared)
    config, weights = read_llama2c(tmp_path / "m.bin")
    assert {n: w.shape for n, w in weights.items()} == shapes(16, 8, 12, tied=shared)
    assert config["tie_word_embeddings"] is shared
    q, k = (weights[f"model.layers.1.self_attn.{part}_proj.weight"] for part in "qk")
    assert q[1, 0] - q[0, 0] == 8  # a head has one pair of rows
    assert k.shape == (4, 8)
    first = {name: int(w.flat[0]) for name, w in weights.items()}
    assert first["model.embed_tokens.weight"] == 0
    assert first["model.layers.0.input_layernorm.weight"] == 128
    assert first["model.layers.1.input_layernorm.weight"] == 136
    assert first["model.layers.1.self_attn.q_proj.weight"] == 144 + 64
    assert (
        first["model.layers.0.mlp.down_proj.weight"] > first["model.layers.1.mlp.gate_proj.weight"]
    )
    assert first["model.layers.0.mlp.up_proj.weight"] > first["model.layers.1.mlp.down_proj.weight"]
    if not shared:
        assert first["lm_head.weight"] == count - 128


def test_llama2c_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.bin"
    llama2c_file(path, shared=True)
    whole = path.read_bytes()
    for data, message in (
        (whole[:-4], "truncated: rotary tables ends at byte"),
        (whole[:100], r"truncated: model\.embed_tokens\.weight ends at byte 540, the file has 100"),
        (whole[:20], "truncated: 20 bytes, the header has 28"),
        (whole + b"tail", "4 bytes too long; not a llama2.c checkpoint"),
        (struct.pack("<7i", 0x616B3432, 1, 0, 0, 0, 0, 0), "export of version 1; only version 0"),
        (
            struct.pack("<7i", 8, 12, 0, 4, 2, 16, 5),
            "num_hidden_layers is 0, it must be at least 1",
        ),
        (
            struct.pack("<7i", 8, 12, 2, 4, 2, -(2**31), 5),
            "vocab_size is 2147483648, it must be at most 2147483647",
        ),
    ):
        path.write_bytes(data)
        with pytest.raises(LoadError, match=message):
            read_llama2c(path)


def test_llama2c_tokenizer(tmp_path: Path) -> None:
    """Its pieces: three without a text, the bytes, and others, one of them empty."""
    texts = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % n for n in range(256)), b"", b" ", b"a"]
    pieces = [struct.pack("<fi", 0.0, len(text)) + text for text in texts]
    (tmp_path / "tok.bin").write_bytes(struct.pack("<i", 6) + b"".join(pieces))
    tokenizer = read_llama2c_tokenizer(tmp_path / "tok.bin")
    assert tokenizer.encode("aé") == [1, 260, 261, 3 + 0xC3, 3 + 0xA9]
    assert tokenizer.decode([1, 0, 260, 261, 3 + 0xC3, 3 + 0xA9, 259, 2]) == "aé"
    assert (tokenizer.vocab_size, tokenizer.bos_id) == (262, 1)
    assert tokenizer.eos_ids == frozenset((1, 2))


def test_llama2c_tokenizer_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tok.bin"
    path.write_bytes(struct.pack("<ifi", 4, 0.0, 3) + b"ab")
    with pytest.raises(LoadError, match="piece 0 has length 3, 2 bytes are left"):
        read_llama2c_tokenizer(path)
    path.write_bytes(struct.pack("<ifi", 4, 0.0, -1) + b"ab")
    with pytest.raises(LoadError, match="piece 0 has length -1, 2 bytes are left"):
        read_llama2c_tokenizer(path)
    path.write_bytes(struct.pack("<ifi", 4, 0.0, 2) + b"ab" + b"\0")
    with pytest.raises(LoadError, match="truncated in piece 1"):
        read_llama2c_tokenizer(path)
    path.write_bytes(struct.pack("<ifi", 4, 0.0, 2) + b"ab")
    with pytest.raises(LoadError, match=r"1 pieces; a llama2\.c tokenizer has at least 259"):
        read_llama2c_tokenizer(path)


def small_pieces(scores: dict[str, float]) -> list[Piece]:
    """Unknown, BOS, EOS, the 256 bytes, then pieces with their scores."""
    control = [Piece(name, 0.0, Kind.CONTROL) for name in ("<unk>", "<s>", "</s>")]
    single = [Piece(f"<0x{b:02X}>", 0.0, Kind.BYTE) for b in range(256)]
    texts = [Piece(text.replace(" ", SPACE), each, Kind.TEXT) for text, each in scores.items()]
    return [*control, *single, *texts]


def small_tokenizer(scores: dict[str, float]) -> HuggingFaceTokenizer:
    inner = sentencepiece(small_pieces(scores))
    inner.post_processor = processors.TemplateProcessing(
        single=["<s>", "$A"], special_tokens=[("<s>", 1)]
    )
    return HuggingFaceTokenizer(inner, 1, frozenset((1, 2)), Path("pieces"))


def test_pieces_that_are_cut_out_whole() -> None:
    """Before a text gets its dummy space, and those with spaces after spaces became signs."""
    pieces = small_pieces(SCORES)
    whole = [Piece("<tag>", 0.0, Kind.WHOLE), Piece(SPACE * 2, 0.0, Kind.WHOLE)]
    first = len(pieces)
    a, space = 3 + 256 + 1, 3 + 256
    for add_space, expected in ((False, [a, first, first + 1, a]), (True, [space, a, first])):
        inner = sentencepiece([*pieces, *whole], add_space=add_space)
        assert inner.encode("a<tag>  a").ids[: len(expected)] == expected


def parts(text: str) -> list[str]:
    """The pieces of a text, with spaces."""
    pieces = small_pieces(SCORES)
    ids = small_tokenizer(SCORES).encode(text)[1:]
    return [pieces[number].text.replace(SPACE, " ") for number in ids]


SCORES = {
    " ": -9.0,
    "a": -9.0,
    "b": -9.0,
    "c": -9.0,
    "ab": -2.0,
    "bc": -1.0,
    "abc": -3.0,
    "aa": -4.0,
}


def test_the_best_pair_merges_first_and_ties_leftmost() -> None:
    assert parts("abc") == [" ", "abc"]  # bc first, then a+bc
    assert parts("abbc") == [" ", "ab", "bc"]
    assert parts("aaa") == [" ", "aa", "a"]
    assert parts("") == []


@given(st.text(alphabet="abc d\né日🙂", max_size=40), st.integers(0, 5))
def test_any_text_survives_the_tokenizer_and_its_stream(text: str, prompt_length: int) -> None:
    tokenizer = small_tokenizer(SCORES)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    stream = StreamDecoder(tokenizer, ids[:prompt_length])
    pieces = [stream.push(i) for i in ids[prompt_length:]] + [stream.finish()]
    before = tokenizer.decode(ids[:prompt_length])
    if not before.endswith("\ufffd"):  # the prompt itself ends inside a character
        assert before + "".join(pieces) == text


@given(st.text(alphabet="abc", max_size=24))
def test_merging_equals_the_slow_definition(text: str) -> None:
    merged = list(" " + text) if text else []
    while True:
        pairs = [
            (-SCORES[a + b], i)
            for i, (a, b) in enumerate(itertools.pairwise(merged))
            if a + b in SCORES
        ]
        if not pairs:
            break
        at = min(pairs)[1]
        merged[at : at + 2] = [merged[at] + merged[at + 1]]
    assert parts(text) == merged


def test_an_unfinished_character_comes_out_at_the_end() -> None:
    stream = StreamDecoder(small_tokenizer({}))
    assert [stream.push(3 + b) for b in "é".encode()] == ["", "é"]
    assert stream.push(3 + 0xC3) == ""
    assert stream.finish() == "\ufffd"


def test_ids_of_a_padded_vocabulary_have_no_text() -> None:
    tokenizer = small_tokenizer(SCORES)
    assert tokenizer.decode([*tokenizer.encode("ab"), tokenizer.vocab_size + 5, 2]) == "ab"


def tiny_folder(folder: Path, **changes: np.ndarray[Any, Any] | None) -> None:
    """A checkpoint of zeros; `changes` replaces weights (None removes); `__` stands for a dot."""
    (folder / "config.json").write_text(json.dumps(TINY))
    tensors = {
        name: np.zeros(shape, np.float32) for name, shape in shapes(16, 8, 12, tied=False).items()
    }
    for name, array in changes.items():
        if array is None:
            del tensors[name.replace("__", ".")]
        else:
            tensors[name.replace("__", ".")] = array
    save_file(tensors, folder / "model.safetensors")


def test_a_folder_without_a_tokenizer_loads(tmp_path: Path) -> None:
    tiny_folder(tmp_path)
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.tokenizer is None
    assert sum(each.size for each in decoder_of(checkpoint).state_dict().values()) > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lm_head__weight": None}, r"missing: lm_head\.weight"),
        ({"extra": np.zeros(1)}, "unexpected: extra"),
        (
            {"model__norm__weight": np.zeros(9, np.float32)},
            r"model\.norm\.weight: expected shape \(8,\), got \(9,\)",
        ),
        ({"model__norm__weight": np.zeros(8, np.int8)}, "'model.norm.weight' is int8 of shape"),
    ],
    ids=["missing", "unexpected", "shape", "dtype"],
)
def test_weights_are_checked(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    tiny_folder(tmp_path, **changes)
    with pytest.raises(LoadError, match=message):
        read_decoder(tmp_path)


def test_of_tied_weights_one_must_be_there(tmp_path: Path) -> None:
    tiny_folder(tmp_path, model__embed_tokens__weight=None, lm_head__weight=None)
    (tmp_path / "config.json").write_text(json.dumps(TINY | {"tie_word_embeddings": True}))
    with pytest.raises(LoadError, match=r"missing: model\.embed_tokens\.weight"):
        read_decoder(tmp_path)


def test_rotary_frequencies_of_old_checkpoints_are_left(tmp_path: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    tiny_folder(tmp_path, **{name.replace(".", "__"): np.zeros(1)})
    assert name not in read_decoder(tmp_path).state_dict()


def test_tied_weights_saved_under_the_other_name(tmp_path: Path) -> None:
    tiny_folder(
        tmp_path, model__embed_tokens__weight=None, lm_head__weight=np.ones((16, 8), np.float32)
    )
    (tmp_path / "config.json").write_text(json.dumps(TINY | {"tie_word_embeddings": True}))
    weights = read_decoder(tmp_path).state_dict()
    assert weights["model.embed_tokens.weight"].sum() == 128
    assert "lm_head.weight" not in weights


def test_a_tokenizer_that_nobody_asks_for_is_not_read(tmp_path: Path) -> None:
    tiny_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(LoadError, match="not a tokenizer the tokenizers library reads"):
        load_checkpoint(tmp_path)
    assert load_checkpoint(tmp_path, with_tokenizer=False).tokenizer is None


def test_what_cannot_be_found_is_named(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="no such file or folder; pass a folder"):
        load_checkpoint(tmp_path / "none")
    with pytest.raises(LoadError, match=r"none\.gguf: no such file or folder"):
        load_checkpoint("models/none.gguf")
    with pytest.raises(LoadError, match=r"no config\.json in it$"):
        load_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    with pytest.raises(LoadError, match=r"no model\.safetensors and no model\.safetensors\.index"):
        load_checkpoint(tmp_path)
    (tmp_path / "model.pt").write_bytes(b"x")
    with pytest.raises(LoadError, match="unknown kind of file"):
        load_checkpoint(tmp_path / "model.pt")
    with pytest.raises(LoadError, match=r"tokenizer\.json: no such file"):
        read_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(LoadError, match="not a tokenizer the tokenizers library reads"):
        read_tokenizer(tmp_path)
    empty = '{"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}'
    (tmp_path / "tokenizer.json").write_text(empty)
    with pytest.raises(LoadError, match=r"tokenizer\.json: the tokenizer has no tokens"):
        read_tokenizer(tmp_path)
    for text, message in (("{", "not JSON"), ("[]", "holds a JSON list, it must hold an object")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(LoadError, match=rf"config\.json: {message}"):
            load_checkpoint(tmp_path)


def test_hub_ids() -> None:
    assert is_hub_id("raincandy-u/TinyStories-656K")
    assert not any(
        map(is_hub_id, ("model", "./model", "/a/b", "a/b/c", "../x", "a b/c", "a/b.bin"))
    )


def test_an_unreachable_hub_says_what_to_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    def offline(*_: object, **__: object) -> str:
        raise LocalEntryNotFoundError("Cannot reach the Hub.\nSecond line")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(LoadError) as caught:
        load_checkpoint("owner/Model-1.5")
    assert str(caught.value) == (
        "owner/Model-1.5: not a folder here, not in the Hugging Face cache, and the Hub did not "
        "give it (Cannot reach the Hub.); pass the path of a folder with config.json and "
        "model.safetensors, or of a .gguf or .bin file"
    )
