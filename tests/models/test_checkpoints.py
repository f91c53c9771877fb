"""The loaders against real checkpoints: their logits, not just their bytes, must be right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from luminal.base.errors import LoadError
from luminal.loaders.tokenizer import StreamDecoder, Tokenizer
from luminal.models import load
from luminal.models.architectures import decoder_of
from luminal.models.checkpoint import Checkpoint, load_checkpoint
from tests.close import close
from tests.models.numpy_llama import forward

STORY = "Once upon a time, there was a little girl named Lily. She loved to play outside."


@pytest.fixture(scope="module")
def tinystories(shared_data: Path) -> Checkpoint:
    return load_checkpoint(shared_data / "tinystories-656k")


@pytest.fixture(scope="module")
def llama2c(shared_data: Path) -> Checkpoint:
    folder = shared_data / "stories-260k"
    return load_checkpoint(folder / "stories260K.bin", tokenizer=folder / "tok512.bin")


@pytest.fixture(scope="module")
def gguf(shared_data: Path) -> Checkpoint:
    return load_checkpoint(shared_data / "stories-260k/stories260K.gguf")


def test_a_llama2c_file_finds_its_tokenizer(llama2c: Checkpoint, shared_data: Path) -> None:
    alone = load_checkpoint(shared_data / "stories-260k/stories260K.bin")
    assert tokenizer_of(alone).encode(STORY) == tokenizer_of(llama2c).encode(STORY)


def test_a_llama2c_file_says_which_tokenizers_it_looked_for(
    shared_data: Path, tmp_path: Path
) -> None:
    path = tmp_path / "m.bin"
    path.write_bytes((shared_data / "stories-260k/stories260K.bin").read_bytes())
    missing = r"no tokenizer, and beside it there is no tok512\.bin or tokenizer\.bin or tokeni"
    with pytest.raises(LoadError, match=missing):
        load(path)
    (tmp_path / "tokenizer.bin").write_bytes(b"\0" * 9)
    with pytest.raises(LoadError, match=r"tokenizer\.bin: truncated in piece 0"):
        load(path)


def logits_of(checkpoint: Checkpoint, ids: list[int]) -> npt.NDArray[np.float64]:
    return forward(checkpoint.config, decoder_of(checkpoint).state_dict(), ids)


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer:
    assert checkpoint.tokenizer is not None
    return checkpoint.tokenizer


def test_tinystories_logits_are_transformers_logits(
    tinystories: Checkpoint, shared_data: Path
) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.LlamaForCausalLM.from_pretrained(
        shared_data / "tinystories-656k", dtype=torch.float32
    )
    ids = tokenizer_of(tinystories).encode(STORY)
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0].numpy()
    # 1e-4 is the distance between f32 and f64 over two layers, with a margin of ten
    np.testing.assert_allclose(logits_of(tinystories, ids), expected, rtol=0, atol=1e-4)


def test_tinystories_tokenizer_is_transformers_tokenizer(
    tinystories: Checkpoint, shared_data: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    expected = transformers.AutoTokenizer.from_pretrained(shared_data / "tinystories-656k")
    ours = tokenizer_of(tinystories)
    # No leading space: there transformers 5 replaces the file's rule (always a dummy space).
    for text in (STORY, "", "two  spaces ", 'It\'s 12.5!\n\n"Yes," she said.'):
        ids = ours.encode(text)
        assert ids == expected.encode(text)
        assert ours.decode(ids) == expected.decode(ids, skip_special_tokens=True)
    assert (ours.bos_id, ours.eos_ids) == (expected.bos_token_id, {expected.eos_token_id})


def test_llama2c_and_gguf_give_the_same_logits(llama2c: Checkpoint, gguf: Checkpoint) -> None:
    ids = tokenizer_of(llama2c).encode(STORY)
    first = logits_of(llama2c, ids)
    second = logits_of(gguf, ids)
    close(first, second)
    # Both could be wrong in the same way: a model that was read right predicts its language.
    logits = first[:-1] - first[:-1].max(-1, keepdims=True)
    log_probability = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    chosen = log_probability[np.arange(len(ids) - 1), ids[1:]]
    assert chosen.mean() > -1.5  # nats a token; guessing among 512 is -6.2


@pytest.mark.parametrize(
    "text", [STORY, "", " ", "a  b", "a café ☕ 日本", "tab\tand\nline", "🙂🙂"]
)
def test_llama2c_and_gguf_tokenize_alike(llama2c: Checkpoint, gguf: Checkpoint, text: str) -> None:
    ids = tokenizer_of(llama2c).encode(text)
    assert ids == tokenizer_of(gguf).encode(text)
    assert ids[0] == 1
    assert tokenizer_of(llama2c).decode(ids) == tokenizer_of(gguf).decode(ids) == text


def test_streams_hand_out_whole_characters(llama2c: Checkpoint) -> None:
    tokenizer = tokenizer_of(llama2c)
    text = "Lily drank a café ☕ in 日本 🙂 today"
    ids = tokenizer.encode(text)
    for prompt_length in (0, 1, 4):
        stream = StreamDecoder(tokenizer, ids[:prompt_length])
        pieces = [stream.push(i) for i in ids[prompt_length:]]
        assert tokenizer.decode(ids[:prompt_length]) + "".join(pieces) + stream.finish() == text
        assert all("\ufffd" not in piece for piece in pieces)


def test_streams_keep_the_space_after_the_prompt(tinystories: Checkpoint) -> None:
    tokenizer = tokenizer_of(tinystories)
    ids = tokenizer.encode("Once upon a time")
    stream = StreamDecoder(tokenizer, ids[:-1])
    assert stream.push(ids[-1]) == tokenizer.decode(ids).removeprefix(tokenizer.decode(ids[:-1]))
    stream = StreamDecoder(tokenizer, tokenizer.encode("Once upon"))
    continuation = tokenizer.encode("a time")[1:]  # without the BOS: begins with a space
    assert "".join(stream.push(i) for i in continuation) == " a time"


def test_weights_are_views_of_the_file(llama2c: Checkpoint, tinystories: Checkpoint) -> None:
    reordered = ("q_proj.weight", "k_proj.weight")
    views = [array for name, array in llama2c.tensors.items() if not name.endswith(reordered)]
    for weight in (*views, *tinystories.tensors.values()):
        assert not weight.flags.writeable
        assert not weight.flags.owndata


def test_a_cut_file_is_named(shared_data: Path, tmp_path: Path) -> None:
    for source in ("tinystories-656k/model.safetensors", "stories-260k/stories260K.gguf"):
        data = (shared_data / source).read_bytes()
        target = tmp_path / Path(source).name
        target.write_bytes(data[: len(data) // 2])
        model: Path = target
        if source.endswith("safetensors"):
            config = shared_data / "tinystories-656k/config.json"
            (tmp_path / "config.json").write_bytes(config.read_bytes())
            model = tmp_path
        with pytest.raises(ValueError, match=rf"{target.name}: truncated"):
            load_checkpoint(model)


def test_the_wrong_tokenizer_is_refused(shared_data: Path) -> None:
    with pytest.raises(ValueError, match="the tokenizer has 2048 tokens, the model 512"):
        load(
            shared_data / "stories-260k/stories260K.bin",
            tokenizer=shared_data / "tinystories-656k",
        )
    with pytest.raises(ValueError, match="nowhere: no such file; pass a tokenizer"):
        load_checkpoint(shared_data / "stories-260k/stories260K.bin", tokenizer="nowhere")


def test_a_folder_without_config_names_its_models(shared_data: Path) -> None:
    with pytest.raises(ValueError, match=r"pass one of its files: stories260K\.bin, stories260K"):
        load_checkpoint(shared_data / "stories-260k")
