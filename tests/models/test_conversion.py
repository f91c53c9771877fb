"""`convert`: what comes back from another kind of file is what went in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from typer.testing import CliRunner

import luminal as lm
from luminal.base.errors import InputError, LoadError
from luminal.cli.main import app
from luminal.frontend.matrices.packed import Packed
from luminal.loaders.ggml.k_quantizers import QUANTIZERS as FITTED
from luminal.loaders.ggml.named_blocks import with_blocks
from luminal.loaders.ggml.quantize import QUANTIZERS, quantized
from luminal.loaders.ggml.types import BLOCKS
from luminal.loaders.gguf import StoredTensor, read_gguf
from luminal.loaders.gguf_tokenizer import UNUSED, WHOLE_FILE, gguf_tokenizer
from luminal.loaders.write_gguf import save_gguf
from luminal.loaders.write_safetensors import save_safetensors
from luminal.memory.mapped_pages import is_mapped
from luminal.memory.row_order import StoredRows
from luminal.models import checkpoint, conversion
from luminal.models.architectures import decoder_of, read_decoder
from luminal.models.chat_template import special_tokens
from luminal.models.checkpoint import load_checkpoint, read_tokenizer
from luminal.models.conversion import convert
from luminal.models.decoder import Decoder
from luminal.models.gguf.metadata import check_same
from luminal.models.llama import Llama, LlamaConfig
from luminal.models.loading import load as models_load
from luminal.models.write_folder import write_folder
from tests.long_share import mostly_long
from tests.unit.loaders.texts import CORPUS, TEXTS

TEMPLATE = "{% for message in messages %}{{ message.content }}\n{% endfor %}"


def tokenizer_json(kind: str = "gpt2") -> str:
    """A small tokenizer of the corpus."""
    special = ["<s>", "</s>", "[UNK]"]
    trainer: Any
    if kind == "bert":
        found = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        found.normalizer = normalizers.BertNormalizer()
        found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        found.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(
            vocab_size=300, special_tokens=special, show_progress=False
        )
    elif kind == "llama":
        single = [f"<0x{number:02X}>" for number in range(256)]
        found = tokenizers.Tokenizer(
            models.BPE(unk_token="[UNK]", byte_fallback=True, fuse_unk=True)
        )
        found.normalizer = normalizers.Sequence(
            [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
        )
        found.decoder = decoders.Sequence(
            [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
             decoders.Strip(" ", 1, 0)]
        )  # fmt: skip
        trainer = trainers.BpeTrainer(
            vocab_size=500, special_tokens=[*special, *single], show_progress=False
        )
    else:
        found = tokenizers.Tokenizer(models.BPE())
        found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        found.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=300,
            special_tokens=special,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
    found.train_from_iterator(CORPUS, trainer)
    if kind == "llama":  # the bytes are no special tokens
        settings = json.loads(found.to_str())
        settings["added_tokens"] = settings["added_tokens"][:3]
        found = tokenizers.Tokenizer.from_str(json.dumps(settings))
    found.post_processor = processors.TemplateProcessing(
        single=["<s>", "$A"], special_tokens=[("<s>", 0)]
    )
    return found.to_str(pretty=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Llama in bf16 with a tokenizer and a chat template."""
    place = tmp_path / "model"
    config = LlamaConfig(64, 96, 2, 4, 2, 16, 300, tie_word_embeddings=True)
    model = Llama(config)
    write_folder(place, model, tokenizer_json(), "bfloat16", end_id=1)
    settings = {"chat_template": TEMPLATE, "bos_token": "<s>"}
    (place / "tokenizer_config.json").write_text(json.dumps(settings))
    return place


