"""Large rows on small models: files, what is counted, sides that fail, memory that runs short."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import luminal as lm
from bench import guarded, large, large_training, load
from bench.block import EFFORT
from bench.large import Found, counted_of, model_rows, row_of
from bench.large_models import Sizes, stored_bytes, write_llama
from bench.large_training import step_rows
from bench.row import Row, Skipped
from luminal.models.architectures import decoder_of
from luminal.models.checkpoint import load_checkpoint
from luminal.models.speed import Work
from luminal.runtime.roofline import Peaks

SMALL = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 160,
}  # fmt: skip
PEAKS = Peaks(flops=200e9, memory=20e9, cache=400e9, cache_bytes=1 << 24)
DECODE, PREFILL = large.WORKS


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"blocks": 2, "seconds": 0.0, "pause": 0.0, "named": ""}.items():
        monkeypatch.setattr(EFFORT, name, value)


def sizes(size: str = "8b") -> Sizes:
    """Of a published shape, small."""
    return Sizes({**Sizes.named(size).keys, **SMALL})


def test_published_sizes_have_their_published_counts() -> None:
    assert Sizes.named("8b").parameters == 8_030_261_248
    assert Sizes.named("1b").parameters == 1_235_814_400
    assert Sizes.named("8b").multiplied == 8_030_261_248 - 128_256 * 4096 - 65 * 4096


@pytest.mark.parametrize("kind", ["bf16", "q4_0"])
def test_a_file_holds_the_model(tmp_path: Path, kind: str) -> None:
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "model.gguf"
    write_llama(path, sizes(), kind)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    assert sum(int(tensor.n_elements) for tensor in tensors.values()) == sizes().parameters
    for name, (rows, columns) in sizes().matrices():
        assert tensors[name].tensor_type.name == kind.upper()
        assert [*tensors[name].shape] == [columns, rows]
        assert tensors[name].n_bytes == stored_bytes(rows * columns, kind)
        values = gguf.quants.dequantize(tensors[name].data, tensors[name].tensor_type)
        assert 0.009 < float(np.sqrt(np.square(values).mean())) < 0.02
    checkpoint = load_checkpoint(path, keep_quantized=kind != "bf16", with_tokenizer=False)
    assert len(dict(decoder_of(checkpoint).named_parameters())) >= 7 * SMALL["num_hidden_layers"]


def test_arrays_have_the_names_of_the_model() -> None:
    from luminal.models.llama import Llama, LlamaConfig

    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
             "num_key_value_heads", "head_dim", "vocab_size")  # fmt: skip
    for size in ("1b", "8b"):
        keys = sizes(size).keys
        tied = keys["tie_word_embeddings"]
        settings = LlamaConfig(**{n: keys[n] for n in names}, tie_word_embeddings=tied)
        held = {name: p.shape for name, p in Llama(settings).named_parameters()}
        arrays = sizes(size).arrays()
        assert {name: array.shape for name, array in arrays.items()} == held
        assert {array.dtype for array in arrays.values()} == {np.dtype(ml_dtypes.bfloat16)}


@pytest.mark.long
def test_arithmetic_is_that_of_the_program(tmp_path: Path) -> None:
    """Of a whole prompt: what the compiler counts of its kernels, but for norms and the like."""
    path = tmp_path / "model.gguf"
    write_llama(path, sizes(), "bf16")
    model = decoder_of(load_checkpoint(path, with_tokenizer=False))
    cx = lm.Graph()
    ids = cx.tensor((16,), lm.int32, "ids")
    model(ids, model.make_caches(16), cx.dim("past", 0, 15), last_only=True).output("logits")
    counted = sum(kernel.flops for kernel in lm.compile(cx).report({"past": 0}).kernels)
    # The count of a size leaves out what is no product; here layers are small.
    assert sizes().flops(16, 0) == pytest.approx(counted, rel=0.25)


def found(seconds: float, failed: str = "", peaks: Peaks = PEAKS) -> Found:
    blocks = {work: [] if failed else [seconds, seconds, 2 * seconds] for work in large.WORKS}
    return Found(blocks, [peaks], [1.0], failed, 1 << 30)


def test_a_row_is_our_share_of_the_limit() -> None:
    sides = {"ours": found(1.0), "PyTorch": found(4.0)}
    row = row_of("a", DECODE, Sizes.named("8b"), "bf16", sides)
    assert isinstance(row, Row)
    read = counted_of(Sizes.named("8b"), "bf16", DECODE).read_bytes
    # Vectors of norms and one row of the embedding are beside the matrices.
    assert read == pytest.approx(2 * Sizes.named("8b").multiplied, rel=0.01)
    assert row.measured == pytest.approx(read / 20e9)
    assert row.spread == pytest.approx((row.measured / 2, row.measured))
    assert [rate.unit for rate in row.rates] == ["tokens/s"] * 2
    assert row.sides == {"ours": [1.0, 1.0, 2.0], "PyTorch": [4.0, 4.0, 8.0]}
    assert "llama.cpp: not installed" in row.detail
    prompt = row_of("a", PREFILL, Sizes.named("8b"), "bf16", sides)
    assert isinstance(prompt, Row)
    assert prompt.rates[0].limited_by == "arithmetic"
    assert prompt.doubts  # 2 TFLOP in a second


def test_each_side_has_the_limit_of_its_own_minute() -> None:
    sides = {"ours": found(1.0), "PyTorch": found(1.0, peaks=PEAKS._replace(memory=10e9))}
    row = row_of("a", DECODE, Sizes.named("8b"), "bf16", sides)
    assert isinstance(row, Row)
    assert [rate.doubt is None for rate in row.rates] == [True, False]


def test_sides_that_fail_are_named() -> None:
    slow = "prefill 128: took more than 90 s and was ended"
    row = row_of("a", DECODE, sizes(), "bf16", {"ours": found(1.0), "PyTorch": found(1.0, slow)})
    assert isinstance(row, Row)
    assert f"PyTorch: {slow}" in row.detail
    assert [rate.side for rate in row.rates] == ["ours"]
    mine = row_of("a", DECODE, sizes(), "bf16", {"ours": found(1.0, "no memory")})
    assert mine == Skipped("a", "ours: no memory")
    step = {"ours": Found({large_training.STEP: [1.0]}, [PEAKS], [9.0], "", 1), "JAX": Found(
        {large_training.STEP: []}, failed="took more than 120 s and was ended")}  # fmt: skip
    row = large_training.row_of("step", sizes("1b"), 256, step)
    assert isinstance(row, Row)
    assert row.name == "step: of the limit"
    assert "JAX: took more than 120 s" in row.detail
    step["JAX"] = replace(step["JAX"], failed="", blocks={large_training.STEP: [3.0]}, logits=[8.0])
    with pytest.raises(AssertionError, match="the losses differ"):
        large_training.row_of("step", sizes("1b"), 256, step)
    step["JAX"] = replace(step["JAX"], logits=[9.01], peaks=[PEAKS])
    row = large_training.row_of("step", sizes("1b"), 256, step)
    assert isinstance(row, Row)
    assert row.measured == 3.0


def test_logits_that_differ_are_an_error() -> None:
    sides = {"ours": found(1.0), "PyTorch": replace(found(1.0), logits=[1.2])}
    with pytest.raises(AssertionError, match=r"Llama 8B, bf16: PyTorch's logits differ by 0\.167"):
        large._check("8B", "bf16", sides)
    large._check("8B", "q4_0", sides)


def test_rows_are_skipped_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (large, large_training):
        monkeypatch.setattr(module, "available", lambda: 2 << 30)
    rows = [*model_rows("8B", Sizes.named("8b"), "bf16")]
    assert rows == [
        Skipped(f"Llama 8B, bf16: {work}", "needs 18 GiB of memory; 2 are available")
        for work in large.WORKS
    ]
    (row,) = step_rows("1B", Sizes.named("1b"), 256, None)
    assert isinstance(row, Skipped)
    assert "needs 17 GiB" in row.reason
    assert load.available() > 1 << 20


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A side that never answers."""
    monkeypatch.setattr(guarded, "COMMAND", ("sleep", "60"))


