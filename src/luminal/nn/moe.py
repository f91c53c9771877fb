"""Mixture of experts: a router sends each token through a few of many feed-forward blocks."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, NamedTuple

from luminal.base.dtypes import float32, int32
from luminal.base.errors import InputError
from luminal.base.number_kinds import is_count, is_number
from luminal.base.records import dataclass
from luminal.frontend.handle import work_dtype
from luminal.frontend.pointwise.binary import where
from luminal.frontend.tensor import Tensor
from luminal.nn import init
from luminal.nn.feed_forward import GatedActivation, GatedFeedForward, gated
from luminal.nn.init import Draw
from luminal.nn.linear import Linear, near_zero
from luminal.nn.module import Module


class Routes(NamedTuple):
    """The experts that each token goes to, (tokens, top_k) ints, and what each counts for."""

    experts: Tensor
    weights: Tensor


@dataclass(frozen=True, slots=True)
class Groups:
    """Experts lie in `count` groups side by side; a token's come from its `kept` best ones."""

    count: int
    kept: int


class Router(Module):
    """Scores of the experts, `x @ weight.T + bias`; the `top_k` greatest are taken.

    `scoring`: "softmax" over all experts, or "sigmoid" of each. `correction`: a bias of each expert
    that counts in the choice only (Wang et al., arXiv 2408.15664). `groups`: each is as good as its
    best expert, with a correction as its two best together (DeepSeek-AI, arXiv 2405.04434,
    2412.19437). `normalize`: the weights of a token sum to 1; then they are times `scale`.
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
        *,
        bias: bool = False,
        correction: bool = False,
        groups: Groups | None = None,
    ) -> None:
        for what, count in (("experts", experts), ("top_k", top_k)):
            if not is_count(count):
                raise InputError(f"MoE: {what} is {count!r}; give an int of at least 1")
        if not 1 <= top_k <= experts:
            raise InputError(f"MoE: top_k is {top_k}; it is 1..{experts}, the number of experts")
        if scoring not in ("softmax", "sigmoid"):
            raise InputError(f"MoE: scoring {scoring!r} is not known; use 'softmax' or 'sigmoid'")
        if groups is not None:
            _check_groups(groups, experts, top_k)
        draw = near_zero(hidden)
        self.weight = init.parameter((experts, hidden), draw, dtype)
        self.bias = init.parameter((experts,), draw, dtype) if bias else None
        held = init.parameter((experts,), init.zeros, float32) if correction else None
        self.e_score_correction_bias = held
        self.top_k, self.scoring, self.groups = top_k, scoring, groups
        self.normalize, self.scale = normalize, scale

    def forward(self, x: Tensor) -> Routes:
        """The routes of x (tokens, hidden)."""
        logits = x @ self.read(self.weight, x).mT  # never rounded: another expert is no small error
        logits = logits.cast(work_dtype(logits.dtype))  # scores of 16 bits would tie
        if self.bias is not None:
            logits = logits + self.read(self.bias, x)
        scores = logits.softmax(-1) if self.scoring == "softmax" else logits.sigmoid()
        # The correction decides who is chosen, not what the choice weighs: gradients do not see it.
        experts = self._choice(scores).topk(self.top_k, -1).indices
        weights = scores.gather(-1, experts)
        if self.normalize:
            weights = weights / weights.sum(-1, keepdim=True)
        return Routes(experts.cast(int32), weights * self.scale)

    def _choice(self, scores: Tensor) -> Tensor:
        """What experts are chosen by, (tokens, experts)."""
        if self.e_score_correction_bias is not None:
            scores = scores + self.read(self.e_score_correction_bias, scores)
        if self.groups is None:
            return scores
        count, kept = self.groups.count, self.groups.kept
        grouped = scores.unflatten(-1, (count, -1))
        # DeepSeek-V2 takes a group's best expert, V3 its two best.
        best = 1 if self.e_score_correction_bias is None else 2
        of_groups = grouped.topk(best, -1).values.sum(-1)
        best_groups = of_groups.topk(kept, -1).indices.unsqueeze(-1)  # (tokens, kept, 1)
        taken = (best_groups == scores.graph.arange(count)).any(1)
        return where(taken.unsqueeze(-1), grouped, -math.inf).flatten(-2)


def _check_groups(groups: Groups, experts: int, top_k: int) -> None:
    """Raises InputError for groups that experts do not divide into, or that hold too few."""
    if experts % groups.count or not 1 <= groups.kept <= groups.count:
        raise InputError(f"MoE: {groups} of {experts} experts; equal groups, 1..count of them kept")
    if groups.kept * (experts // groups.count) < top_k:
        raise InputError(f"MoE: {groups} of {experts} experts hold fewer than top_k, {top_k}")


# Gathering a matrix for each token would copy it, and a loop over experts would need counts that
# only data knows. Rows sorted by expert make runs, which a kernel walks with one strip of the
# matrix: thin mixtures take 0.93 to 1.0 of the speed of dense models.
class Experts(Module):
    """Gated blocks side by side: `gate_up_proj` (experts, 2 * inner, hidden) and `down_proj`.

    `activation` is of (gate, up), SwiGLU's by default. `bias`: of both products.
    """

    def __init__(
        self,
        hidden: int,
        inner: int,
        experts: int,
        dtype: Any = float32,
        *,
        activation: GatedActivation | None = None,
        bias: bool = False,
    ) -> None:
        self.count, self.activation = experts, activation or gated("silu")
        into: Draw = near_zero(hidden)
        out: Draw = near_zero(inner)
        self.gate_up_proj = init.parameter((experts, 2 * inner, hidden), into, dtype)
        self.down_proj = init.parameter((experts, hidden, inner), out, dtype)
        sizes = (2 * inner, into), (hidden, out)
        self.gate_up_proj_bias, self.down_proj_bias = (
            init.parameter((experts, size), draw, dtype) if bias else None for size, draw in sizes
        )

    def forward(self, x: Tensor, routes: Routes) -> Tensor:
        """x (tokens, hidden) to the weighted sum of each token's experts, same shape.

        Every slot, a token's place with one of its experts, is a row that is multiplied by matrices
        chosen by an integer. Slots sorted by expert make runs of rows with the same matrices, which
        a kernel reads once for all of a run (Gale et al., arXiv 2211.15841, call this dropless).
        """
        tokens, top_k = routes.experts.extents
        slots = tokens * top_k
        experts = routes.experts.reshape(-1)
        rows = x.unsqueeze(1).expand(tokens, top_k, x.extents[-1]).flatten(0, 1)
        # In a step of generation sorting would cost more than the matrices that it saves reading.
        if slots.is_const and slots.value <= self.count:  # few share an expert
            outputs = self._each(rows, experts)
        else:
            # Slots of one expert lie side by side, so that each matrix is read once.
            order = experts.argsort(stable=True)
            # The inverse permutation puts each slot's result back where its token expects it.
            place = order.scatter(0, order, x.graph.arange(slots, dtype=order.dtype))
            outputs = self._each(rows.take(order, 0), experts.take(order, 0)).take(place, 0)
        weighted = outputs.unflatten(0, (tokens, top_k)) * routes.weights.unsqueeze(-1)
        return weighted.sum(1).cast(x.dtype)

    def bounded(self, x: Tensor, routes: Routes, capacity: int) -> Tensor:
        """x (groups, tokens, hidden) to the weighted sum of each token's experts, same shape, where
        an expert takes `capacity` slots of each group and what comes after them counts as 0.

        `routes`: (groups, tokens, top_k) each. First choices come before second ones, and of these
        each in the order of tokens (Lepikhin et al., arXiv 2006.16668, algorithm 1).
        """
        groups, tokens, top_k = routes.experts.extents
        slots = tokens * top_k
        experts, weights = (one.mT.flatten(1) for one in routes)  # (groups, slots)
        order = experts.argsort(1, stable=True)
        numbers = x.graph.arange(slots, dtype=order.dtype).expand(groups, slots)
        place = order.scatter(1, order, numbers)  # the inverse
        every = x.graph.arange(self.count, dtype=experts.dtype).unsqueeze(-1)
        start = (experts.unsqueeze(1) < every).sum(-1)  # (groups, experts): where its slots begin
        # Beyond an expert's slots its room has those of the next, whose results nothing reads.
        held = start.unsqueeze(-1) + x.graph.arange(capacity, dtype=start.dtype)
        held = held.clip(max=slots - 1).flatten(1)
        read = _rows(x, order.gather(1, held) % tokens)
        rows = read.unflatten(1, (self.count, capacity)).transpose(0, 1).flatten(1, 2)
        outputs = self._each(rows, None)  # (experts, groups * capacity, hidden)
        outputs = outputs.unflatten(1, (groups, capacity)).transpose(0, 1).flatten(1, 2)
        nth = place - start.gather(1, experts)  # the slots of the same expert that come before
        results = _rows(outputs, experts * capacity + nth.clip(max=capacity - 1))
        is_taken = (nth < capacity).unsqueeze(-1)
        weighted = where(is_taken, results * weights.unsqueeze(-1), 0)
        return weighted.unflatten(1, (top_k, tokens)).sum(1).cast(x.dtype)

    def _each(self, x: Tensor, experts: Tensor | None) -> Tensor:
        """Rows (slots, hidden), each through its expert (slots,); or (experts, rows, hidden), those
        of each expert, with None.
        """
        gate, up = (
            self._product(x, into, experts) for into in self.read(self.gate_up_proj, x).chunk(2, 1)
        )
        if self.gate_up_proj_bias is not None:
            biases = _of_each(self.read(self.gate_up_proj_bias, x), experts).chunk(2, -1)
            gate, up = gate + biases[0], up + biases[1]
        outputs = self._product(self.activation(gate, up), self.read(self.down_proj, x), experts)
        if self.down_proj_bias is not None:
            outputs = outputs + _of_each(self.read(self.down_proj_bias, x), experts)
        return outputs

    def _product(self, x: Tensor, matrices: Tensor, experts: Tensor | None) -> Tensor:
        """x (slots, n) times one of `matrices` (experts, m, n) each: (slots, m); with None rows of
        each expert (experts, rows, n) times its matrix.
        """
        if experts is None:
            product: Tensor = self.rounded(x) @ self.rounded(matrices).mT
            return product
        # A take of whole matrices is never stored: the kernel reads the chosen one in place.
        rows, taken = self.rounded(x.unsqueeze(1)), self.rounded(matrices.take(experts, 0))
        return (rows @ taken.mT).squeeze(1)


def _of_each(biases: Tensor, experts: Tensor | None) -> Tensor:
    """The biases (experts, n) of slots, (slots, n); with None of the rows of each expert."""
    return biases.unsqueeze(1) if experts is None else biases.take(experts, 0)


def _rows(x: Tensor, numbers: Tensor) -> Tensor:
    """The rows of x (groups, n, width) that each group's numbers (groups, m) name."""
    groups, count = numbers.extents
    return x.gather(1, numbers.unsqueeze(-1).expand(groups, count, x.extents[-1]))


