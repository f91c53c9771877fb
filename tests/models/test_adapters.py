"""Adapters of PEFT, merged: `W + scale * B @ A` and DoRA's lengths in float64."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import InputError, LoadError
from luminal.cli import main
from luminal.models.checkpoint import load_checkpoint
from tests.close import close
from tests.fuzz.damage import damaged_bytes, damaged_json
from tests.models.packings import FORMS, Array, Tensors, tensors_of, write
from tests.models.small_adapters import ALPHA, PLAIN, PREFIX, R, adapter, base, pairs


def product(added: Tensors, module: str, scale: float) -> Array:
    a, b = (added[f"{PREFIX}{module}.lora_{part}.weight"].astype(np.float64) for part in "AB")
    return scale * b @ a


def merged(model: Path, folder: Path) -> Tensors:
    return dict(load_checkpoint(model, adapter=folder).tensors)


QUERY, UP = "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.up_proj"
ENDS = "q_proj", "up_proj"
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, float]]] = {
    "plain": ({}, {QUERY: ALPHA / R, UP: ALPHA / R}),
    "by the root": ({"use_rslora": True}, {QUERY: ALPHA / 2, UP: ALPHA / 2}),
    "alphas by pattern": (
        {"alpha_pattern": {"mlp.up_proj": 10}}, {QUERY: ALPHA / R, UP: 10 / R}
    ),
    "an expression": (
        {"target_modules": r".*\.(q_proj|up_proj)"}, {QUERY: ALPHA / R, UP: ALPHA / R}
    ),
    "all": ({"target_modules": "all-linear"}, {QUERY: ALPHA / R, UP: ALPHA / R}),
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_products_are_added(name: str, tmp_path: Path) -> None:
    settings, scales = SETTINGS[name]
    tensors = base(tmp_path / "m")
    added = pairs(tensors, ENDS)
    result = merged(tmp_path / "m", adapter(tmp_path / "a", added, **settings))
    assert result.keys() == tensors.keys()
    for key, weight in tensors.items():
        module = key.removesuffix(".weight")
        if module in scales:
            wanted = weight.astype(np.float64) + product(added, module, scales[module])
            close(result[key], wanted.astype(np.float32), 4, key)
            assert np.abs(wanted - weight).max() > 0.1
        else:
            np.testing.assert_array_equal(result[key], weight)


def test_ranks_by_pattern(tmp_path: Path) -> None:
    tensors = base(tmp_path / "m")
    added = pairs(tensors, ENDS[:1]) | pairs(tensors, ENDS[1:], 7)
    result = merged(tmp_path / "m", adapter(tmp_path / "a", added, rank_pattern={"up_proj": 7}))
    for module, rank in ((QUERY, R), (UP, 7)):
        wanted = tensors[f"{module}.weight"] + product(added, module, ALPHA / rank)
        close(result[f"{module}.weight"], wanted.astype(np.float32), 4)


@pytest.mark.parametrize("end", ["", ".weight"])
def test_rows_have_the_lengths_of_dora(end: str, tmp_path: Path) -> None:
    tensors = base(tmp_path / "m")
    added = pairs(tensors, ENDS)
    lengths = {}
    for module in (QUERY, UP):
        rows = len(tensors[f"{module}.weight"])
        lengths[module] = np.linspace(0.5, 2, rows).astype(np.float32)
        added[f"{PREFIX}{module}.lora_magnitude_vector{end}"] = lengths[module]
    result = merged(tmp_path / "m", adapter(tmp_path / "a", added, use_dora=True))
    for module, length in lengths.items():
        whole = tensors[f"{module}.weight"] + product(added, module, ALPHA / R)
        wanted = whole * (length / np.linalg.norm(whole, axis=1))[:, None]
        close(result[f"{module}.weight"], wanted.astype(np.float32), 4)


def test_matrices_that_lie_the_other_way(tmp_path: Path) -> None:
    """GPT-2's: (in, out), as `fan_in_fan_out` says."""
    from luminal.models.adapters import read_adapter

    weight = np.random.default_rng(0).standard_normal((5, 9)).astype(np.float32)
    added = pairs({"h.0.c_attn.weight": weight.T}, ("c_attn",))
    folder = adapter(tmp_path / "a", added, fan_in_fan_out=True, target_modules=["c_attn"])
    result = read_adapter(folder).merged({"h.0.c_attn.weight": weight})["h.0.c_attn.weight"]
    wanted = weight + product(added, "h.0.c_attn", ALPHA / R).T
    close(result, wanted.astype(np.float32), 4)