def test_an_output_that_is_not_the_embedding_stays(folder: Path, tmp_path: Path) -> None:
    """Whatever `tie_word_embeddings` says, as in transformers; in a GGUF file and back too."""
    path = folder / "model.safetensors"
    weights = {name: np.array(array) for name, array in load_checkpoint(folder).tensors.items()}
    embedding = weights.setdefault("model.embed_tokens.weight", weights.get("lm_head.weight"))
    weights["lm_head.weight"] = embedding.copy()
    save_safetensors(path, weights)
    assert decoder_of(load_checkpoint(folder)).config.tie_word_embeddings
    weights["lm_head.weight"] = embedding[::-1].copy()
    save_safetensors(path, weights)
    convert(folder, tmp_path / "model.gguf")
    convert(tmp_path / "model.gguf", tmp_path / "again")
    for place in (folder, tmp_path / "model.gguf", tmp_path / "again"):
        found = decoder_of(load_checkpoint(place)).state_dict()
        np.testing.assert_array_equal(found["lm_head.weight"], embedding[::-1])
        np.testing.assert_array_equal(found["model.embed_tokens.weight"], embedding)


def same_weights(one: Path, other: Path) -> None:
    wanted, found = (load_checkpoint(each).tensors for each in (one, other))
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].tobytes() == array.tobytes(), name


