"""Mixture of experts: a router sends each token through a few of many feed-forward blocks."""

from __future__ import annotations

from typing import Any, NamedTuple

from luminal.dtypes import float32, int32
from luminal.errors import InputError
from luminal.frontend.binary import where
from luminal.frontend.handle import work_dtype
from luminal.frontend.scan import scan
from luminal.frontend.tensor import Tensor
from luminal.nn import init
from luminal.nn.feed_forward import SwiGLU
from luminal.nn.init import Draw
from luminal.nn.linear import Linear, near_zero
from luminal.nn.module import Module
from luminal.shape.expression import Expression, product_of

BLOCK = 32
"""Tokens of one expert that are multiplied together: so many share one reading of its weights."""


class Routes(NamedTuple):
    """For each token, (tokens, top_k): the experts it goes to (int), and what each counts for."""

    experts: Tensor
    weights: Tensor


class Router(Module):
    """Scores of the experts, `x @ weight.T`; the `top_k` greatest are taken.

    `scoring`: "softmax" over all experts, or "sigmoid" of each. `normalize`: the weights of a token
    sum to 1; then they are times `scale`.
    """

    def __init__(
        self,
        hidden: int,
        experts: int,
        top_k: int,
        scoring: str = "softmax",
        normalize: bool = True,
        scale: float = 1.0,
        dtype: Any = float32,
    ) -> None:
        if not 1 <= top_k <= experts:
            raise InputError(f"MoE: top_k is {top_k}; it is 1..{experts}, the number of experts")
        if scoring not in ("softmax", "sigmoid"):
            raise InputError(f"MoE: scoring {scoring!r} is not known; use 'softmax' or 'sigmoid'")
        self.weight = init.parameter((experts, hidden), near_zero(hidden), dtype)
        self.top_k, self.scoring = top_k, scoring
        self.normalize, self.scale = normalize, scale

    def forward(self, x: Tensor) -> Routes:
        """x (tokens, hidden)."""
        logits = x @ self.read(self.weight, x).mT
        logits = logits.cast(work_dtype(logits.dtype))  # scores of 16 bits would tie
        scores = logits.softmax(-1) if self.scoring == "softmax" else logits.sigmoid()
        weights, experts = scores.topk(self.top_k, -1)
        if self.normalize:
            weights = weights / weights.sum(-1, keepdim=True)
        return Routes(experts.cast(int32), weights * self.scale)


