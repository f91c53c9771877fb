"""Text models in GGUF that see by an mmproj file, compared with transformers."""

from __future__ import annotations

import contextlib
import random
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import InputError, LoadError
from luminal.cli.main import main
from luminal.loaders.gguf import read_gguf
from luminal.loaders.gguf_tokenizer import CONTROL, NORMAL, gguf_tokenizer
from luminal.loaders.tokenizer import HuggingFaceTokenizer
from luminal.models.seeing.projector_file import read_projector
from luminal.models.seeing.qwen2_vl import QWEN2_5_VL
from luminal.models.seeing.sight import Sight
from tests.close import close
from tests.models.mmproj_files import WRITTEN, write_mmproj, written
from tests.models.seeing_checks import check_pixels, check_texts
from tests.models.small_seeing import picture, texts_of
from tests.unit.loaders.gguf_bytes import gguf

WIDTH, VOCABULARY = 12, 6
METADATA = {
    "general.architecture": "clip",
    "clip.has_vision_encoder": True,
    "clip.projector_type": "gemma3",
    "clip.use_gelu": True,
    "clip.vision.image_size": 16,
    "clip.vision.patch_size": 2,
    "clip.vision.embedding_length": 8,
    "clip.vision.feed_forward_length": 10,
    "clip.vision.block_count": 1,
    "clip.vision.attention.head_count": 2,
    "clip.vision.attention.layer_norm_epsilon": 1e-6,
    "clip.vision.image_mean": [0.5, 0.25, 0.125],
    "clip.vision.image_std": [0.5, 0.5, 0.5],
}
SHAPES = {
    "mm.input_projection.weight": (8, WIDTH),
    "mm.soft_emb_norm.weight": (8,),
    "v.blk.0.ffn_up.weight": (10, 8),
    "v.blk.0.ffn_down.weight": (8, 10),
    "v.blk.0.ffn_down.bias": (8,),
    "v.patch_embd.weight": (8, 3, 2, 2),
    "v.position_embd.weight": (64, 8),
    "v.blk.0.attn_out.weight": (8, 8),
    "v.blk.0.ln2.bias": (8,),
    "v.post_ln.weight": (8,),
    "v.odd.weight": (8,),
}


def tensors() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape, np.float32) for name, shape in SHAPES.items()}


def file_of(path: Path, metadata: dict[str, Any], arrays: dict[str, Any]) -> Path:
    path.write_bytes(gguf(metadata, {name: (0, array) for name, array in arrays.items()}))
    return path


def tokenizer(*names: str) -> HuggingFaceTokenizer:
    special = ["<pad>", "<start_of_image>", "<end_of_image>", *names]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["a", *special],
        "tokenizer.ggml.token_type": [NORMAL] + [CONTROL] * len(special),
        "tokenizer.ggml.merges": [],
    }
    return gguf_tokenizer(metadata, Path("text.gguf"))


def test_what_the_file_says_in_the_terms_of_a_folder(tmp_path: Path) -> None:
    arrays = tensors()
    path = file_of(tmp_path / "mmproj.gguf", METADATA, arrays)
    read = read_projector(path, WIDTH, VOCABULARY, tokenizer("<image_soft_token>"))
    vision = {
        "hidden_size": 8,
        "intermediate_size": 10,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 16,
        "patch_size": 2,
        "layer_norm_eps": 1e-6,
        "hidden_act": "gelu_pytorch_tanh",
    }
    assert read.config.values == {
        "vision_config": vision,
        "mm_tokens_per_image": 4,
        "boi_token_index": 2,
        "eoi_token_index": 3,
        "image_token_index": 4,
    }
    size = {"height": 16, "width": 16}
    means = {"image_mean": [0.5, 0.25, 0.125], "image_std": [0.5] * 3}
    assert read.settings.values == {**means, "size": size}
    tower, layer = "model.vision_tower.vision_model.", "encoder.layers.0."
    projector = "model.multi_modal_projector."
    found = dict(read.tensors)
    # The norm's factor here, what it is more than 1 in folders.
    norm = found.pop(f"{projector}mm_soft_emb_norm.weight")
    close(norm, arrays["mm.soft_emb_norm.weight"] - 1)
    names = {
        f"{projector}mm_input_projection_weight": "mm.input_projection.weight",
        f"{tower}{layer}mlp.fc1.weight": "v.blk.0.ffn_up.weight",
        f"{tower}{layer}mlp.fc2.weight": "v.blk.0.ffn_down.weight",
        f"{tower}{layer}mlp.fc2.bias": "v.blk.0.ffn_down.bias",
        f"{tower}embeddings.patch_embedding.weight": "v.patch_embd.weight",
        f"{tower}embeddings.position_embedding.weight": "v.position_embd.weight",
        f"{tower}{layer}self_attn.out_proj.weight": "v.blk.0.attn_out.weight",
        f"{tower}{layer}layer_norm2.bias": "v.blk.0.ln2.bias",
        f"{tower}post_layernorm.weight": "v.post_ln.weight",
        "v.odd.weight": "v.odd.weight",
    }
    assert found.keys() == names.keys()
    for theirs, ours in names.items():
        np.testing.assert_array_equal(found[theirs], arrays[ours])