class MoE(Module):
    """Router, experts, and `shared` inner width of a block that sees every token (0: none).

    Shazeer et al., arXiv 1701.06538; shared experts: Dai et al., arXiv 2401.06066. Parameters as in
    Hugging Face's Mixtral and DeepSeek: `gate`, `experts`, `shared_experts`. `router`: in place of
    the Router that `top_k`, `scoring`, `normalize` and `scale` make. `activation`: of all experts,
    SwiGLU's by default; `bias`: see `Experts`. `weighted_inputs`: what an expert reads is weighted,
    not what it gives.

    Every slot (a token's place with an expert) is computed, unless `capacity` is given: then an
    expert takes so many of a group, the tokens of one row, x[..., :, :]. What comes after them,
    second choices after first ones and each in the order of tokens, is dropped: it adds nothing,
    and the token keeps its other experts' results. `capacity_factor`: the capacity in terms of an
    even share, ceil(capacity_factor * top_k * tokens / experts). Fedus et al., arXiv 2101.03961;
    Lepikhin et al., arXiv 2006.16668.
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
        *,
        router: Module | None = None,
        activation: GatedActivation | None = None,
        bias: bool = False,
        weighted_inputs: bool = False,
        capacity: int | None = None,
        capacity_factor: float | None = None,
    ) -> None:
        _check_capacity(capacity, capacity_factor)
        activation = activation or gated("silu")
        self.gate = router or Router(hidden, experts, top_k, scoring, normalize, scale, dtype)
        self.experts = Experts(hidden, inner, experts, dtype, activation=activation, bias=bias)
        block = GatedFeedForward(hidden, shared, activation, dtype=dtype) if shared else None
        self.shared_experts = block
        both = shared and shared_gate
        self.shared_expert_gate = Linear(hidden, 1, False, dtype) if both else None
        self.weighted_inputs = weighted_inputs
        self.capacity, self.capacity_factor = capacity, capacity_factor

    def forward(self, x: Tensor) -> Tensor:
        """(..., hidden) to the same shape; with a capacity (..., tokens, hidden), the tokens of a
        row a literal number.
        """
        tokens = x.reshape(-1, x.extents[-1])
        routes = self.gate(tokens)
        if self.capacity is None and self.capacity_factor is None:
            y = self._routed(tokens, routes)
        else:
            y = self._bounded(x, routes).flatten(0, 1)
        if self.shared_experts is not None:
            shared = self.shared_experts(tokens)
            if self.shared_expert_gate is not None:
                shared = shared * self.shared_expert_gate(tokens).sigmoid()
            y = y + shared
        return y.reshape(x.extents)

    def _bounded(self, x: Tensor, routes: Routes) -> Tensor:
        """The sum of each token's experts that had room for it, (groups, tokens, hidden)."""
        if len(x.extents) < 2 or not x.extents[-2].is_const:
            raise InputError(
                f"MoE: capacity: x is {x.extents}; an expert takes so many of the tokens of a row, "
                "(..., tokens, hidden), whose number is to be literal: pad them to one"
            )
        tokens = x.extents[-2].value
        x = x.unsqueeze(0).flatten(0, -3)
        routes = Routes(*(one.unflatten(0, (x.extents[0], tokens)) for one in routes))
        top_k = routes.experts.extents[-1].value
        capacity = self.capacity
        if capacity is None:
            assert self.capacity_factor is not None
            capacity = math.ceil(self.capacity_factor * top_k * tokens / self.experts.count)
        capacity = min(capacity, tokens)  # a token goes to an expert once
        if not self.weighted_inputs:
            return self.experts.bounded(x, routes, capacity)
        # A token for each slot, first choices first.
        experts, weights = (one.mT for one in routes)
        read = (x.unsqueeze(1) * weights.unsqueeze(-1)).flatten(1, 2)
        experts = experts.flatten(1).unsqueeze(-1)
        alone = Routes(experts, weights.graph.ones(experts.extents))
        return self.experts.bounded(read, alone, capacity).unflatten(1, (top_k, tokens)).sum(1)

    def _routed(self, tokens: Tensor, routes: Routes) -> Tensor:
        """The sum of each token's experts."""
        if not self.weighted_inputs:
            whole: Tensor = self.experts(tokens, routes)
            return whole
        weights = routes.weights
        read = (tokens.unsqueeze(1) * weights.unsqueeze(-1)).flatten(0, 1)  # a token for each slot
        # Weights of 1, as what the experts read is weighted by now.
        alone = Routes(
            routes.experts.reshape(-1, 1), weights.graph.ones(weights.extents).reshape(-1, 1)
        )
        outputs: Tensor = self.experts(read, alone)
        return outputs.unflatten(0, weights.extents).sum(1)


def _check_capacity(capacity: int | None, factor: float | None) -> None:
    """Raises InputError for a capacity that leaves no room, or that is given twice."""
    if capacity is not None and factor is not None:
        raise InputError(
            f"MoE: capacity is {capacity} and capacity_factor {factor}; give one of them"
        )
    if capacity is not None and not is_count(capacity):
        raise InputError(
            f"MoE: capacity is {capacity!r}; it is the slots that an expert takes of each row of "
            "tokens: give an int of at least 1, or None to drop none"
        )
    if factor is not None and not (is_number(factor, Real) and 0 < factor < math.inf):
        raise InputError(
            f"MoE: capacity_factor is {factor!r}; an expert's room in terms of an even share is "
            "more than 0: give 1.25, say, or None to drop none"
        )