def test_embeddings_whole_modules_and_biases(tmp_path: Path) -> None:
    tensors = base(tmp_path / "m")
    rng = np.random.default_rng(2)
    table, name = tensors["model.embed_tokens.weight"], f"{PREFIX}model.embed_tokens"
    a = rng.standard_normal((R, len(table))).astype(np.float32)
    b = rng.standard_normal((table.shape[1], R)).astype(np.float32)
    head = rng.standard_normal(tensors["lm_head.weight"].shape).astype(np.float32)
    added = {
        f"{name}.lora_embedding_A": a, f"{name}.lora_embedding_B": b,
        f"{PREFIX}lm_head.weight": head,
    }  # fmt: skip
    folder = adapter(tmp_path / "a", added, target_modules=["embed_tokens"])
    result = merged(tmp_path / "m", folder)
    wanted = table + (ALPHA / R * b.astype(np.float64) @ a).T
    close(result["model.embed_tokens.weight"], wanted.astype(np.float32), 4)
    np.testing.assert_array_equal(result["lm_head.weight"], head)


TIED: dict[str, tuple[dict[str, Any], bool]] = {
    "an adapted embedding": ({}, True),
    "an adapted embedding, tied": ({"ensure_weight_tying": True}, False),
    "an adapted embedding with what it adds to": ({}, True),
    "a copy": ({"modules_to_save": ["embed_tokens"]}, True),
    "a copy, tied": ({"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True}, False),
    "the model's own": ({}, False),
    "an adapted head": ({"target_modules": ["lm_head"]}, True),
}
"""What an adapter changes of a model whose embedding is its head; the settings; does it get a head
of its own?"""


@pytest.mark.parametrize("name", TIED)
def test_an_embedding_that_is_the_head_is_changed_alone(name: str, tmp_path: Path) -> None:
    settings, has_head = TIED[name]
    tensors = base(tmp_path / "m")
    del tensors["lm_head.weight"]
    write(tmp_path / "m", tensors, None)
    table, rng = tensors["model.embed_tokens.weight"], np.random.default_rng(2)
    rows, columns = table.shape
    embedding = head = table
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((R, rows), (columns, R)))
    if name == "an adapted head":
        added = {"lm_head.lora_A.weight": b.T, "lm_head.lora_B.weight": a.T}
        head = table + (ALPHA / R * a.T.astype(np.float64) @ b.T).astype(np.float32)
    elif name.startswith("an adapted"):
        ends = {"lora_embedding_A": a, "lora_embedding_B": b}
        if "adds to" in name:
            ends["base_layer.weight"] = table
        added = {f"model.embed_tokens.{end}": array for end, array in ends.items()}
        embedding = table + (ALPHA / R * b.astype(np.float64) @ a).T.astype(np.float32)
        settings = {"target_modules": ["embed_tokens"], **settings}
    else:
        embedding = table + 1
        added = {"model.embed_tokens.weight": embedding}
        settings = {"target_modules": None, **settings}
    named = {PREFIX + key: np.ascontiguousarray(array) for key, array in added.items()}
    result = merged(tmp_path / "m", adapter(tmp_path / "a", named, **settings))
    assert result.keys() == tensors.keys() | ({"lm_head.weight"} if has_head else set())
    close(result["model.embed_tokens.weight"], embedding, 8)
    if has_head:
        close(result["lm_head.weight"], head, 8)


def test_weights_keep_their_dtype(tmp_path: Path) -> None:
    tensors = base(tmp_path / "m", ml_dtypes.bfloat16)
    added = pairs(tensors, ENDS)
    result = merged(tmp_path / "m", adapter(tmp_path / "a", added))
    wanted = tensors[f"{UP}.weight"].astype(np.float64) + product(added, UP, ALPHA / R)
    close(result[f"{UP}.weight"], wanted.astype(ml_dtypes.bfloat16), 1)
    assert result[f"{UP}.weight"].dtype == ml_dtypes.bfloat16


def test_packed_matrices_are_decoded_where_they_change(tmp_path: Path) -> None:
    form = FORMS["gptq 4 bits"]
    tensors, values = tensors_of(form)
    (tmp_path / "m").mkdir()
    write(tmp_path / "m", tensors, form.section)
    added = pairs(values, ENDS)
    folder = adapter(tmp_path / "a", added)
    model = lm.models.load(tmp_path / "m", keep_quantized=True, adapter=folder)
    weight = dict(model.model.named_parameters())[f"{UP}.weight"].numpy()
    wanted = values[f"{UP}.weight"] + product(added, UP, ALPHA / R)
    close(weight, wanted.astype(np.float32), 4)
    assert "7 matrices, 5 packed as grouped4" in model.stats.weights
    assert "2 decoded (joined, cut or changed after" in model.stats.weights
    assert model.stats.weights.endswith("; LoRA of rank 4 merged into 2 matrices")


def test_merge_writes_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = base(tmp_path / "m")
    added = pairs(tensors, ENDS)
    folder = adapter(tmp_path / "a", added)
    wanted = merged(tmp_path / "m", folder)
    words = ["luminal", "merge", *(str(tmp_path / name) for name in ("m", "a", "out"))]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert not ended.value.code
    result = load_checkpoint(tmp_path / "out").tensors
    assert result.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(result[name], array)
    with pytest.raises(InputError, match="an adapter is merged into a whole model"):
        lm.models.convert(tmp_path / "m" / "model.safetensors", tmp_path / "x.gguf", adapter=folder)


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    """GGUF has rows of queries in another order, and names of its own."""
    tensors = base(tmp_path / "m")
    folder = adapter(tmp_path / "a", pairs(tensors, ENDS))
    wanted = merged(tmp_path / "m", folder)
    for kind in ("f32", "q8_0"):
        lm.models.convert(tmp_path / "m", tmp_path / f"{kind}.gguf", kind)
        before, after = (
            load_checkpoint(tmp_path / f"{kind}.gguf", keep_order=True, adapter=each).tensors
            for each in (None, folder)
        )
        for name in (f"{QUERY}.weight", f"{UP}.weight"):
            added = np.asarray(after[name]) - np.asarray(before[name])
            close(added, wanted[name] - tensors[name], 64, name)  # a small part of each sum


# --- damaged ones ---------------------------------------------------------------------------------

A_OF_UP, B_OF_UP = (f"{PREFIX}{UP}.lora_{part}.weight" for part in "AB")
DAMAGED: dict[str, tuple[dict[str, Any], Any, str]] = {
    "no B": ({}, lambda t: t.pop(B_OF_UP), r"there is no tensor .*up_proj.lora_B"),
    "no A": ({}, lambda t: t.pop(A_OF_UP), r"there is no tensor .*up_proj.lora_A.weight'"),
    "integers": ({}, lambda t: t.update({A_OF_UP: np.ones((4, 64), np.int32)}), "must be floats"),
    "a shape": ({}, lambda t: t.update({A_OF_UP: t[A_OF_UP][:, :9]}), r"have the shape \[4, 64\]"),
    "a vector": ({}, lambda t: t.update({A_OF_UP: t[A_OF_UP][0]}), r"have the shape \[4, 64\]"),
    "no number": ({}, lambda t: t[A_OF_UP].__setitem__(0, np.nan), "holds NaN or infinity"),
    "infinity": ({}, lambda t: t[A_OF_UP].__setitem__((0, 1), -np.inf), "holds NaN or infinity"),
    "another rank": ({"r": 5}, len, r"must have the shape \[5, 64\], as r is 5"),
    "rank 0": ({"r": 0}, len, "adapter_config.json: r is 0, it must be at least 1"),
    "rank 10**12": ({"r": 10**12}, len, "r is 1000000000000, it must be at most"),
    "no rank": ({"r": None}, len, "has no 'r'"),
    "alpha": ({"lora_alpha": -1}, len, "lora_alpha is -1, it must be a number above 0"),
    "a target without tensors": (
        {"target_modules": ["q_proj", "up_proj", "v_proj"]}, len, "has no tensors of 'v_proj'"
    ),
    "tensors without a target": (
        {"target_modules": ["q_proj"]}, len, r"changes '.*up_proj', which target_mod.* not have"
    ),
    "another kind": ({"peft_type": "IA3"}, len, "peft_type is 'IA3', which is not read"),
    "PiSSA": ({"init_lora_weights": "pissa_niter_16"}, len, "matrices were changed before"),
    "dora without lengths": ({"use_dora": True}, len, "there is no tensor .*lora_magnitude_vector"),
    "lengths without dora": (
        {}, lambda t: t.update({f"{PREFIX}{UP}.lora_magnitude_vector": np.ones(96, np.float32)}),
        "is DoRA's, and adapter_config.json has no use_dora",
    ),
    "another model": (
        {"target_modules": "all-linear"},
        lambda t: t.update({k.replace("0.mlp", "7.mlp"): t.pop(k) for k in [*t] if "mlp" in k}),
        r"changes 'model.layers.7.mlp.up_proj.weight', which the model does not have; did you mean",
    ),
    "no prefix": ({}, lambda t: t.update({"x.weight": np.ones(3, np.float32)}), "name begin with"),
    "a pattern": ({"rank_pattern": {"(": 3}}, len, r"'\(' is no regular expression"),
    "replicated layers": ({"layer_replication": [[0, 1]]}, len, "layer_replication is .* followed"),
    "nothing": ({}, lambda t: t.clear(), "no tensor in it"),
}  # fmt: skip


def test_damaged_ones_are_refused(tmp_path: Path) -> None:
    tensors = base(tmp_path / "m")
    for name, (settings, change, message) in DAMAGED.items():
        added = pairs(tensors, ENDS)
        change(added)
        folder = adapter(tmp_path / "a", added, **settings)
        with pytest.raises(LoadError, match=message) as refused:
            merged(tmp_path / "m", folder)
        assert str(folder) in str(refused.value), name


def test_folders_that_are_none(tmp_path: Path) -> None:
    tensors = base(tmp_path / "m")
    with pytest.raises(LoadError, match=r"no adapter_config.json in it; give a folder that PEFT"):
        merged(tmp_path / "m", tmp_path / "m")
    folder = adapter(tmp_path / "a", pairs(tensors, ENDS))
    with pytest.raises(LoadError, match="is an adapter and no model; give the model"):
        lm.models.load(folder)
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(LoadError, match=r"no adapter_model.safetensors in it; save_pretrained"):
        merged(tmp_path / "m", folder)


def check_draws(first: int, last: int, tmp_path: Path) -> int:
    tensors = base(tmp_path / "m")
    refused = loaded = 0
    for number in range(first, last):
        rng = random.Random(f"adapter {number}")
        added = pairs(tensors, ENDS)
        settings = damaged_json({"s": PLAIN}, rng, "s").get("s") if rng.random() < 0.6 else PLAIN
        name = rng.choice(list(added))
        if rng.random() < 0.4:
            added[rng.choice((name, name + "x", name[3:]))] = added.pop(name)[:, rng.randrange(3) :]
        folder = adapter(tmp_path / "a", added)
        (folder / "adapter_config.json").write_text(json.dumps(settings))
        if rng.random() < 0.2:
            path = folder / "adapter_model.safetensors"
            path.write_bytes(damaged_bytes(path.read_bytes(), rng))
        try:
            with np.errstate(all="ignore"):
                merged(tmp_path / "m", folder)
        except LoadError as error:
            text = str(error)
            refused += str(folder) in text and "\n" not in text
            loaded -= 1
        except Exception as error:
            raise AssertionError(f"draw {number}") from error
        loaded += 1
    assert refused + loaded == last - first  # each error names the folder, in one line
    return refused


def test_a_share_of_damaged_adapters(tmp_path: Path) -> None:
    assert 10 < check_draws(0, 40, tmp_path) < 40


@pytest.mark.long
def test_damaged_adapters(tmp_path: Path) -> None:
    check_draws(40, 2000, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", ["llava", "qwen2_vl"])
def test_adapters_of_models_that_see_have_the_names_of_modules(tmp_path: Path, name: str) -> None:
    """PEFT names modules as they are in memory, and transformers writes older names to files: it
    says itself which are which.
    """
    from tests.models.small_seeing import saved

    model, _ = saved(name, tmp_path)
    ends = "q_proj", "qkv"
    linears = {path: part for path, part in model.named_modules() if path.endswith(ends)}
    matrices = {f"{path}.weight": part.weight.detach().numpy() for path, part in linears.items()}
    sees = [path for path in matrices if "vision" in path or "visual" in path]
    assert 0 < len(sees) < len(matrices)
    tensors = pairs(matrices, ends)
    targets = sorted({path.rpartition(".")[2] for path in linears})
    folder = adapter(tmp_path / "adapter", tensors, target_modules=targets)
    found = load_checkpoint(tmp_path, adapter=folder).tensors
    for path, part in linears.items():
        a, b = (tensors[f"{PREFIX}{path}.lora_{side}.weight"] for side in "AB")
        part.weight.data += part.weight.data.new_tensor(ALPHA / R * (b @ a))
    model.save_pretrained(tmp_path / "merged")
    wanted = load_checkpoint(tmp_path / "merged").tensors
    assert found.keys() == wanted.keys()
    for tensor, array in wanted.items():
        # A product of two ranks and a sum, each rounded once.
        np.testing.assert_allclose(found[tensor], array, rtol=1e-6, atol=1e-6, err_msg=tensor)
    with pytest.raises(LoadError, match="which the language model does not read, so it cannot"):
        lm.models.load(tmp_path, backend="reference", adapters={"a": folder})