class Experts(Module):
    """SwiGLU blocks side by side: `gate_up_proj` (experts, 2 * inner, hidden) and `down_proj`."""

    def __init__(self, hidden: int, inner: int, experts: int, dtype: Any = float32) -> None:
        self.count = experts
        into: Draw = near_zero(hidden)
        self.gate_up_proj = init.parameter((experts, 2 * inner, hidden), into, dtype)
        self.down_proj = init.parameter((experts, hidden, inner), near_zero(inner), dtype)

    def forward(self, x: Tensor, routes: Routes) -> Tensor:
        """x (tokens, hidden) to the weighted sum of each token's experts, same shape."""
        slots = product_of(routes.experts.extents)
        few = slots.is_const and slots.value <= self.count
        found = self._each(x, routes.experts) if few else self._in_blocks(x, routes.experts)
        weighted = found * routes.weights.unsqueeze(-1)
        return weighted.sum(1).cast(x.dtype)

    def _each(self, x: Tensor, experts: Tensor) -> Tensor:
        """(tokens, top_k, hidden), every slot with the weights of its expert: for a few tokens."""
        into = self.read(self.gate_up_proj, x).take(experts, 0)
        gate, up = (into @ x.unsqueeze(1).unsqueeze(-1)).squeeze(-1).chunk(2, -1)
        down = self.read(self.down_proj, x).take(experts, 0)
        return (down @ (gate.silu() * up).unsqueeze(-1)).squeeze(-1)

    def _in_blocks(self, x: Tensor, experts: Tensor) -> Tensor:
        """(tokens, top_k, hidden): slots lie in blocks of one expert each, a trip multiplies one.

        Gale et al., arXiv 2211.15841. Blocks that stay empty read weights of 0.
        """
        into, down = self.read(self.gate_up_proj, x), self.read(self.down_proj, x)
        tokens, top_k = experts.extents
        plan = _Blocks.of(experts.reshape(-1), self.count)
        source = plan.scattered(x.graph.arange(tokens * top_k, dtype=int32) // top_k, tokens)

        def block(carry: None, xs: tuple[Tensor, Tensor]) -> tuple[None, Tensor]:
            rows, expert = xs
            gate, up = (x.take(rows, 0) @ into.take(expert, 0).mT).chunk(2, -1)
            return None, (gate.silu() * up) @ down.take(expert, 0).mT

        _, results = scan(block, None, (source.reshape(plan.number, BLOCK), plan.expert))
        found: Tensor = results.flatten(0, 1)
        return found.take(plan.place.reshape(tokens, top_k), 0)


class _Blocks(NamedTuple):
    """Slots sorted by expert into blocks of BLOCK, each expert's last one perhaps not full."""

    number: Expression
    place: Tensor
    """Where each slot lies: block * BLOCK + position."""
    expert: Tensor
    """Each block's expert; the number of experts for blocks that stay empty."""

    @classmethod
    def of(cls, experts: Tensor, kinds: int) -> _Blocks:
        """`experts` (slots,) in 0..kinds-1."""
        graph, slots = experts.graph, experts.extents[0]
        mine = experts.unsqueeze(-1) == graph.arange(kinds, dtype=int32)  # (slots, experts)
        running = mine.cast(int32).cumsum(0)
        rank = where(mine, running, 0).sum(1) - 1  # among the slots of the same expert
        blocks = (mine.cast(int32).sum(0) + (BLOCK - 1)) // BLOCK
        ends = blocks.cumsum(0)
        place = (ends - blocks).take(experts, 0) * BLOCK + rank
        # Each expert leaves at most BLOCK - 1 places empty.
        number = slots // BLOCK + kinds
        numbers = graph.arange(number).unsqueeze(-1)
        return cls(number, place, (numbers >= ends).cast(int32).sum(1).cast(int32))

    def scattered(self, values: Tensor, empty: Expression) -> Tensor:
        """`values` of the slots at their places, `empty` elsewhere."""
        graph = values.graph
        places = graph.constant(empty, values.dtype).expand(self.number * BLOCK)
        return places.scatter(0, self.place, values)


class MoE(Module):
    """Router, experts, and `shared` inner width of a SwiGLU block that sees every token (0: none).

    Shazeer et al., arXiv 1701.06538; shared experts: Dai et al., arXiv 2401.06066. Parameters as in
    Hugging Face's Mixtral and DeepSeek: `gate`, `experts`, `shared_experts`.
    """

    def __init__(
        self,
        hidden: int,
        inner: int,
        experts: int,
        top_k: int,
        shared: int = 0,
        shared_gate: bool = False,
        scoring: str = "softmax",
        normalize: bool = True,
        scale: float = 1.0,
        dtype: Any = float32,
    ) -> None:
        self.gate = Router(hidden, experts, top_k, scoring, normalize, scale, dtype)
        self.experts = Experts(hidden, inner, experts, dtype)
        self.shared_experts = SwiGLU(hidden, shared, dtype=dtype) if shared else None
        gated = shared and shared_gate
        self.shared_expert_gate = Linear(hidden, 1, False, dtype) if gated else None

    def forward(self, x: Tensor) -> Tensor:
        """(..., hidden) to the same shape."""
        tokens = x.reshape(-1, x.extents[-1])
        y = self.experts(tokens, self.gate(tokens))
        if self.shared_experts is not None:
            shared = self.shared_experts(tokens)
            if self.shared_expert_gate is not None:
                shared = shared * self.shared_expert_gate(tokens).sigmoid()
            y = y + shared
        return y.reshape(x.extents)  # type: ignore[no-any-return]