def test_weights_of_a_gguf_are_held_once(folder: Path, tmp_path: Path) -> None:
    """Those that the file stores in another order too: a model takes them as they were made."""
    convert(folder, tmp_path / "m.gguf")
    checkpoint = load_checkpoint(tmp_path / "m.gguf")
    assert not any(array.flags.writeable for array in checkpoint.tensors.values())
    held = dict(decoder_of(checkpoint).named_parameters())
    for name in ("q_proj", "k_proj", "v_proj"):
        wanted = f"model.layers.0.self_attn.{name}.weight"
        assert np.shares_memory(held[wanted].memory, checkpoint.tensors[wanted])


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", ["gguf", "folder"])
def test_an_embedding_beside_an_output_is_not_read_ahead(
    tied: bool, kind: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs read the rows of their ids; of one that is the output too they read all."""
    model = Llama(LlamaConfig(64, 96, 2, 4, 2, 16, 300, tie_word_embeddings=tied))
    place = tmp_path / "folder"
    write_folder(place, model, (folder / "tokenizer.json").read_text("utf-8"))
    if kind == "gguf":
        convert(place, tmp_path / "m.gguf")
        place = tmp_path / "m.gguf"
    ahead: list[Any] = []
    monkeypatch.setattr(checkpoint, "read_ahead", ahead.extend)
    tensors = load_checkpoint(place, keep_order=True).tensors
    memory = {
        n: each.memory if isinstance(each, StoredRows) else each for n, each in tensors.items()
    }
    left = [n for n, each in memory.items() if not any(each is one for one in ahead)]
    assert left == ([] if tied else ["model.embed_tokens.weight"])


def logits(model: Decoder) -> Any:
    model.computing(None)
    return lm.jit(lambda ids: model(ids))(np.arange(9)[None] + 5)


def test_a_model_leaves_the_weights_of_a_gguf_where_they_are(folder: Path, tmp_path: Path) -> None:
    """In the file's memory, all of them; what is asked of the model is as of one of a folder."""
    convert(folder, tmp_path / "m.gguf")
    model, wanted = read_decoder(tmp_path / "m.gguf"), read_decoder(folder)
    held = dict(model.named_parameters())
    assert all(is_mapped(each.memory) for each in held.values())
    turned = {name for name, each in held.items() if each.order is not None}
    assert turned == {name for name in held if name.endswith(("q_proj.weight", "k_proj.weight"))}
    found = model.state_dict()
    for name, array in wanted.state_dict().items():
        np.testing.assert_array_equal(found[name], array, name)
    one, other = map(logits, (model, wanted))
    # rows in another order: the same sums by other kernels, 80 ulp
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    written = {}
    for name, each in (("of_gguf", model), ("of_folder", wanted)):
        write_folder(tmp_path / name, each, tokenizer_json(), "bfloat16")
        written[name] = (tmp_path / name / "model.safetensors").read_bytes()
    assert written["of_gguf"] == written["of_folder"]


@pytest.mark.parametrize("kind", ["bf16", "q8_0"])
def test_a_dim_that_is_wrong_is_an_error_of_one_kind(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    """Of matrices that are decoded, kept packed, and mapped in another order."""
    convert(folder, tmp_path / "m.gguf", kind)
    data = (tmp_path / "m.gguf").read_bytes()
    place = tmp_path / "damaged.gguf"
    for name in ("token_embd", "blk.1.attn_q", "blk.0.attn_k", "blk.0.attn_v", "blk.0.ffn_down"):
        dims = data.index(f"{name}.weight".encode()) + len(f"{name}.weight") + 4
        for dim in range(2):
            for value in (0, 1, 3, 1 << 40, (1 << 64) - 1):
                damaged = bytearray(data)
                damaged[dims + 8 * dim : dims + 8 * dim + 8] = value.to_bytes(8, "little")
                place.write_bytes(damaged)
                for keeps in {False, kind == "q8_0"}:
                    with pytest.raises(LoadError, match=r"damaged\.gguf|weight"):
                        models_load(place, keep_quantized=keeps)


def test_to_gguf_and_back(folder: Path, tmp_path: Path) -> None:
    convert(folder, tmp_path / "m.gguf")
    convert(tmp_path / "m.gguf", tmp_path / "again")
    convert(tmp_path / "again", tmp_path / "n.gguf")
    same_weights(folder, tmp_path / "again")
    assert (tmp_path / "again/tokenizer.json").read_text() == (
        folder / "tokenizer.json"
    ).read_text().removesuffix("\n") + "\n"
    assert read_gguf(tmp_path / "n.gguf").metadata == read_gguf(tmp_path / "m.gguf").metadata | {
        "general.name": "again"
    }
    for place in (folder, tmp_path / "m.gguf", tmp_path / "again"):
        found = load_checkpoint(place)
        assert found.chat_template == TEMPLATE
        assert found.tokenizer is not None
        assert (found.tokenizer.bos_id, found.tokenizer.eos_ids) == (1, frozenset((1,)))
        check_same(decoder_of(load_checkpoint(folder)).config, decoder_of(found).config, "llama")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "again", "m.gguf", "model", "n.gguf"
    ]  # fmt: skip


def test_the_gguf_package_reads_it(folder: Path, tmp_path: Path) -> None:
    convert(folder, tmp_path / "m.gguf", "f16")
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    kinds = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert (kinds["token_embd.weight"], kinds["output_norm.weight"]) == ("F16", "F32")
    types = {name: field.types[-1].name for name, field in reader.fields.items()}
    assert types["llama.block_count"] == "UINT32"
    assert types["llama.attention.layer_norm_rms_epsilon"] == "FLOAT32"
    assert types["tokenizer.ggml.token_type"] == "INT32"
    assert reader.fields["general.file_type"].contents() == 1
    assert reader.fields["tokenizer.chat_template"].contents() == TEMPLATE


def test_transformers_reads_the_tokenizer_of_a_gguf(shared_data: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    convert(shared_data / "stories-260k/stories260K.gguf", tmp_path / "m")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    ours = read_tokenizer(shared_data / "stories-260k/stories260K.gguf")
    assert (theirs.bos_token, theirs.eos_token) == ("<s>", "</s>")
    named = special_tokens(shared_data / "stories-260k/stories260K.gguf", ours)
    assert named == {"bos_token": "<s>", "eos_token": "</s>"}
    for text in TEXTS:
        assert theirs.encode(text) == ours.encode(text), text
        wanted = theirs.decode(ours.encode(text), skip_special_tokens=True)
        assert ours.decode(ours.encode(text)) == wanted, text


@pytest.mark.parametrize("kind", sorted(QUANTIZERS.keys() - FITTED.keys()))
def test_packing_is_that_of_the_gguf_package(kind: str) -> None:
    rng = np.random.default_rng(0)
    array = rng.standard_normal((300, 64)).astype(np.float32)
    array[0] = 0
    array[1, :32] = np.arange(-16, 16) * 0.5  # halves
    array[2] = -1.0
    found = quantized("a", array, kind).reshape(-1).view(np.uint8)
    expected = gguf.quants.quantize(array, gguf.GGMLQuantizationType[kind])
    np.testing.assert_array_equal(found, expected.reshape(-1))
    array[3, 3] = np.inf
    with pytest.raises(InputError, match=f"w: has infinite values .* {kind} cannot hold"):
        quantized("w", array, kind)


@pytest.mark.parametrize("shape", [(30, 64), (64, 96), (64,)])
def test_errors_of_weights_name_the_file(
    shape: tuple[int, ...], folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "m.gguf"
    convert(folder, path, "f32")
    file, name = read_gguf(path), "blk.0.attn_q.weight"
    damaged = StoredTensor("F32", shape, np.ones(shape, np.float32))
    save_gguf(path, {**file.tensors, name: damaged}, file.metadata)
    with pytest.raises(LoadError, match=r"m\.gguf: "):
        decoder_of(load_checkpoint(path))
    save_safetensors(folder / "model.safetensors", {"model.norm.weight": np.ones(3, np.float32)})
    with pytest.raises(LoadError, match=r"/model: Decoder: the state_dict does not fit"):
        decoder_of(load_checkpoint(folder))


def test_dtypes(folder: Path, tmp_path: Path) -> None:
    convert(folder, tmp_path / "q.gguf", "q8_0")
    kinds = {name: each.kind for name, each in read_gguf(tmp_path / "q.gguf").tensors.items()}
    assert (kinds["blk.0.attn_q.weight"], kinds["blk.0.attn_norm.weight"]) == ("Q8_0", "F32")
    convert(folder, tmp_path / "q4.gguf", "q4_0")
    assert read_gguf(tmp_path / "q4.gguf").metadata["general.file_type"] == 2
    convert(tmp_path / "q.gguf", tmp_path / "decoded")
    decoded = load_checkpoint(tmp_path / "decoded")
    assert {each.dtype.name for each in decoded.tensors.values()} == {"float32"}
    convert(tmp_path / "q.gguf", tmp_path / "w.safetensors", "f16")
    assert {each.dtype.name for each in lm.load(tmp_path / "w.safetensors").values()} == {"float16"}
    assert BLOCKS["Q8_0"].size == 32


def test_another_tokenizer_goes_along(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(tokenizer_json("bert"))
    convert(folder, tmp_path / "m.gguf")
    for source in (folder, tmp_path / "m.gguf"):
        for target in ("x", "x.gguf"):
            place = tmp_path / f"{source.stem}_{source.is_dir()}_{target}"
            convert(source, place, tokenizer=other)
            found = load_checkpoint(place).tokenizer
            assert found is not None
            assert found.encode("hello, world") == read_tokenizer(other).encode("hello, world")


def test_gguf_to_gguf_keeps_what_is_packed(folder: Path, tmp_path: Path) -> None:
    convert(folder, tmp_path / "q.gguf", "q8_0")
    file = read_gguf(tmp_path / "q.gguf")
    unknown = dict(file.metadata) | {"general.architecture": "unheard of"}
    save_gguf(tmp_path / "u.gguf", file.tensors, unknown)
    convert(tmp_path / "u.gguf", tmp_path / "again.gguf")
    assert (tmp_path / "again.gguf").read_bytes() == (tmp_path / "u.gguf").read_bytes()
    convert(tmp_path / "q.gguf", tmp_path / "h.gguf", "f16")
    found = read_gguf(tmp_path / "h.gguf")
    assert {each.kind for each in found.tensors.values()} == {"F16", "F32"}
    assert found.metadata == dict(file.metadata) | {"general.file_type": 1}


def test_what_has_no_place_is_refused(folder: Path, tmp_path: Path) -> None:
    for target, dtype, message in (
        ("x.gguf", "f8", "dtype 'f8' is not known; it is one of f32, f16, bf16, q8_0, q4_0"),
        ("x.pt", None, r"x\.pt: cannot be written; name a \.gguf"),
        ("model", None, "model: is there already; name a new folder"),
    ):
        with pytest.raises(InputError, match=message):
            convert(folder, tmp_path / target, dtype)
    for source in (folder, folder / "model.safetensors"):
        before = (folder / "model.safetensors").read_bytes()
        with pytest.raises(
            InputError, match=r"model\.safetensors: is read from; write another file"
        ):
            convert(source, folder / "model.safetensors")
        assert (folder / "model.safetensors").read_bytes() == before
    wide = {"w": np.full((2, 2), 1e6, np.float32)}
    lm.save(tmp_path / "wide.safetensors", wide)
    with pytest.raises(InputError, match="w: has values beyond f16's 65504; use bf16 or f32"):
        convert(tmp_path / "wide.safetensors", tmp_path / "x.gguf", "f16")
    with pytest.raises(InputError, match="weights alone make no model"):
        convert(tmp_path / "wide.safetensors", tmp_path / "x")
    assert not any(path.name.startswith("x") for path in tmp_path.iterdir())


def test_weights_alone(tmp_path: Path) -> None:
    arrays = {"w": np.ones((2, 32), ml_dtypes.bfloat16), "b": np.ones(3, np.float32)}
    lm.save(tmp_path / "a.safetensors", arrays)
    convert(tmp_path / "a.safetensors", tmp_path / "a.gguf")
    assert lm.load(tmp_path / "a.gguf")["w"].dtype == ml_dtypes.bfloat16
    convert(tmp_path / "a.safetensors", tmp_path / "b.safetensors", "f32")
    assert lm.load(tmp_path / "b.safetensors")["w"].dtype == np.float32


@pytest.mark.parametrize("target", ["x", "x.gguf", "x.safetensors"])
def test_nothing_half_done_stays(
    folder: Path, tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        convert(folder, tmp_path / target)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_of_several_files_becomes_one(folder: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    convert(folder, whole)
    arrays = lm.load(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    files = {name: f"part-{number % 3}.safetensors" for number, name in enumerate(arrays)}
    for file in set(files.values()):
        lm.save(folder / file, {name: arrays[name] for name in arrays if files[name] == file})
    index = {"weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    convert(folder, tmp_path / "again")
    same_weights(whole, tmp_path / "again")
    assert not (tmp_path / "again/model.safetensors.index.json").exists()
    convert(folder, tmp_path / "m.gguf")
    assert len(read_gguf(tmp_path / "m.gguf").tensors) == len(arrays)


def test_a_model_in_several_gguf_files(folder: Path, tmp_path: Path) -> None:
    convert(folder, tmp_path / "m.gguf")
    whole = read_gguf(tmp_path / "m.gguf")
    names = [tmp_path / f"part-{number:05d}-of-00003.gguf" for number in (1, 2, 3)]
    for number, path in enumerate(names):
        part = {n: each for k, (n, each) in enumerate(whole.tensors.items()) if k % 3 == number}
        metadata = {"split.count": 3, "split.no": number}
        save_gguf(path, part, metadata | (dict(whole.metadata) if number == 0 else {}))
    same_weights(tmp_path / "m.gguf", names[0])
    with pytest.raises(LoadError, match=r"is one of 3 files; pass the first, .*-00001-of-00003"):
        load_checkpoint(names[1])
    names[2].write_bytes(names[1].read_bytes())
    with pytest.raises(LoadError, match=r"00003-of-00003\.gguf: tensor '.*' is in another file"):
        load_checkpoint(names[0])
    names[2].unlink()
    with pytest.raises(LoadError, match=r"00003-of-00003\.gguf: cannot be read: No such file"):
        load_checkpoint(names[0])


def test_the_command(folder: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    done = runner.invoke(app, ["convert", str(folder), str(tmp_path / "m.gguf"), "--dtype", "q8_0"])
    assert done.exit_code == 0, done.output
    shown = runner.invoke(app, ["info", str(tmp_path / "m.gguf")])
    assert "Q8_0" in shown.output


def test_a_folder_in_another_dtype_keeps_what_lies_beside(folder: Path, tmp_path: Path) -> None:
    (folder / "notes.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("other")
    convert(folder, tmp_path / "wide", "f32")
    assert (tmp_path / "wide/notes.json").is_file()
    found = load_checkpoint(tmp_path / "wide")
    assert found.chat_template == "other"
    assert found.config["torch_dtype"] == "float32"
    assert {each.dtype.name for each in found.tensors.values()} == {"float32"}


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_tokenizers_in_the_terms_of_the_format(kind: str, tmp_path: Path) -> None:
    """Other readers do not take the whole file from the metadata."""
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer_json(kind))
    (tmp_path / "config.json").write_text('{"bos_token_id": 0, "eos_token_id": 1}')
    theirs = read_tokenizer(path)
    metadata = conversion.tokenizer_metadata(
        path.read_text(), path, theirs.bos_id, [1], theirs.encode("")
    )
    assert metadata["tokenizer.ggml.model"] == kind
    assert metadata.pop(WHOLE_FILE) == path.read_text()
    if kind == "gpt2":
        assert metadata["tokenizer.ggml.pre"] == "gpt-2"
    ours = gguf_tokenizer(metadata, path)
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text), text
        assert ours.decode(ours.encode(text)) == theirs.decode(theirs.encode(text)), text


def test_a_gguf_lists_as_many_tokens_as_the_embedding_has_rows(tmp_path: Path) -> None:
    """Other readers size the model's matrices by the list, and refuse the file else."""
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer_json())
    count = read_tokenizer(path).vocab_size
    model = Llama(LlamaConfig(16, 32, 1, 2, 1, 8, count + 7, 32))
    write_folder(tmp_path / "model", model, tokenizer_json())
    convert(tmp_path / "model", tmp_path / "model.gguf")
    metadata = read_gguf(tmp_path / "model.gguf").metadata
    assert len(metadata["tokenizer.ggml.tokens"]) == count + 7
    assert len(metadata["tokenizer.ggml.token_type"]) == count + 7
    assert {*metadata["tokenizer.ggml.token_type"][count:]} == {UNUSED}
    again = load_checkpoint(tmp_path / "model.gguf").tokenizer_for(count + 7)
    assert again is not None
    assert again.encode("a b") == read_tokenizer(path).encode("a b")


def quantize(*words: object) -> Any:
    """What the command prints, and how it ends."""
    return CliRunner().invoke(app, ["quantize", *map(str, words)])


class TestQuantizeCommand:
    """What is packed, what is told, and what is refused."""

    def test_sources(self, shared_data: Path, tmp_path: Path) -> None:
        """Folders, safetensors and GGUF files in; the report is of what was written."""
        source, target = shared_data / "tinystories-656k", tmp_path / "q.gguf"

        lines = quantize(source, target, "--type", "q4_0", "--report").output.splitlines()
        assert lines[0].split() == "weight type max error rms error of rms bytes packed".split()
        weights = lm.load(source / "model.safetensors")
        matrices = [array for array in weights.values() if array.ndim == 2]
        before = sum(array.nbytes for array in matrices)
        total = f"{len(matrices)} weights as q4_0: {before:,} bytes to {before * 18 // 128:,};"
        assert total in str(lines)
        assert "kept blk.0.attn_norm.weight: is no matrix of floats; is F32" in lines
        name, embedding = "token_embd.weight", weights["lm_head.weight"]
        error = np.abs(lm.load(target)[name].astype(np.float64) - embedding).max()
        assert [name, "q4_0", f"{error:.3g}"] in [line.split()[:3] for line in lines]

        for further in (source / "model.safetensors", target):
            told = quantize(further, tmp_path / "again.gguf", "--type", "q8_0").output
            assert f"{len(matrices)} weights as q8_0: " in told
        refused = str(quantize(target, target, "--type", "q8_0").exception)
        assert refused == f"{target}: is read from; write another file"
        assert "it is one of q8_0, q4_0, q4_1" in str(
            quantize(source, target, "--type", "q9").exception
        )

    def test_rows_of_no_whole_blocks_are_told(self, tmp_path: Path) -> None:
        """Always, and by name where they are few."""
        arrays = {f"w{n}": np.ones((2, 40), np.float32) for n in range(5)}
        source, target = tmp_path / "a.safetensors", tmp_path / "a.gguf"
        lm.save(source, {"w": np.ones((2, 64), np.float32), "w0": arrays["w0"]})
        assert quantize(source, target, "--type", "q8_0").output.splitlines() == [
            "1 weights as q8_0: 512 bytes to 136; rms errors up to 0.01% of a weight's",
            "not packed: 1 matrix (w0: its rows of 40 are no whole blocks of 32; is F16)",
        ]
        lm.save(source, {"w": np.ones((2, 64), np.float32), **arrays})
        told = quantize(source, target, "--type", "q4_k").output
        assert "1 weights as q4_k (1 q5_0): 512 bytes to 88;" in told
        assert "not packed: 5 matrices (w0: its rows" in told
        assert told.rstrip().endswith("; and 2 more)")

    def test_nothing_to_pack_is_an_error(self, tmp_path: Path) -> None:
        source, target = tmp_path / "a.safetensors", tmp_path / "a.gguf"
        lm.save(source, {"w": np.ones((2, 40), np.float32), "b": np.ones(64, np.float32)})
        found = quantize(source, target, "--type", "q8_0")
        assert found.exit_code != 0
        told = str(found.exception)
        assert "a.safetensors: nothing in it can be q8_0: b: is no matrix of floats; w:" in told
        assert told.endswith("w: its rows of 40 are no whole blocks of 32")
        assert not target.exists()

    def test_all_arrays_of_a_file_are_packed_or_told(self, tmp_path: Path) -> None:
        """Also those of other dims and dtypes, and those without elements."""
        source, target = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
        stay = {
            "s": np.array([True, False]),
            "n": np.arange(64, dtype=np.int64).reshape(2, 32),
            "d": np.ones((2, 3, 32), np.float32),
        }
        packed = {"w": np.ones((2, 64), np.float32), "z": np.zeros((0, 64), np.float32)}
        lm.save(source, {**stay, **packed})
        told = quantize(source, target, "--type", "q4_0", "--report").output
        assert "2 weights as q4_0" in told
        for name, dtype in (("s", "bool"), ("n", "int64"), ("d", "float32")):
            assert f"kept {name}: is no matrix of floats; is {dtype}\n" in told
        assert "not packed: 2 matrices (" in told
        found = with_blocks(lm.load(target), False, target)
        assert {*found} == {*stay, *packed}
        for name, array in {**stay, **packed}.items():
            assert found[name].dtype == array.dtype
            np.testing.assert_array_equal(found[name], array)
        lm.save(source, stay)
        refused = str(quantize(source, tmp_path / "c.safetensors", "--type", "q4_0").exception)
        assert all(f"{name}: is no matrix of floats" in refused for name in stay)

    def test_bytes_of_what_is_packed_are_its_own(self, tmp_path: Path) -> None:
        values = np.random.default_rng(0).standard_normal((4, 256)).astype(np.float32)
        lm.save(tmp_path / "a.safetensors", {"w": values, "v": values})
        quantize(tmp_path / "a.safetensors", tmp_path / "a.gguf", "--type", "q8_0")
        told = quantize(tmp_path / "a.gguf", tmp_path / "b.gguf", "--type", "q4_k").output
        assert told.startswith(f"2 weights as q4_k: {2 * 4 * 8 * 34:,} bytes to {2 * 4 * 144:,};")
        again = quantize(tmp_path / "b.gguf", tmp_path / "c.gguf", "--type", "q4_k", "--report")
        assert "kept w: is Q4_K already; is Q4_K" in again.output
        assert "not packed" not in again.output
        assert (tmp_path / "c.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()

    def test_a_mix(self, shared_data: Path, tmp_path: Path) -> None:
        """Rows of 128 take types of blocks of 32 there; the file says which mix it is."""
        source, target = shared_data / "tinystories-656k", tmp_path / "m.gguf"
        told = quantize(source, target, "--type", "q4_k_m").output
        assert "15 weights as q4_k_m (12 q5_0, 3 q8_0): " in told
        file = read_gguf(target)
        assert file.metadata["general.file_type"] == 15
        kinds = {name for name, each in file.tensors.items() if each.kind == "Q8_0"}
        assert kinds == {"token_embd.weight", "blk.1.attn_v.weight", "blk.1.ffn_down.weight"}

    @pytest.mark.parametrize("target", mostly_long(["packed", "packed.gguf"], 1))
    def test_folders_and_files_read_the_same(
        self, target: str, shared_data: Path, tmp_path: Path
    ) -> None:
        """Packed or decoded, from a folder of blocks in safetensors as from a GGUF file."""
        source, place = shared_data / "tinystories-656k", tmp_path / target
        told = quantize(source, place, "--type", "q4_0").output
        assert "15 weights as q4_0: 2,621,440 bytes to 368,640;" in told
        texts = []
        for keeps in (False, True):
            model = lm.models.load(place, keep_quantized=keeps)
            matrices = [each for each in model.model.parameters() if len(each.shape) == 2]
            assert {isinstance(each, Packed) for each in matrices} == {keeps}
            texts.append(model.generate("Once upon a time", max_tokens=20))
        assert texts[0] == texts[1]
        again = tmp_path / "floats"
        convert(place, again)
        assert "quantization_config" not in json.loads((again / "config.json").read_text())
        floats = load_checkpoint(again).tensors
        for name, array in load_checkpoint(place).tensors.items():
            np.testing.assert_array_equal(floats[name], array)

    def test_safetensors(self, tmp_path: Path) -> None:
        """What a packed module's state_dict has; a module takes it, a GGUF file has its values."""
        model = lm.nn.Sequential(lm.nn.Linear(256, 4), lm.nn.Linear(40, 4, bias=False))
        wide, stack = np.ones((2, 3, 256), np.float32), tmp_path / "b.safetensors"
        lm.save(tmp_path / "a.safetensors", model.state_dict() | {"stack": wide})
        quantize(tmp_path / "a.safetensors", stack, "--type", "q6_k")
        lm.quantize(model, "q6_k")
        found = lm.load(stack)
        assert {*found} == {*model.state_dict(), "stack"}
        np.testing.assert_array_equal(found["stack"], wide)
        np.testing.assert_array_equal(found["1.weight"], model[1].weight.numpy().astype("f2"))
        blocks = found["0.weight.q6_k.blocks"]
        np.testing.assert_array_equal(blocks, model.state_dict()["0.weight.q6_k.blocks"])
        convert(stack, tmp_path / "c.gguf")
        np.testing.assert_array_equal(
            lm.load(tmp_path / "c.gguf")["0.weight"], model[0].weight.numpy()
        )

    def test_damaged_blocks(self, shared_data: Path, tmp_path: Path) -> None:
        place = tmp_path / "packed"
        quantize(shared_data / "tinystories-656k", place, "--type", "q4_0")
        whole = dict(lm.load(place / "model.safetensors"))
        name = "lm_head.weight.q4_0.blocks"
        for damaged, message in (
            (
                {name: whole[name][..., :17].copy()},
                r"is uint8\[2048, 4, 17\]; blocks of q4_0 are",
            ),
            ({name: whole[name].astype(np.int8)}, r"is int8\[2048, 4, 18\]; blocks of q4_0 are"),
            ({name: whole[name][:, :3].copy()}, r"lm_head\.weight: expected shape|shape"),
            ({"lm_head.weight": np.ones((2, 2), np.float32)}, "has both 'lm_head"),
        ):
            lm.save(place / "model.safetensors", whole | damaged)
            for keeps in (False, True):
                with pytest.raises(LoadError, match=message) as caught:
                    lm.models.load(place, keep_quantized=keeps)
                assert str(place) in str(caught.value)

    def test_nothing_packed_to_keep(self, shared_data: Path, tmp_path: Path) -> None:
        convert(shared_data / "tinystories-656k", tmp_path / "m.gguf")
        for place in (shared_data / "tinystories-656k", tmp_path / "m.gguf"):
            with pytest.raises(InputError, match="has no packed matrices that could be kept"):
                lm.models.load(place, keep_quantized=True)
            kept = checkpoint.load_checkpoint(place, keep_quantized=None).tensors
            assert not any(map(checkpoint.is_packed, kept.values()))
