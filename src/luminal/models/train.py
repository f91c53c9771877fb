"""A Llama trained on a text file, as a TOML file says: what `luminal train` does."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

import tokenizers

from luminal import optim
from luminal.base.dtypes import dtype_of
from luminal.base.errors import InputError
from luminal.base.generator import checked_seed, manual_seed
from luminal.base.records import dataclass
from luminal.frontend.tensor import Tensor
from luminal.loaders.mapped import given_path
from luminal.loaders.write_atomic import replacing
from luminal.models.llama import Llama, LlamaConfig
from luminal.models.loading import load
from luminal.models.write_folder import write_folder
from luminal.nn import functional as F
from luminal.nn import init
from luminal.nn.module import Module
from luminal.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR
from luminal.optim.ranges import (
    AT_LEAST_0,
    AT_LEAST_0_INT,
    BELOW_1,
    BETWEEN_0_AND_1,
    BOUND,
    COUNT,
    check,
)
from luminal.training import Batches, TextDataset, fit
from luminal.training.byte_pairs import train_byte_pairs
from luminal.training.program import Losses, Recipe
from luminal.training.trainer import Record

SPREAD = 0.02  # standard deviation of first weights: GPT-2's, whatever the width


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The sizes of the Llama. `context`: the most positions; `dtype`: of the weights written."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    context: int
    num_key_value_heads: int | None = None
    tie_word_embeddings: bool = True
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class TokenizerSettings:
    """The most tokens of the byte pairs."""

    vocabulary: int = 1024


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """`steps` of `batch` windows of `length` tokens, by AdamW.

    The rate rises over `warmup` steps and falls along a cosine to a tenth. `held_out`: the share of
    the text, at its end, that only the validation sees.
    """

    steps: int
    batch: int
    length: int
    learning_rate: float = 1e-3
    warmup: int = 100
    weight_decay: float = 0.1
    beta2: float = 0.95
    clip_norm: float = 1.0
    accumulate: int = 1
    amp: str | None = None
    held_out: float = 0.1
    validate_every: int = 200
    checkpoint_every: int = 200


@dataclass(frozen=True, slots=True)
class SampleSettings:
    """What the trained model is asked to continue."""

    prompt: str = "\n"
    tokens: int = 200
    temperature: float = 0.8
    seed: int = 0


@dataclass(frozen=True, slots=True)
class TextRun:
    """A run as its TOML file says it. Paths are relative to that file."""

    text: str
    output: str
    model: ModelSettings
    training: TrainingSettings
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    sample: SampleSettings = field(default_factory=SampleSettings)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Trained:
    """The folder that was written, the loss of its weights on the text held out, and a sample.

    `validation_loss` is in nats a token, `bits_per_byte` the same over the bytes of the text.
    """

    folder: Path
    record: Record
    validation_loss: float
    bits_per_byte: float
    sample: str


def train_text(run: TextRun, base: str | Path = ".", *, resume: bool = True) -> Trained:
    """Trains a tokenizer and a Llama on a text, writes them to the output folder, and samples.

    `base`: the folder that paths are relative to. In the output: config.json, model.safetensors and
    tokenizer.json, metrics.jsonl, checkpoints, and training.json, which says how it went. Raises
    InputError for a text that cannot be read or is too short.
    """
    _check(run)
    start = time.perf_counter()
    manual_seed(checked_seed("train", run.seed))
    training = run.training
    learned, held = held_out(_read(given_path(base) / given_path(run.text)), training.held_out)
    pairs = train_byte_pairs(learned, run.tokenizer.vocabulary)
    tokenizer = tokenizers.Tokenizer.from_str(pairs)
    # Windows begin at every token, and each epoch draws them in another order: a stride of the
    # window's length would show the model the same few contexts again.
    data = Batches(
        TextDataset(tokenizer.encode(learned).ids, training.length, stride=1),
        training.batch,
        seed=run.seed,
        drop_last=True,
    )
    held_ids = tokenizer.encode(held).ids
    validation = Batches(TextDataset(held_ids, training.length), training.batch, shuffle=False)
    model = new_llama(run.model, tokenizer.get_vocab_size())
    folder = given_path(base) / given_path(run.output)
    optimizer, scheduler = _optimizer(model, training)
    record = fit(
        model, next_token_loss, data, optimizer,
        steps=training.steps, scheduler=scheduler, clip_norm=training.clip_norm, amp=training.amp,
        accumulate=training.accumulate, validate=validation, validate_every=training.validate_every,
        checkpoint=folder / "checkpoints", checkpoint_every=training.checkpoint_every,
        resume=resume, seed=run.seed, log=folder / "metrics.jsonl",
    )  # fmt: skip
    # The loss that is reported is that of the file, not of the float32 weights that nobody will
    # load.
    _round(model, run.model.dtype)
    write_folder(folder, model, pairs, run.model.dtype)
    loss = Losses(Recipe(model, next_token_loss, optimizer)).mean(validation)
    # Bits per byte compare runs with different tokenizers; a loss per token falls when tokens get
    # shorter.
    bits = loss / math.log(2) * len(held_ids) / len(held.encode())
    sample = run.sample.prompt + load(folder).generate(
        run.sample.prompt, run.sample.tokens, temperature=run.sample.temperature,
        seed=run.sample.seed,
    )  # fmt: skip
    trained = Trained(folder, record, loss, bits, sample)
    _write_outcome(run, trained, sum(p.numel() for p in model.parameters()), start)
    return trained


def _check(run: TextRun) -> None:
    """Raises InputError for what would be refused, or go wrong, after hours of training."""
    model, training, sample = run.model, run.training, run.sample
    check(
        "model", COUNT, hidden_size=model.hidden_size, intermediate_size=model.intermediate_size,
        num_hidden_layers=model.num_hidden_layers, num_attention_heads=model.num_attention_heads,
        num_key_value_heads=model.num_key_value_heads, context=model.context,
    )  # fmt: skip
    if not dtype_of(model.dtype).is_float:
        raise InputError(f"model: dtype={model.dtype!r}; it must be a float's, as bfloat16")
    check(
        "training", COUNT, steps=training.steps, batch=training.batch, length=training.length,
        accumulate=training.accumulate, validate_every=training.validate_every,
        checkpoint_every=training.checkpoint_every,
    )  # fmt: skip
    check("training", AT_LEAST_0, learning_rate=training.learning_rate)
    check("training", AT_LEAST_0, weight_decay=training.weight_decay)
    check("training", BOUND, clip_norm=training.clip_norm)
    check("training", BELOW_1, beta2=training.beta2)
    check("training", BETWEEN_0_AND_1, held_out=training.held_out)
    check("sample", AT_LEAST_0, temperature=sample.temperature)
    check("sample", AT_LEAST_0_INT, tokens=sample.tokens)
    checked_seed("sample", sample.seed)


def next_token_loss(logits: Tensor, ids: Tensor) -> Tensor:
    """The mean cross-entropy of (batch, s, vocab_size) logits and (batch, s) ids, in nats."""
    return F.cross_entropy(logits.flatten(0, 1), ids.flatten())


def new_llama(settings: ModelSettings, vocabulary: int) -> Llama:
    """A Llama with first weights as GPT-2's: normal, those that add to the residual stream smaller
    by the root of their number. Radford et al. 2019.
    """
    model = unfilled_llama(settings, vocabulary)
    for path, parameter in model.named_parameters(remove_duplicate=False):
        if parameter.ndim == 2:
            adds = path.endswith(("o_proj.weight", "down_proj.weight"))
            scale = 1 / math.sqrt(2 * settings.num_hidden_layers) if adds else 1.0
            init.normal_(parameter, 0.0, SPREAD * scale)
    return model


def unfilled_llama(settings: ModelSettings, vocabulary: int) -> Llama:
    """A Llama whose weights are drawn when they are first read, so that one of any size can be
    recorded.
    """
    heads = settings.num_attention_heads
    if settings.hidden_size % heads:
        raise InputError(
            f"model: hidden_size = {settings.hidden_size} is no multiple of num_attention_heads = "
            f"{heads}; change one of them"
        )
    config = LlamaConfig(
        hidden_size=settings.hidden_size,
        intermediate_size=settings.intermediate_size,
        num_hidden_layers=settings.num_hidden_layers,
        num_attention_heads=heads,
        num_key_value_heads=settings.num_key_value_heads or heads,
        head_dim=settings.hidden_size // heads,
        vocab_size=vocabulary,
        max_position_embeddings=settings.context,
        tie_word_embeddings=settings.tie_word_embeddings,
    )
    return Llama(config)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is no UTF-8; convert the text") from None


def held_out(text: str, share: float) -> tuple[str, str]:
    """The text to learn from, and the last `share` of it from the next line on."""
    # The end and not a random share: windows overlap, so lines drawn at random would be half known.
    cut = text.rfind("\n", 0, int(len(text) * (1 - share))) + 1
    return text[:cut], text[cut:]


def _optimizer(model: Llama, settings: TrainingSettings) -> tuple[optim.Optimizer, LRScheduler]:
    """AdamW, which lets matrices decay but no norm's scale, and its rates."""
    groups: list[dict[str, Any]] = [
        {"params": [p for p in model.parameters() if p.ndim == 2]},
        {"params": [p for p in model.parameters() if p.ndim != 2], "weight_decay": 0.0},
    ]
    rate, steps, warmup = settings.learning_rate, settings.steps, settings.warmup
    if not 0 < warmup < steps:
        raise InputError(
            f"training: warmup = {warmup}; it must be from 1 to steps - 1 = {steps - 1}"
        )
    betas = 0.9, settings.beta2
    optimizer = optim.AdamW(groups, rate, betas, weight_decay=settings.weight_decay)
    rates = [rate] * len(groups)
    rising = LinearLR(rates, start_factor=1 / warmup, total_iters=warmup)
    falling = CosineAnnealingLR(rates, T_max=steps - warmup, eta_min=rate / 10)
    return optimizer, SequentialLR([rising, falling], [warmup])


def _round(model: Module, dtype: str) -> None:
    """Parameters hold what they will in a file of this dtype."""
    for parameter in model.parameters():
        rounded = parameter.numpy().astype(dtype_of(dtype).numpy)
        parameter.set(rounded.astype(parameter.dtype.numpy))


def _write_outcome(run: TextRun, trained: Trained, parameters: int, start: float) -> None:
    outcome = {
        "run": asdict(run),
        "parameters": parameters,
        "steps": trained.record.steps,
        "seconds": round(time.perf_counter() - start, 1),
        "validation_loss": trained.validation_loss,
        "bits_per_byte": trained.bits_per_byte,
        "validation": [
            [row["step"], row["validation_loss"]]
            for row in trained.record.history
            if "validation_loss" in row
        ],
        "sample": trained.sample,
    }
    with replacing(trained.folder / "training.json") as file:
        file.write(json.dumps(outcome, indent=2, ensure_ascii=False).encode() + b"\n")
