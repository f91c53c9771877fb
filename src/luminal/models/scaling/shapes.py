"""Models and machines by name, as what `luminal simulate` predicts takes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from luminal.base.costs import Link
from luminal.base.errors import InputError
from luminal.base.near_names import suggestion
from luminal.base.records import dataclass
from luminal.distribute.mesh import Mesh
from luminal.distribute.price import Machine
from luminal.loaders.fields import Fields
from luminal.models.architectures import architecture_of
from luminal.models.decoder_config import DecoderConfig


def _llama(hidden: int, inner: int, layers: int, heads: int, **more: Any) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"], "hidden_size": hidden, "intermediate_size": inner,
        "num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": 128256,
        "tie_word_embeddings": False, **more,
    }  # fmt: skip


def _gpt(hidden: int, layers: int, heads: int) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"], "n_embd": hidden, "n_layer": layers,
        "n_head": heads, "n_positions": 2048, "vocab_size": 51200,
    }  # fmt: skip


MODELS: Mapping[str, Mapping[str, Any]] = {
    "7b": _llama(4096, 11008, 32, 32, vocab_size=32000),
    "70b": _llama(8192, 28672, 80, 64, num_key_value_heads=8),
    "405b": _llama(16384, 53248, 126, 128, num_key_value_heads=8),
    "400b-moe": _llama(6144, 5504, 60, 48, num_key_value_heads=8)
    | {
        "architectures": ["MixtralForCausalLM"],
        "num_local_experts": 64,
        "num_experts_per_tok": 4,
    },
    "gpt-22b": _gpt(6144, 48, 64),
    "gpt-175b": _gpt(12288, 96, 96),
    "gpt-530b": _gpt(20480, 105, 128),
    "gpt-1t": _gpt(25600, 128, 160),
}
"""Configurations as Hugging Face writes them. 7b is Llama 2's; 70b and 405b are Llama 3's
(Grattafiori et al., arXiv 2407.21783, table 3); 400b-moe is ours, of Mixtral's kind. gpt-...: those
of Korthikanti et al., arXiv 2205.05198, table 3.
"""


@dataclass(frozen=True, slots=True)
class Chip:
    """A kind of device: its peak operations a second in 16 bits, its memory's bytes a second and
    bytes, and what it has to send by: bytes a second in one direction inside a node and to others.
    """

    name: str
    flops: float
    bandwidth: float
    memory: float
    near: float
    far: float


CHIPS = {
    "h100": Chip("h100", 989.4e12, 3.35e12, 80e9, 450e9, 50e9),
    "a100": Chip("a100", 312e12, 2.039e12, 80e9, 300e9, 25e9),
}
"""From NVIDIA's data sheets of the SXM cards of 80 GB; to others: 400 and 200 Gb/s a card."""


@dataclass(frozen=True, slots=True)
class Reached:
    """What of its peaks a chip reaches, and seconds before a message's first byte arrives.

    `products`: of operations; `memory`: of bytes a second; `wires`: of the links' bytes a second;
    `reserved`: bytes that no plan may have: a context, the library of collectives, what lies in
    gaps.
    """

    products: float = 0.7
    memory: float = 0.85
    wires: float = 0.8
    near_latency: float = 5e-6
    far_latency: float = 15e-6
    reserved: float = 4e9


@dataclass(frozen=True, slots=True)
class Cluster:
    """Ranks of one kind, `per_node` of them joined by the link `near`, nodes by `far` from each."""

    machine: Machine
    per_node: int
    near: Link
    far: Link
    peak: float
    """The operations a second that utilization is a share of."""

    @staticmethod
    def of(chip: Chip, reached: Reached, per_node: int = 8) -> Cluster:
        """Nodes of a chip."""
        machine = Machine(
            chip.flops * reached.products,
            chip.bandwidth * reached.memory,
            chip.memory - reached.reserved,
        )
        near = Link(reached.near_latency, chip.near * reached.wires)
        far = Link(reached.far_latency, chip.far * reached.wires)
        return Cluster(machine, per_node, near, far, chip.flops)

    def links(self, mesh: Mesh) -> dict[str, Link]:
        """The link of each mesh axis. A group in several nodes goes around them as a ring, which
        leaves a node by the wires of all of its ranks there at once; two ranks alone have one.
        """
        links, stride = {}, 1
        for name, ranks in zip(reversed(mesh.names), reversed(mesh.shape), strict=True):
            if stride * ranks <= self.per_node:
                links[name] = self.near
            else:
                beside = max(1, self.per_node // stride)
                around = min(self.near.bandwidth, beside * self.far.bandwidth)
                links[name] = Link(self.far.latency, around, self.far.bandwidth)
            stride *= ranks
        return links


def chip_of(name: str) -> Chip:
    """The chip of a name. Raises InputError for one that is none."""
    if name not in CHIPS:
        raise InputError(
            f"simulate: --chip {name!r}; the chips are {', '.join(CHIPS)}{suggestion(name, CHIPS)}"
        )
    return CHIPS[name]


def shape_of(model: str) -> DecoderConfig:
    """The decoder of a name, or of a config.json or its folder: its sizes, no weights.

    Raises InputError for what is neither, LoadError for a configuration that is none of a decoder.
    """
    raw: Any = MODELS.get(model)
    path = Path(model)
    if raw is None:
        path = path / "config.json" if path.is_dir() else path
        try:
            raw = json.loads(path.read_text("utf-8"))
        except OSError as error:
            raise InputError(
                f"simulate: {model!r} is no model ({', '.join(MODELS)}), and no file: "
                f"{error.strerror}; give a name or a config.json{suggestion(model, MODELS)}"
            ) from error
        except ValueError as error:
            raise InputError(f"{path}: is no JSON: {error}") from None
    if not isinstance(raw, Mapping):
        raise InputError(f"{path}: is no configuration, but {type(raw).__name__}")
    if "architectures" not in raw:
        raw = {**raw, "architectures": ["LlamaForCausalLM"]}
    return architecture_of(raw, path).config(Fields(raw, path))
