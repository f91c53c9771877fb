"""A step whose bits do not depend on the number of ranks: the batch in leaves, summed as a tree.

A batch is cut into so many equal leaves. One program, the same on any number of ranks, computes the
gradients of a leaf; they are added as one balanced binary tree over all leaves, first those of a
rank, then over ranks. Every sum has the same two operands whoever computes it, so Parameters,
losses and norms have the same bits on 1, 2, 4 ... ranks, and a run goes on with another number of
them. Li et al., EasyScale, SC 2023, has the idea.

All additions are NumPy's, also those between ranks: an addition of a compiled program might flush
what is denormal. Gradients are whole on every rank, as many as the levels of the tree and two more.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from luminal.base.dtypes import int64
from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.distribute.held import whole_values
from luminal.frontend.handle import work_dtype
from luminal.frontend.random import keyed as random
from luminal.frontend.random.keyed import keyed
from luminal.frontend.tensor import Tensor
from luminal.hlir.graph import Assign
from luminal.loaders.mapped import Array
from luminal.memory.parameter import Parameter
from luminal.optim.clip import grad_norm, scaled_to_norm
from luminal.runtime.executable import Executable
from luminal.session.graph import Graph, compile
from luminal.training.amp import GradScaler
from luminal.training.form import Batch, form_of, split
from luminal.training.program import (
    Recipe,
    in_mode,
    inputs_of,
    named,
    precision,
    rates_as_inputs,
    types_of,
)
from luminal.training.ranks import Ranks


def check_leaves(leaves: int, ranks: Ranks, model_is_cut_elsewhere: bool) -> None:
    """Raises InputError for leaves whose tree would depend on the number of ranks."""
    if leaves & (leaves - 1):
        raise InputError(f"fit: leaves={leaves}; it is a power of two, so that trees of ranks meet")
    if ranks.mesh is not None and ranks.mesh.devices:
        raise InputError(
            "fit: leaves= is for ranks that are processes, and those of this mesh are devices of "
            "one; leave it out, or start ranks by `luminal launch`"
        )
    if leaves % ranks.parts:
        raise InputError(
            f"fit: leaves={leaves} do not divide by {ranks.parts} ranks; give at least one a rank"
        )
    if model_is_cut_elsewhere or ranks.parts != ranks.size:
        raise InputError(
            "fit: leaves= is for ranks that all have rows of their own; the plans data, zero1 and "
            "zero3 go with it, and a mesh of the axis 'data' alone"
        )


@dataclass(slots=True)
class _Layout:
    """Where the gradient of each Parameter lies in one vector, with the loss in front."""

    parameters: list[Parameter]

    def views(self, vector: Array) -> dict[str, Array]:
        """The parts of such a vector: outputs of the leaf, inputs of the update."""
        views, at = {"loss": vector[:1].reshape(())}, 1
        for k, p in enumerate(self.parameters):
            views[f"gradient.{k}"] = vector[at : at + p.numel()].reshape(p.shape)
            at += p.numel()
        return views

    @property
    def length(self) -> int:
        """The elements of such a vector."""
        return 1 + sum(p.numel() for p in self.parameters)


@dataclass(slots=True)
class _Programs:
    """The programs of a step for leaves of one shape."""

    leaf: Executable
    norm: Executable | None
    layout: _Layout


class LeafSteps:
    """Steps of leaves; programs are compiled at the first batch of each shape."""

    def __init__(self, recipe: Recipe, leaves: int, scaler: GradScaler | None) -> None:
        self._recipe, self._leaves, self._scaler = recipe, leaves, scaler
        self._programs: dict[Any, _Programs] = {}
        self._updates: dict[tuple[Parameter, ...], Executable] = {}

    def run(self, batch: Batch, number: int, rates: Sequence[float]) -> dict[str, Array]:
        """Step `number` on this rank's rows; the loss and the norm of the whole batch."""
        ranks = self._recipe.ranks
        count = self._leaves // ranks.parts
        leaves = split(batch, count)
        with self._whole():
            programs = self._of(leaves[0])
            layout = programs.layout
            total = TreeSum()
            for k, leaf in enumerate(leaves):
                vector = np.empty(layout.length, np.float32)
                place = np.array(number), np.array(ranks.place * count + k)
                inputs = {**named(leaf), "step": place[0], "leaf": place[1]}
                gradients = programs.leaf(
                    {name: inputs[name] for name in programs.leaf.input_names}
                )
                for name, view in layout.views(vector).items():
                    view[...] = gradients[name]
                total.add(vector)
            views = layout.views(over_ranks(total.value, ranks))
            results = {"loss": views.pop("loss")}
            if programs.norm is not None:
                results["grad_norm"] = np.array(programs.norm(views)["grad_norm"])
                views["grad_norm"] = results["grad_norm"]
        named_rates = {f"lr.{k}": np.array(rate, np.float32) for k, rate in enumerate(rates)}
        inputs = {**views, **named_rates}
        update = self._update_of(layout)
        update({name: inputs[name] for name in update.input_names})
        return results

    def _whole(self) -> AbstractContextManager[Any]:
        """Inside the block Parameters that are cut are whole: a leaf's program is of one rank."""
        model = self._recipe.model
        return whole_values([*model.parameters()])

    def _of(self, leaf: Batch) -> _Programs:
        key = types_of(leaf)
        if key not in self._programs:
            self._programs[key] = self._compiled(leaf)
        return self._programs[key]

    def _update_of(self, layout: _Layout) -> Executable:
        key = tuple(layout.parameters)
        if key not in self._updates:
            self._updates[key] = self._update(layout)
        return self._updates[key]

    def _compiled(self, leaf: Batch) -> _Programs:
        recipe = self._recipe
        graph = Graph("gradients of a leaf")
        tensors = inputs_of(graph, leaf)
        number, place = (graph.tensor((), int64, name) for name in ("step", "leaf"))
        key = random.fold_in(random.fold_in(random.key(graph, recipe.seed), number), place)
        with in_mode(recipe.model, training=True), keyed(key), precision(recipe):
            loss = form_of(leaf).loss(recipe.model, recipe.loss_fn, tensors) / self._leaves
        scaled = loss if self._scaler is None else self._scaler.scale(loss)
        gradients = recipe.optimizer.gradients(scaled)
        layout = _Layout([*gradients])
        for k, (p, gradient) in enumerate(gradients.items()):
            gradient.cast(work_dtype(p.dtype)).output(f"gradient.{k}")
        loss.output("loss")
        assigned = [sink.state for sink in graph.sinks if isinstance(sink, Assign)]
        if assigned:
            raise InputError(
                f"fit: leaves={self._leaves}: the model assigns {assigned[0].name} (running "
                "statistics), which would be those of a leaf; use a norm of rows, or leave leaves "
                "out"
            )
        if any(work_dtype(p.dtype).numpy != np.float32 for p in gradients):
            raise InputError("fit: leaves= adds gradients in float32; a Parameter is float64")
        leaf_program = compile(graph, recipe.backend, recipe.mode, memory_limit=recipe.memory_limit)
        norm = None if recipe.clip_norm is None else self._norm(layout)
        return _Programs(leaf_program, norm, layout)

    def _read(self, graph: Graph, layout: _Layout) -> dict[Parameter, Tensor]:
        """The gradients as inputs, scaled as they were computed."""
        return {
            p: graph.tensor(p.shape, "float32", f"gradient.{k}")
            for k, p in enumerate(layout.parameters)
        }

    # By itself and on whole gradients: next to moments that are cut its sums would be cut too, and
    # have another order on each number of ranks.
    def _norm(self, layout: _Layout) -> Executable:
        graph = Graph("norm of the gradients")
        gradients = self._read(graph, layout)
        if self._scaler is not None:
            gradients, _ = self._scaler.unscale(gradients)
        grad_norm(gradients).output("grad_norm")
        return compile(graph, self._recipe.backend, self._recipe.mode)

    def _update(self, layout: _Layout) -> Executable:
        recipe, scaler = self._recipe, self._scaler
        graph = Graph("update")
        gradients, is_finite = self._read(graph, layout), None
        if scaler is not None:
            gradients, is_finite = scaler.unscale(gradients)
            scaler.update(is_finite)
        if recipe.clip_norm is not None:
            norm = graph.tensor((), "float32", "grad_norm")
            gradients = scaled_to_norm(gradients, norm, recipe.clip_norm)
        with rates_as_inputs(recipe.optimizer, graph):
            recipe.optimizer.apply(gradients, when=is_finite)
        return compile(graph, recipe.backend, recipe.mode, mesh=recipe.ranks.mesh)