@pytest.mark.usefixtures("waits")
def test_a_side_is_ended_before_memory_runs_out() -> None:
    with guarded.side("0", least=1 << 60) as process:
        answer = process.ask({"what": "peak"}, 30.0)
    assert answer == {"failed": "ended, as less than 1073741824 GiB of memory were free"}
    with guarded.side("0", least=0) as process:
        assert process.ask({"what": "peak"}, 0.2)["failed"] == "took more than 0 s and was ended"


@pytest.mark.long
def test_whole_rows_of_small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    works = Work(1, 8), Work(8, 0)
    monkeypatch.setattr(large, "WORKS", works)
    monkeypatch.setattr(large, "PROMPT", 8)
    targets = {(kind, work.tokens): 0.0 for kind in large.PEERS for work in works}
    monkeypatch.setattr(large, "TARGETS", targets)
    for kind in large.PEERS:
        rows = [*model_rows("small", sizes(), kind)]
        assert [row.name for row in rows] == [f"Llama small, {kind}: {work}" for work in works]
        for row in rows:
            assert isinstance(row, Row), row
            assert row.blocks == 2
            assert ("PyTorch" in row.sides) == (kind == "bf16")
    (row,) = step_rows("small", sizes("1b"), 16, "1GB")
    assert isinstance(row, Row), row
    assert "PyTorch" in row.sides
