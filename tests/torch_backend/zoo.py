"""Thirty tiny models of different architectures, with random weights and inputs of any length.

`python -m tests.torch_backend.zoo [names]` compares each with eager PyTorch and prints a line.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers as hf

import luminal as lm
from luminal import luminal_backend

VOCABULARY = 99

_TEXT = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_attention_heads": 4}
_DECODER = {
    **_TEXT, "num_hidden_layers": 2, "intermediate_size": 48, "max_position_embeddings": 64,
}  # fmt: skip
_GROUPED = {**_DECODER, "num_key_value_heads": 2}
_ENCODER = {**_DECODER, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_VISION = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "image_size": 16, "patch_size": 4,
}  # fmt: skip


def _ids(n: int) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(3, VOCABULARY, (2, n))}


def _text_pair(n: int) -> dict[str, torch.Tensor]:
    return {**_ids(n), "decoder_input_ids": torch.randint(3, VOCABULARY, (2, n))}


def _pixels(n: int) -> dict[str, torch.Tensor]:
    """`n` pictures: vision models are of one size, and any batch."""
    return {"pixel_values": torch.randn(n, 3, 16, 16)}


def _large_pixels(n: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(n, 3, 32, 32)}


def _sound(n: int) -> dict[str, torch.Tensor]:
    return {"input_values": torch.randn(2, 160 * n)}


def _spectrum(n: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, VOCABULARY, (2, n))
    return {"input_features": torch.randn(2, 8, 40), "decoder_input_ids": ids}


def _picture_and_text(n: int) -> dict[str, torch.Tensor]:
    return {**_ids(n), "pixel_values": torch.randn(2, 3, 16, 16)}


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model to be made, inputs of a length for it, and whether a loss of it is tested."""

    make: Callable[[], Any]
    inputs: Callable[[int], dict[str, torch.Tensor]] = _ids
    trains: bool = False
    generates: bool = False


def _of(model: str, config: str, **how: Any) -> Callable[[], Any]:
    return lambda: getattr(hf, model)(getattr(hf, config)(**how))


def _gemma3() -> Any:
    return hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**_GROUPED, head_dim=8, sliding_window=8))


