"""Steps of large models predicted: parts, plans, schedules and memory, beside what programs do."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from luminal.base.errors import InputError
from luminal.cli.main import app
from luminal.distribute.mesh import Mesh
from luminal.distribute.pipeline.schedule import schedule_of
from luminal.distribute.pipeline.simulate import simulated
from luminal.distribute.pipeline.steps import Plan as Steps
from luminal.models.decoder import Decoder
from luminal.models.scaling import predict
from luminal.models.scaling.parts import Parts, Setting
from luminal.models.scaling.plan import Plan, read_plan
from luminal.models.scaling.predict import Predictor
from luminal.models.scaling.search import search
from luminal.models.scaling.shapes import CHIPS, MODELS, Cluster, Reached, shape_of
from luminal.models.scaling.table import binds

H100 = Cluster.of(CHIPS["h100"], Reached())


@functools.cache
def predictor(model: str = "7b", batch: int = 64, length: int = 2048) -> Predictor:
    """A model whose parts are priced once for all tests of a process."""
    return Predictor(Parts.of(Setting(shape_of(model), batch, length)), H100)


def test_models_have_as_many_parameters_as_is_said_of_them() -> None:
    billions = {
        "7b": 6.7,
        "70b": 70.6,
        "405b": 405.9,
        "400b-moe": 396,
        "gpt-22b": 22,
        "gpt-175b": 175,
    }
    for name, count in billions.items():
        held = sum(p.numel() for p in Decoder(shape_of(name)).parameters())
        assert held / 1e9 == pytest.approx(count, rel=0.01), name  # their digits
    assert billions.keys() <= MODELS.keys()


def test_a_step_has_the_operations_that_are_counted_by_hand() -> None:
    # Narayanan et al., SC 2021: a layer of width h, forward, has 24 B s h^2 + 4 B s^2 h, logits
    # 2 B s h V; backward twice that.
    parts, batch, s, h, layers, words = predictor("gpt-22b").parts, 64, 2048, 6144, 48, 51200
    forward = layers * (24 * batch * s * h**2 + 4 * batch * s**2 * h) + 2 * batch * s * h * words
    assert parts.flops == pytest.approx(3 * forward, rel=1e-4)  # norms are products, too


def test_what_is_computed_again_is_not_kept_and_takes_a_forward_pass() -> None:
    layer, p = predictor().parts.each[1], predictor()
    plan = Plan()
    plain, again = p.passes(layer, plan, False), p.passes(layer, plan, True)
    width, places = 4096, 2048
    assert again.saved == 4 * width * places  # the layer's input
    assert plain.saved > 8 * again.saved
    assert plain.forward.seconds == again.forward.seconds
    more = again.back.kernels - plain.back.kernels
    # All but the last product, whose result no gradient reads.
    assert 0.6 * plain.forward.kernels < more < plain.forward.kernels


def test_a_plan_that_computes_again_needs_less_and_takes_longer() -> None:
    p = predictor("gpt-22b")
    plain, again = (p.predict(Plan(data=8, recompute=flag)) for flag in (False, True))
    assert again.memory.activations < plain.memory.activations / 3
    # Gradients that are sent hide behind what is computed again.
    plain_seconds, again_seconds = (x.seconds - x.times.gradients for x in (plain, again))
    assert again_seconds == pytest.approx(plain_seconds + again.times.again, rel=1e-6)  # sums
    assert again.times.again > 0.2 * again.times.products
    assert again.utilization < plain.utilization


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "zero_bubble", "gpipe"])
def test_many_microbatches_take_what_a_whole_simulation_says(schedule: str) -> None:
    ranks, count = 4, 48
    stages = ranks * (2 if schedule == "interleaved" else 1)
    times = tuple((1.0 + 0.1 * (k % 3), 2.0 - 0.1 * (k % 2)) for k in range(stages))
    seconds, live = predict.span(schedule, ranks, count, times, 0.05)
    whole = simulated(
        Steps.of(schedule_of(schedule, ranks, stages, count)),
        lambda p: {"F": times[p.stage][0], "U": 0.0}.get(p.kind, times[p.stage][1] / 2),
        0.05,
    )
    assert seconds == pytest.approx(whole.seconds, rel=0.002)  # a round is not quite periodic
    assert live == whole.at_most or schedule == "gpipe"


def test_a_pipeline_idles_as_the_formula_says_and_its_parts_make_up_the_step() -> None:
    p = predictor(batch=256)
    for chunks in (1, 2):
        schedule = "1f1b" if chunks == 1 else "interleaved"
        step = p.predict(Plan(pipe=4, data=2, rows=2, schedule=schedule, chunks=chunks))
        count = 256 // (2 * 2)
        busy = step.seconds - step.times.idle - step.times.gradients - step.times.update
        share = step.times.idle / busy
        # Ends make stages unlike, and messages take a little.
        assert share == pytest.approx(3 / (chunks * count), abs=0.06)
        assert share > 2.5 / (chunks * count)
    parts = step.times
    assert math.isclose(parts.all, step.seconds)
    assert all(getattr(parts, name) >= 0 for name in parts.__slots__), parts


def test_a_stage_keeps_as_many_microbatches_as_come_before_the_first_is_done() -> None:
    p, plan = predictor(), Plan(pipe=4, data=1, rows=1)
    one, four = p.predict(replace(plan, pipe=1)), p.predict(plan)
    layer = p.passes(p.parts.each[1], plan, False)
    assert four.memory.activations == pytest.approx(4 * 8 * layer.saved, rel=0.25)  # and one's peak
    assert four.memory.weights == pytest.approx(one.memory.weights / 4, rel=0.15)  # and an end's


def test_moments_weights_and_gradients_are_cut_as_the_plan_says() -> None:
    p = predictor()
    count = sum(one.numel() for one in Decoder(shape_of("7b")).parameters())
    kinds = {z: p.predict(Plan(data=8, zero=z)).memory for z in ("data", "zero1", "zero3")}
    assert kinds["data"].weights == kinds["data"].gradients == kinds["data"].states / 2 == 4 * count
    assert (kinds["zero1"].weights, kinds["zero1"].states) == (4 * count, count)
    assert (kinds["zero3"].weights, kinds["zero3"].states) == (count / 2, count)
    tensor = p.predict(Plan(tensor=8)).memory
    assert tensor.weights == pytest.approx(4 * count / 8, rel=0.001)  # norms are whole


def test_experts_go_to_their_ranks_and_all_to_all_carries_as_many_rows_as_there_is_room_for() -> (
    None
):
    p = predictor("400b-moe")
    layer = p.parts.each[1]
    whole, cut = (p.held(layer, Plan(expert=n)) for n in (1, 8))
    assert cut.experts == whole.dense + whole.experts - cut.dense - 7 * cut.experts
    passes = p.passes(layer, Plan(expert=8), False)
    places, chosen, width = 2048, 4, 6144
    # A rank has room for 1.25 of its tokens' choices and sends 7 of 8 there and back, a number in 2
    # or 4 bytes.
    rows = math.ceil(1.25 * chosen * places / 64) * 64 * 7 / 8 * width
    assert 2 * 2 * rows <= passes.forward.sent <= 2 * 4 * rows


def test_groups_in_several_nodes_leave_them_by_all_of_their_wires() -> None:
    links = H100.links(Mesh((2, 16, 2), ("pipe", "data", "tensor")))
    assert links["tensor"] == H100.near
    assert links["data"].bandwidth == 4 * H100.far.bandwidth  # every second card of a node
    assert links["pipe"].bandwidth == links["pipe"].apart == H100.far.bandwidth
    assert H100.links(Mesh((16,), ("data",)))["data"].bandwidth == 8 * H100.far.bandwidth


@pytest.mark.long
def test_the_best_plan_is_one_that_no_other_beats() -> None:
    p = predictor("gpt-22b", 32)
    found = search(p, 8)
    best = found.best
    assert best.fits
    assert binds(found, H100.machine.memory)
    others = [
        Plan(data=8, zero="zero3"), Plan(data=8, zero="zero3", recompute=True),
        Plan(tensor=8), Plan(pipe=4, data=2), Plan(pipe=8), Plan(data=4, tensor=2, zero="zero1"),
        Plan(pipe=2, data=4, zero="zero1", recompute=True), Plan(data=8, zero="zero3", rows=2),
    ]  # fmt: skip
    for plan in others:
        prediction = p.predict(plan)
        assert not prediction.fits or prediction.seconds >= best.seconds, plan


@pytest.mark.long
def test_what_fits_nowhere_is_said_and_how_much_it_lacks() -> None:
    p = predictor("70b", 64, 2048)
    found = search(p, 8)
    assert not found.best.fits
    assert found.best.plan.recompute
    assert binds(found, H100.machine.memory).startswith("memory: the least is ")


def test_a_plan_is_text_and_the_command_takes_it() -> None:
    plan = Plan(4, 2, 1, 1, 8, "zero1", 2, True, "interleaved", 2)
    assert read_plan(plan.text()) == plan
    assert read_plan("mesh data=8; plan zero3") == Plan(data=8, zero="zero3")
    for text, words in (
        ("mesh data=8 foo=2", "'foo=2' of the mesh; give data=8"),
        ("mesh data=8; plan zero2", "plan 'zero2'; it is one of data, zero1, zero3"),
        ("rows x", "rows 'x'; give an int"), ("bla 3", "the line 'bla 3'"),
        ("mesh data=0", "data is 0; give an int of at least 1"),
        ("recompute all", "recompute 'all'; it is 'layers'"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=words):
            read_plan(text)


def test_the_command_says_what_each_number_of_devices_takes() -> None:
    given = ["simulate", "7b", "--batch", "16", "--length", "512"]
    result = CliRunner().invoke(app, [*given, "--devices", "8", "--json"])
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.output)
    assert row["fits"]
    assert row["mesh"].keys() >= {"data"}
    assert sum(row["times"].values()) - row["times"]["hidden"] == pytest.approx(row["seconds"])
    for wrong, words in (
        (["--devices", "x"], "--devices 'x'; give 64"), (["--near", "1"], "the link '1'"),
        (["--devices", "37"], "no plan for 37 ranks divides a batch of 16"),
        (["--chip", "h10"], "the chips are h100, a100"), (["--widest", "3"], "4 bytes, or 2"),
        (["--plan", "mesh data=3"], "16 windows does not divide"),
    ):  # fmt: skip
        failed = CliRunner().invoke(app, [*given, *wrong])
        assert isinstance(failed.exception, InputError)
        assert words in str(failed.exception)
    failed = CliRunner().invoke(app, ["simulate", "7bb"])
    assert "'7bb' is no model (7b, 70b" in str(failed.exception)