class TreeSum:
    """Vectors added one after another as a balanced binary tree, of as few as can be held."""

    def __init__(self) -> None:
        self._count = 0
        self._partial: list[Array] = []  # of 2**k vectors each, the largest first

    def add(self, vector: Array) -> None:
        """Takes the next vector, whose memory is used."""
        number = self._count
        while number & 1:  # two sums of as many vectors become one
            vector = np.add(self._partial.pop(), vector, out=vector)
            number >>= 1
        self._partial.append(vector)
        self._count += 1

    @property
    def value(self) -> Array:
        """The sum, of a power of two of vectors."""
        (total,) = self._partial
        return total


def over_ranks(vector: Array, ranks: Ranks) -> Array:
    """The sum of all ranks' vectors, as a tree in the order of their places: each rank adds a piece
    of all, and all gather the pieces.
    """
    engine = ranks.together
    if engine is None:
        return vector
    length = -(-vector.size // engine.size)
    padded = np.zeros((engine.size, length), vector.dtype)
    padded.reshape(-1)[: vector.size] = vector
    pieces = np.empty_like(padded)
    engine.run(
        "all_to_all",
        padded.reshape(-1),
        pieces.reshape(-1),
        label="gradients of leaves",
        first=True,
    )
    total = TreeSum()
    for piece in pieces:
        total.add(piece.copy())
    engine.run("all_gather", total.value, padded.reshape(-1), label="sums of leaves")
    return padded.reshape(-1)[: vector.size]