def _clip() -> Any:
    text = {**_DECODER, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
    config = hf.CLIPConfig(text_config=text, vision_config=_VISION, projection_dim=16)
    return hf.CLIPModel(config)


ZOO: dict[str, Architecture] = {
    "llama": Architecture(_of("LlamaForCausalLM", "LlamaConfig", **_GROUPED), trains=True,
                          generates=True),
    "qwen2": Architecture(_of("Qwen2ForCausalLM", "Qwen2Config", **_GROUPED), generates=True),
    "qwen3": Architecture(
        _of("Qwen3ForCausalLM", "Qwen3Config", **_GROUPED, head_dim=8), trains=True, generates=True
    ),
    "gemma2": Architecture(
        _of("Gemma2ForCausalLM", "Gemma2Config", **_GROUPED, head_dim=8), generates=True
    ),
    "gemma3": Architecture(_gemma3),
    "phi3": Architecture(
        _of("Phi3ForCausalLM", "Phi3Config", **_GROUPED, pad_token_id=0), generates=True
    ),
    "mistral": Architecture(_of("MistralForCausalLM", "MistralConfig", **_GROUPED), trains=True),
    "qwen3_moe": Architecture(
        _of("Qwen3MoeForCausalLM", "Qwen3MoeConfig", **_GROUPED, head_dim=8, num_experts=4,
            num_experts_per_tok=2, moe_intermediate_size=16)
    ),
    "gpt2": Architecture(
        _of("GPT2LMHeadModel", "GPT2Config", vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4,
            n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
        trains=True, generates=True,
    ),
    "gpt_neox": Architecture(_of("GPTNeoXForCausalLM", "GPTNeoXConfig", **_DECODER), trains=True),
    "opt": Architecture(
        _of("OPTForCausalLM", "OPTConfig", vocab_size=VOCABULARY, hidden_size=32, ffn_dim=48,
            num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64,
            word_embed_proj_dim=32)
    ),
    "falcon": Architecture(
        _of("FalconForCausalLM", "FalconConfig", **_TEXT, num_hidden_layers=2, alibi=False)
    ),
    "bloom": Architecture(
        _of("BloomForCausalLM", "BloomConfig", vocab_size=VOCABULARY, hidden_size=32, n_layer=2,
            n_head=4)
    ),
    "mamba": Architecture(
        _of("MambaForCausalLM", "MambaConfig", vocab_size=VOCABULARY, hidden_size=32,
            num_hidden_layers=2, state_size=4)
    ),
    "bert": Architecture(_of("BertModel", "BertConfig", **_ENCODER), trains=True),
    "roberta": Architecture(_of("RobertaModel", "RobertaConfig", **_ENCODER)),
    "distilbert": Architecture(
        _of("DistilBertModel", "DistilBertConfig", vocab_size=VOCABULARY, dim=32, hidden_dim=48,
            n_layers=2, n_heads=4, max_position_embeddings=64, dropout=0.0, attention_dropout=0.0),
        trains=True,
    ),
    "albert": Architecture(_of("AlbertModel", "AlbertConfig", **_ENCODER, embedding_size=16)),
    "electra": Architecture(_of("ElectraModel", "ElectraConfig", **_ENCODER, embedding_size=16)),
    "t5": Architecture(
        _of("T5Model", "T5Config", vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=48,
            num_layers=2, num_heads=4, dropout_rate=0.0),
        _text_pair, trains=True,
    ),
    "bart": Architecture(
        _of("BartModel", "BartConfig", vocab_size=VOCABULARY, d_model=32, encoder_layers=2,
            decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64, dropout=0.0),
        _text_pair,
    ),
    "whisper": Architecture(
        _of("WhisperModel", "WhisperConfig", vocab_size=VOCABULARY, d_model=32, encoder_layers=2,
            decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=8, max_source_positions=20,
            max_target_positions=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
            decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None),
        _spectrum,
    ),
    "vit": Architecture(_of("ViTModel", "ViTConfig", **_VISION), _pixels, trains=True),
    "deit": Architecture(_of("DeiTModel", "DeiTConfig", **_VISION), _pixels),
    "swin": Architecture(
        _of("SwinModel", "SwinConfig", image_size=16, patch_size=2, embed_dim=16, depths=[1, 1],
            num_heads=[2, 2], window_size=2),
        _pixels,
    ),
    "convnext": Architecture(
        _of("ConvNextModel", "ConvNextConfig", hidden_sizes=[8, 16], depths=[1, 1], num_stages=2),
        _pixels,
    ),
    "resnet": Architecture(
        _of("ResNetModel", "ResNetConfig", embedding_size=8, hidden_sizes=[16, 32], depths=[1, 1],
            layer_type="basic"),
        _large_pixels, trains=True,
    ),
    "clip": Architecture(_clip, _picture_and_text),
    "wav2vec2": Architecture(
        _of("Wav2Vec2Model", "Wav2Vec2Config", **_TEXT, num_hidden_layers=2, intermediate_size=48,
            conv_dim=[16, 16], conv_stride=[5, 2], conv_kernel=[10, 3], num_feat_extract_layers=2,
            num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2),
        _sound,
    ),
    "segformer": Architecture(
        _of("SegformerModel", "SegformerConfig", num_encoder_blocks=2, depths=[1, 1],
            sr_ratios=[2, 1], hidden_sizes=[16, 32], patch_sizes=[7, 3], strides=[4, 2],
            num_attention_heads=[1, 2], mlp_ratios=[2, 2]),
        _large_pixels,
    ),
}  # fmt: skip


def made(name: str, *, train: bool = False) -> Any:
    """The model of this name, with the same weights each time, for inference."""
    torch.manual_seed(0)
    model = ZOO[name].make()
    if hasattr(model.config, "use_cache"):
        model.config.use_cache = False
    return model.train(train)


def tensors_of(output: Any) -> list[torch.Tensor]:
    """The tensors in a model's output, in order."""
    if isinstance(output, torch.Tensor):
        return [output]
    values = output.values() if isinstance(output, dict) else output
    if isinstance(values, tuple | list) or isinstance(output, dict):
        return [x for each in values if each is not None for x in tensors_of(each)]
    return []


def difference(found: torch.Tensor, wanted: torch.Tensor, least: float = 1e-6) -> float:
    """The largest difference, relative to the largest value, which counts as `least` or more."""
    if found.shape != wanted.shape:
        return float("inf")
    largest = float(wanted.abs().max()) if wanted.numel() else 0.0
    return float((found - wanted).abs().max()) / max(largest, least) if wanted.numel() else 0.0


LENGTHS = (5, 8, 11)


def marked(
    given: dict[str, torch.Tensor], other: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """`given` with the dims marked as open in which `other` differs."""
    for name, x in given.items():
        for dim, (n, m) in enumerate(zip(x.shape, other[name].shape, strict=True)):
            if n != m:
                torch._dynamo.mark_dynamic(x, dim)
    return given


def compared(name: str, *, fullgraph: bool = True) -> tuple[float, int]:
    """The largest difference over three lengths, and how many programs were compiled."""
    torch._dynamo.reset()
    model, inputs = made(name), ZOO[name].inputs
    options = {"fallback": "error"} if fullgraph else {}
    fast = torch.compile(model, backend=luminal_backend, fullgraph=fullgraph, options=options)
    before, worst = lm.compile_count(), 0.0
    with torch.no_grad():
        for n in LENGTHS:
            given = marked(inputs(n), inputs(n + 1))
            pairs = zip(tensors_of(fast(**given)), tensors_of(model(**given)), strict=True)
            worst = max(worst, *(difference(x.float(), y.float()) for x, y in pairs))
    return worst, lm.compile_count() - before


def trained(name: str) -> float:
    """The largest difference of a step's loss and gradients."""
    torch._dynamo.reset()
    model, given = made(name), ZOO[name].inputs(6)
    options = {"fallback": "error"}
    fast = torch.compile(model, backend=luminal_backend, fullgraph=True, options=options)

    def step(forward: Callable[..., Any]) -> list[torch.Tensor]:
        model.zero_grad(set_to_none=True)
        outputs = [y for y in tensors_of(forward(**given)) if y.requires_grad]
        loss = torch.stack([(y * torch.arange(y.numel()).cos().view_as(y)).sum() for y in outputs])
        loss = loss.sum()
        loss.backward()
        return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]

    wanted, found = step(model), step(fast)
    # A bias of keys has the gradient 0 but for rounding, in units of what is around it.
    least = 1e-4 * max(float(y.abs().max()) for y in wanted)
    return max(difference(x, y, least) for x, y in zip(found, wanted, strict=True))


def generated(name: str) -> tuple[bool, list[int]]:
    """Is the text that of eager PyTorch? And how many programs there were after each token."""
    torch._dynamo.reset()
    model, given = made(name), _ids(5)
    how: dict[str, Any] = {
        "max_new_tokens": 8, "do_sample": False, "cache_implementation": "static",
        "eos_token_id": None, "pad_token_id": 0, "use_cache": True, "disable_compile": True,
    }  # fmt: skip
    wanted = model.generate(**given, **how)
    counts: list[int] = []
    plain = model.forward
    fast = torch.compile(plain, backend=luminal_backend, options={"fallback": "error"})

    def forward(*args: Any, **kwargs: Any) -> Any:
        result = fast(*args, **kwargs)
        counts.append(lm.compile_count())
        return result

    model.forward = forward
    found = model.generate(**given, **how)
    return torch.equal(found, wanted), counts


def main() -> None:
    parser = argparse.ArgumentParser(description="Tiny models against eager PyTorch")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--breaks", action="store_true", help="let PyTorch run what is missing")
    parser.add_argument("--train", action="store_true", help="compare a step's gradients")
    parser.add_argument("--generate", action="store_true", help="compare generated text")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.names or ZOO:
        start = time.perf_counter()
        try:
            if options.train:
                text = f"{trained(name):.1e}"
            elif options.generate:
                text = str(generated(name))
            else:
                worst, count = compared(name, fullgraph=not options.breaks)
                text = f"{worst:.1e}, {count} programs"
        except Exception as error:
            cause = error.__cause__ or error
            text = f"{type(cause).__name__}: {' '.join(str(cause).split())[:400]}"
        print(f"{name}: {text} ({time.perf_counter() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