@pytest.mark.parametrize("inner", [10, 8])
def test_old_files_have_the_names_of_two_products_exchanged(inner: int, tmp_path: Path) -> None:
    """Their widths tell; where both are equal, the file is taken for an old one."""
    arrays = tensors()
    arrays["v.blk.0.ffn_down.weight"] = np.zeros((inner, 8), np.float32)
    arrays["v.blk.0.ffn_up.weight"] = np.ones((8, inner), np.float32)
    metadata = {**METADATA, "clip.vision.feed_forward_length": inner}
    path = file_of(tmp_path / "mmproj.gguf", metadata, arrays)
    found = read_projector(path, WIDTH, VOCABULARY, tokenizer("<image_soft_token>")).tensors
    layer = "model.vision_tower.vision_model.encoder.layers.0.mlp."
    assert not found[f"{layer}fc1.weight"].any()
    assert found[f"{layer}fc2.weight"].all()
    np.testing.assert_array_equal(found[f"{layer}fc1.bias"], arrays["v.blk.0.ffn_down.bias"])


def test_a_vocabulary_without_the_token_of_vectors(tmp_path: Path) -> None:
    """It has no row in many files; one that no text has then stands for vectors."""
    path = file_of(tmp_path / "mmproj.gguf", METADATA, tensors())
    for tokens, count in ((tokenizer(), 4), (tokenizer("<image_soft_token>"), 4)):
        config = read_projector(path, WIDTH, count, tokens).config
        assert config.values["image_token_index"] == 1


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"general.architecture": "gemma3"}, "architecture is 'gemma3'; that of an mmproj file is 'cl"),
    ({"clip.has_vision_encoder": False}, "no tower for images; give one that has"),
    (
        {"clip.projector_type": "resampler"},
        "projector_type 'resampler' is not supported; gemma3, idefics3, mlp, qwen2vl_merger, qwen2",
    ),
    ({"clip.vision.projector_type": "ldp"}, "projector_type 'ldp' is not supported"),
    ({"clip.use_silu": True}, "clip.use_gelu and clip.use_silu are both true; a tower has one"),
    ({"clip.vision.image_mean": [0.5, 0.5]}, "image_mean has 2 numbers; it must have one for each"),
    ({"clip.vision.image_std": None}, "the metadata has no 'clip.vision.image_std'"),
    ({"clip.vision.block_count": 0}, "clip.vision.block_count is 0, it must be at least 1"),
    ({"clip.vision.patch_size": "2"}, "patch_size is '2', it must be an integer"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_what_is_wrong_with_the_metadata(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    metadata = {key: value for key, value in {**METADATA, **change}.items() if value is not None}
    path = file_of(tmp_path / "mmproj.gguf", metadata, tensors())
    with pytest.raises(LoadError, match=f"mmproj.gguf: .*{message}"):
        read_projector(path, WIDTH, VOCABULARY, tokenizer())


def test_what_is_wrong_with_the_rest(tmp_path: Path) -> None:
    arrays = tensors()
    path = file_of(tmp_path / "mmproj.gguf", METADATA, arrays)
    with pytest.raises(
        LoadError, match=r"\[8, 12\], and dim 1 must be 16, the features .*; take the mmproj file"
    ):
        read_projector(path, 16, VOCABULARY, tokenizer())
    with pytest.raises(LoadError, match="no token '<start_of_image>', which its images need"):
        read_projector(path, WIDTH, 2, tokenizer())
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(LoadError, match=r"truncated: tensor .* download it again"):
        read_projector(path, WIDTH, VOCABULARY, tokenizer())
    del arrays["mm.input_projection.weight"]
    file_of(path, METADATA, arrays)
    with pytest.raises(LoadError, match=r"'mm.input_projection.weight' is missing; download"):
        read_projector(path, WIDTH, VOCABULARY, tokenizer())
    with pytest.raises(LoadError, match=r"is an mmproj file, .*; load the text model's file, and"):
        lm.models.load(path, backend="reference")
    with pytest.raises(InputError, match="is no text model in GGUF, which alone takes one"):
        lm.models.load(lm.models.SHIPPED, backend="reference", projector=path)


OF_QWEN = {
    "general.architecture": "clip",
    "clip.has_vision_encoder": True,
    "clip.projector_type": "qwen2.5vl_merger",
    "clip.use_silu": True,
    "clip.vision.image_size": 560,
    "clip.vision.patch_size": 2,
    "clip.vision.embedding_length": 8,
    "clip.vision.feed_forward_length": 10,
    "clip.vision.block_count": 5,
    "clip.vision.attention.head_count": 2,
    "clip.vision.n_wa_pattern": 2,
    "clip.vision.image_mean": [0.5, 0.25, 0.125],
    "clip.vision.image_std": [0.5, 0.5, 0.5],
}
SHAPES_OF_QWEN = {
    "mm.2.weight": (WIDTH, 32),
    "mm.0.bias": (32,),
    "v.post_ln.weight": (8,),
    "v.patch_embd.weight": (8, 3, 2, 2),
    "v.patch_embd.weight.1": (8, 3, 2, 2),
    "v.blk.1.attn_q.weight": (8, 8),
    "v.blk.1.attn_out.bias": (8,),
    "v.blk.1.ln2.weight": (8,),
    "v.blk.1.ffn_gate.weight": (10, 8),
    "v.blk.1.ffn_up.weight": (10, 8),
    "v.blk.1.ffn_down.weight": (8, 10),
}


def file_of_qwen(folder: Path, **changes: Any) -> Path:
    said = {key: changes.pop(key.rpartition(".")[2], value) for key, value in OF_QWEN.items()}
    said |= {f"clip.vision.{key}": value for key, value in changes.items()}
    metadata = {key: value for key, value in said.items() if value is not None}
    arrays = {name: np.ones(shape, np.float32) for name, shape in SHAPES_OF_QWEN.items()}
    return file_of(folder / "mmproj.gguf", metadata, arrays)


def test_what_files_of_qwen_say(tmp_path: Path) -> None:
    """Pixels and windows are those of published models unless they do."""
    names = tokenizer("<|image_pad|>")
    read = read_projector(file_of_qwen(tmp_path), WIDTH, VOCABULARY, names)
    vision = {
        "depth": 5,
        "num_heads": 2,
        "patch_size": 2,
        "spatial_merge_size": 2,
        "hidden_act": "silu",
        "hidden_size": 8,
        "intermediate_size": 10,
        "window_size": 112,
        "fullatt_block_indexes": [1, 3],
    }
    assert read.config.values == {"vision_config": vision, "image_token_id": 4}
    pixels = {"min_pixels": 3136, "max_pixels": 12845056}
    means = {"image_mean": [0.5, 0.25, 0.125], "image_std": [0.5] * 3}
    assert read.settings.values == means | pixels
    layer = "visual.blocks.1."
    assert set(read.tensors) == {
        *("visual.merger.mlp.2.weight", "visual.merger.mlp.0.bias", "visual.merger.ln_q.weight"),
        *("visual.patch_embed.proj.weight", "visual.patch_embed.proj.weight.1"),
        *(f"{layer}{part}.weight" for part in ("attn.q_proj", "norm2", "mlp.gate_proj")),
        *(f"{layer}{part}.weight" for part in ("mlp.up_proj", "mlp.down_proj")),
        f"{layer}attn.proj.bias",
    }
    path = file_of_qwen(tmp_path, n_wa_pattern=0, window_size=8, image_min_pixels=64)
    read = read_projector(path, WIDTH, VOCABULARY, names)
    vision = read.config.values["vision_config"]
    assert (vision["fullatt_block_indexes"], vision["window_size"]) == ([0, 1, 2, 3, 4], 8)
    assert read.settings.values["min_pixels"] == 64
    path = file_of_qwen(tmp_path, projector_type="qwen2vl_merger", use_silu=False)
    vision = read_projector(path, WIDTH, VOCABULARY, names).config.values["vision_config"]
    # The features of the text model stand where the width of feed-forward parts is expected.
    assert {"intermediate_size", "hidden_size", "mlp_ratio"} & vision.keys() == set()
    assert (vision["embed_dim"], vision["hidden_act"]) == (8, "quick_gelu")


def test_what_is_wrong_with_files_of_qwen(tmp_path: Path) -> None:
    for change, message in (
        ({"n_wa_pattern": None}, "the metadata has no 'clip.vision.n_wa_pattern'"),
        ({"block_count": 2**31 - 1}, "block_count is 2147483647, it must be at most 4096"),
        ({"image_std": [1.0]}, "image_std has 1 numbers"),
    ):
        path = file_of_qwen(tmp_path, **change)
        with pytest.raises(LoadError, match=message):
            read_projector(path, WIDTH, VOCABULARY, tokenizer("<|image_pad|>"))
    path = file_of_qwen(tmp_path, window_size=3)
    with pytest.raises(
        LoadError, match=re.escape("no token '<|image_pad|>', which its images need")
    ):
        read_projector(path, WIDTH, VOCABULARY, tokenizer())
    config = read_projector(path, WIDTH, VOCABULARY, tokenizer("<|image_pad|>")).config
    with pytest.raises(
        LoadError, match="window_size is 3 pixels; it must be at least 4, the side of 2 x 2 patch"
    ):
        QWEN2_5_VL.tower(config, WIDTH)
    frame = np.ones((8, 3, 2, 2), np.float32)
    for weights, message in (
        ({"patches.weight": frame}, r"\(8, 3, 2, 2\); it must be .*one for each of two frames"),
        (
            {"patches.weight": frame, "patches.weight.1": frame[:-1]},
            r"\(8, 3, 2, 2\) and \(7, 3, 2, 2\); both must be .*; download the file again",
        ),
        ({"layers.0.attention.part.qkv.bias": frame[:, 0, 0, 0]}, r"\(8,\); its first dim must be"),
    ):
        with pytest.raises(LoadError, match=message):
            QWEN2_5_VL.weights(weights)


# --- models


@pytest.mark.long
@pytest.mark.parametrize("name", ["qwen2_vl_four_times", "qwen2_5_vl"])
def test_damaged_files_are_refused_by_name(name: str, tmp_path: Path) -> None:
    """Other values in the metadata, other shapes, tensors that are gone."""
    written(name, tmp_path)
    whole, path, rng = (
        tmp_path / "mmproj-model.gguf",
        tmp_path / "damaged.gguf",
        random.Random(name),
    )

    def damaged(metadata: dict[str, Any], arrays: dict[str, Any]) -> None:
        key, tensor = rng.choice([*metadata]), rng.choice([*arrays])
        if rng.random() < 0.6:
            metadata[key] = rng.choice(VALUES)
        elif rng.random() < 0.3:
            del arrays[tensor]
        else:
            shape = [rng.choice((1, 3, 16, 32)) for _ in range(rng.choice((1, 2, 3, 4)))]
            arrays[tensor] = np.ones(shape, np.float32)

    image = picture(30, 20)
    for _ in range(60):
        rewritten(whole, path, damaged)
        with contextlib.suppress(LoadError, InputError):
            model = lm.models.load(tmp_path / "text.gguf", backend="reference", projector=path)
            assert isinstance(model.sight, Sight)
            model.sight.processor.prepare(image)


VALUES: tuple[Any, ...] = (
    0,
    1,
    3,
    2**31 - 1,
    0.0,
    1e30,
    True,
    "x",
    [1],
    [0.5, 0.5, 0.0],
    [-1.0] * 3,
)
"""What damaged metadata says."""


@pytest.mark.long
@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", WRITTEN)
def test_texts_alone_and_in_a_batch(name: str, backend: str, tmp_path: Path) -> None:
    theirs, processor = written(name, tmp_path)
    model = lm.models.load(tmp_path / "text.gguf", backend=backend)
    check_pixels(model, processor, texts_of(name)[1][1])
    check_texts(theirs, processor, model, texts_of(name))
    if name.startswith("qwen"):  # both frames of an image are the same, so that texts tell no order
        whole = lm.models.load(tmp_path / "whole", backend=backend)
        found, wanted = (each.sight.tower.state_dict() for each in (model, whole))
        assert found.keys() == wanted.keys()
        for key, array in wanted.items():
            np.testing.assert_array_equal(found[key], array, key)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mmproj")
    written("gemma3", folder)
    return folder


def rewritten(
    source: Path, to: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]
) -> None:
    """A copy of an mmproj file with other metadata and tensors."""
    file = read_gguf(source)
    metadata = dict(file.metadata)
    arrays = {name: tensor.array() for name, tensor in file.tensors.items()}
    change(metadata, arrays)
    write_mmproj(to, {k: v for k, v in metadata.items() if k.startswith("clip.")}, arrays)


@pytest.mark.long
def test_which_file_sees(folder: Path, tmp_path: Path) -> None:
    """One beside the text model that fits, if none is named; the text model needs none."""
    whole, image = folder / "mmproj-model.gguf", picture(30, 20)
    text, prompt = tmp_path / "text.gguf", "w1 <start_of_image> w2"
    shutil.copy(folder / "text.gguf", text)
    expected = lm.models.load(folder / "text.gguf", backend="reference").generate(
        prompt, 4, images=[image]
    )
    blind = lm.models.load(text, backend="reference")
    assert blind.sight == "the model reads text alone; docs/models.md has those that see"
    named = lm.models.load(text, backend="reference", projector=whole)
    assert named.generate(prompt, 4, images=[image]) == expected

    def narrower(metadata: dict[str, Any], arrays: dict[str, Any]) -> None:
        name = "mm.input_projection.weight"
        arrays[name] = arrays[name][:, :-1]

    def damaged(metadata: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays["v.blk.0.attn_q.weight"] = arrays["v.blk.0.attn_q.weight"][:-1]

    for change, message in (
        (narrower, "dim 1 must be 32, the features of the text model; take the mmproj file of"),
        (damaged, "attn|attention"),
    ):
        other = tmp_path / "a-mmproj.gguf"
        rewritten(whole, other, change)
        with pytest.raises(LoadError, match=message):
            lm.models.load(text, backend="reference", projector=other)
        blind = lm.models.load(text, backend="reference")
        assert blind.generate("w1", 2)
        with pytest.raises(InputError, match=f"{message}.*; or name one, with projector="):
            blind.generate(prompt, images=[image])
    shutil.copy(whole, tmp_path / "b-mmproj.gguf")
    found = lm.models.load(text, backend="reference")
    assert isinstance(found.sight, Sight)
    assert found.sight.source == tmp_path / "b-mmproj.gguf"
    assert found.generate(prompt, 4, images=[image]) == expected


@pytest.mark.long
def test_old_names_see_the_same(folder: Path, tmp_path: Path) -> None:
    def exchanged(metadata: dict[str, Any], arrays: dict[str, Any]) -> None:
        names = [name for name in arrays if ".ffn_" in name]
        moved = {name: arrays.pop(name) for name in names}
        other = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
        for name, array in moved.items():
            part = name.split(".")[3]
            arrays[name.replace(part, other[part])] = array

    old, image = tmp_path / "old.gguf", picture(30, 20)
    rewritten(folder / "mmproj-model.gguf", old, exchanged)
    prompt, text = "w1 <start_of_image> w2", folder / "text.gguf"
    expected, found = (
        lm.models.load(text, backend="reference", projector=file).complete(
            [prompt], 4, images=[[image]], logprobs=True
        )[0]
        for file in (None, old)
    )
    assert found.tokens == expected.tokens
    assert found.logprobs == expected.logprobs


@pytest.mark.long
def test_the_commands(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    image = tmp_path / "a.png"
    picture(30, 20).save(image)
    prompt, text = "<start_of_image> w7", folder / "text.gguf"
    projector = shutil.copy(folder / "mmproj-model.gguf", tmp_path / "sees.gguf")
    expected = lm.models.load(text, backend="reference").generate(prompt, 4, images=[image])
    told = f"luminal: {folder / 'mmproj-model.gguf'} sees for the model; --mmproj takes another\n"
    for more, said in (([], told), (["--mmproj", str(projector)], "")):
        options = ["--model", str(text), "--backend", "reference", "--max-tokens", "4"]
        command = ["luminal", "generate", "--prompt", prompt, "--image", str(image)]
        monkeypatch.setattr(sys, "argv", [*command, *options, *more])
        with pytest.raises(SystemExit) as done:
            main()
        assert done.value.code == 0
        assert capsys.readouterr() == (f"{prompt}{expected}\n", said)


@pytest.mark.long
def test_the_server_takes_it(folder: Path, tmp_path: Path) -> None:
    serve = pytest.importorskip("luminal.serve.load")
    text = shutil.copy(folder / "text.gguf", tmp_path)
    projector = folder / "mmproj-model.gguf"
    served = serve.load(str(text), backend="reference", context=128, projector=str(projector))
    assert served.sight.source == projector
