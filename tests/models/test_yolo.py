"""YOLO: boxes and scores as in plain PyTorch, the best boxes as plain greedy ones."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import InputError, LoadError, ShapeError
from luminal.cli.main import main
from luminal.loaders.fields import Fields
from luminal.loaders.image import read_image
from luminal.models.boxes import box_iou, nms
from luminal.models.families import family_of, read_model
from tests.close import close_each
from tests.models.small_yolo import KINDS, LABELS, SIZE, SMALL, saved, torch, write
from tests.models.yolo_checks import check_outputs

Image = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize("kind", ["v11"])
def test_outputs_are_those_of_torch(kind: str, tmp_path: Path) -> None:
    check_outputs(kind, tmp_path, "reference")


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_outputs(kind: str, tmp_path: Path) -> None:
    check_outputs(kind, tmp_path, "cpu")


def greedy(boxes: Any, scores: Any, threshold: float) -> Any:
    """Which boxes are kept, one after the other."""
    order = np.argsort(-np.where(np.isnan(scores), np.inf, scores), kind="stable")
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept: list[int] = []
    for n in order:
        low, high = np.maximum(boxes[kept], boxes[n]), np.minimum(boxes[kept], boxes[n])
        shared = np.maximum(high[:, 2:] - low[:, :2], 0).prod(1)
        with np.errstate(invalid="ignore"):
            overlaps = shared / (area[kept] + area[n] - shared)
        if not (overlaps > np.float32(threshold)).any():
            kept.append(n)
    return np.isin(np.arange(len(scores)), kept)


def boxes_and_scores(seed: int) -> tuple[Any, Any]:
    """Up to 40 boxes; by turns on a grid, where they touch, with equal scores, with NaN."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 41)) * (seed % 20 != 0)
    corner, sizes = rng.uniform(0, 60, (count, 2)), rng.uniform(1, 40, (count, 2))
    scores = rng.uniform(0, 1, count)
    if seed % 3 == 1:
        corner, sizes = np.round(corner / 10) * 10, np.round(sizes / 10) * 10
    if seed % 4 == 1:
        scores = np.round(scores * 4) / 4
    if seed % 5 == 1:
        scores[rng.uniform(0, 1, count) < 0.2] = np.nan
    return np.concatenate((corner, corner + sizes), 1).astype(np.float32), scores.astype(np.float32)


def test_boxes_of_different_classes_do_not_compete() -> None:
    graph = lm.Graph()
    boxes, scores = (graph.constant(each) for each in boxes_and_scores(2))
    classes = np.arange(len(boxes_and_scores(2)[1])) % 3
    nms(boxes, scores, 0.3, graph.constant(classes)).output("kept")
    found = graph.compile("reference")()["kept"]
    for number in range(3):
        own = classes == number
        each, score = (x[own] for x in boxes_and_scores(2))
        np.testing.assert_array_equal(found[own], greedy(each, score, 0.3))
    assert found.sum() > greedy(*boxes_and_scores(2), 0.3).sum()


def suppressor(threshold: float, backend: str) -> Any:
    graph = lm.Graph()
    n = graph.dim("n", 0, 64)
    boxes = graph.tensor((n, 4), lm.float32, "boxes")
    scores = graph.tensor((n,), lm.float32, "scores")
    nms(boxes, scores, threshold).output("kept")
    return graph.compile(backend)


def test_the_best_boxes_of_200_sets() -> None:
    threshold = 0.45
    exe = suppressor(threshold, "cpu")
    for seed in range(200):
        boxes, scores = boxes_and_scores(seed)
        found = exe(boxes=boxes, scores=scores)["kept"]
        np.testing.assert_array_equal(found, greedy(boxes, scores, threshold), f"set {seed}")


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_the_best_boxes_are_those_of_onnx_runtime(backend: str) -> None:
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    info = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("NonMaxSuppression", ["b", "s", "most", "iou"], ["out"])
    constants = [
        onnx.numpy_helper.from_array(np.array([1000], np.int64), "most"),
        onnx.numpy_helper.from_array(np.array([0.5], np.float32), "iou"),
    ]
    inputs = [info("b", 1, [1, "n", 4]), info("s", 1, [1, 1, "n"])]
    graph = onnx.helper.make_graph([node], "nms", inputs, [info("out", 7, ["m", 3])], constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)])
    model.ir_version = 10
    session = runtime.InferenceSession(model.SerializeToString())
    exe = suppressor(0.5, backend)
    for seed in (2, 3, 5, 8, 12, 14):  # without NaN or equal scores, which it leaves open
        boxes, scores = boxes_and_scores(seed)
        (wanted,) = session.run(None, {"b": boxes[None], "s": scores[None, None]})
        found = exe(boxes=boxes, scores=scores)["kept"]
        np.testing.assert_array_equal(np.flatnonzero(found), np.sort(wanted[:, 2]))


def test_overlaps() -> None:
    graph = lm.Graph()
    a = graph.constant(np.array([[0, 0, 2, 2], [5, 5, 6, 6]], np.float32))
    box_iou(a, graph.constant(np.array([[1, 0, 3, 2]], np.float32))).output("iou")
    close_each(graph.compile("reference")()["iou"], [[1 / 3], [0]])
    with pytest.raises(ShapeError, match="the last dim must be 4"):
        box_iou(a[:, :3], a)
    with pytest.raises(ShapeError, match=r"nms: boxes .*; they are \(n, 4\) and \(n,\)"):
        nms(a, a, 0.5)


def picture(folder: Path) -> Path:
    small = np.random.default_rng(0).integers(0, 256, (5, 6, 3), np.uint8)
    Image.fromarray(small).resize((80, 50), 3).save(folder / "a.png")
    return folder / "a.png"


@pytest.mark.long
def test_things_in_an_image(tmp_path: Path) -> None:
    theirs = saved("v11", tmp_path)
    loaded = lm.models.load(tmp_path, backend="reference")
    path = picture(tmp_path)
    grey = np.full((3, SIZE, SIZE), 114 / 255, np.float32)
    resized = read_image(path).resize((64, 40), Image.Resampling.BILINEAR)
    grey[:, 12:52] = np.asarray(resized).transpose(2, 0, 1) / 255
    with torch.no_grad():
        boxes, scores = (each[0].numpy() for each in theirs(torch.from_numpy(grey[None])))
    best, label = scores.max(1), scores.argmax(1)
    kept = np.zeros(len(best), bool)
    for number in range(len(LABELS)):
        own = np.flatnonzero(label == number)
        kept[own[greedy(boxes[own], best[own], 0.4)]] = True
    limit = float(np.median(best[kept]))
    order = [n for n in np.argsort(-best) if kept[n] and best[n] >= limit]
    before = lm.compile_count()
    found = loaded.detect(path, limit - 1e-5, 0.4)
    assert len(found) == len(order) >= 3
    for each, n in zip(found, order, strict=True):
        assert each.label == LABELS[str(label[n])]
        # a sigmoid behind some thirty layers in float32
        assert each.score == pytest.approx(best[n], rel=1e-4)
        wanted = np.clip((boxes[n] - [0, 12, 0, 12]) / 0.8, 0, [80, 50, 80, 50])
        # boxes have coordinates up to 80 in float32, behind some thirty layers: 2e-4 of them
        np.testing.assert_allclose(each.box, wanted, atol=0.02)
    assert loaded.detect(path, 1.0, 0.4) == []
    assert lm.compile_count() - before == 1
    with pytest.raises(InputError, match=r"confidence is 2; it must be from 0 to 1"):
        loaded.detect(path, 2)
    with pytest.raises(InputError, match=r"confidence is 'x'; it must be from 0 to 1"):
        loaded.detect(path, "x")


@pytest.mark.long
def test_norms_that_are_part_of_convolutions(tmp_path: Path) -> None:
    saved("v11", tmp_path)
    exact = lm.models.load(tmp_path, backend="reference")
    plain = exact.model.state_dict()
    folded = {
        name: torch.from_numpy(np.array(value))
        for name, value in plain.items()
        if ".norm." not in name
    }
    for name in [name for name in plain if name.endswith("norm.weight")]:
        path = name.removesuffix("norm.weight")
        mean, var, bias = (
            plain[f"{path}norm.{x}"] for x in ("running_mean", "running_var", "bias")
        )
        factor = torch.from_numpy(plain[name] / np.sqrt(var + 1e-3))
        folded[f"{path}conv.weight"] *= factor.reshape(-1, 1, 1, 1)
        folded[f"{path}conv.bias"] = (
            torch.from_numpy(np.array(bias)) - torch.from_numpy(mean) * factor
        )
    write(tmp_path, folded, architectures=["YOLO11"], **SMALL)
    found = lm.models.load(tmp_path, backend="reference")
    path = picture(tmp_path)
    wanted = exact.detect(path, 0.3, 0.4)
    assert wanted
    for one, other in zip(found.detect(path, 0.3, 0.4), wanted, strict=True):
        # a sigmoid behind some thirty layers in float32
        assert one.score == pytest.approx(other.score, rel=1e-4)
        # boxes have coordinates up to 80 in float32, behind some thirty layers: 2e-4 of them
        assert one.box == pytest.approx(other.box, abs=0.02)


def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> Any:
    """The exit code of `luminal detect`."""
    monkeypatch.setattr("sys.argv", ["luminal", "detect", *map(str, words)])
    with pytest.raises(SystemExit) as done:
        main()
    return done.value.code


@pytest.mark.long
def test_the_command_detect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved("v11", tmp_path)
    path = picture(tmp_path)
    wanted = lm.models.load(tmp_path, backend="reference").detect(path, 0.3, 0.4)
    words = path, "--model", tmp_path, "--backend", "reference", "--confidence", 0.3, "--iou", 0.4
    run(monkeypatch, *words, "-o", tmp_path / "b.png")
    assert capsys.readouterr().out.splitlines() == [str(each) for each in wanted]
    before, after = (np.asarray(read_image(tmp_path / name)) for name in ("a.png", "b.png"))
    assert after.shape == before.shape
    assert (after != before).any()
    capsys.readouterr()
    assert "b.nothing: no image that" in run(monkeypatch, *words, "-o", tmp_path / "b.nothing")
    assert capsys.readouterr().out == ""


def exported(folder: Path, count: int = len(LABELS)) -> Path:
    """The same model as Ultralytics exports it."""
    onnx = pytest.importorskip("onnx")
    from luminal.onnx import export

    graph = lm.Graph()
    boxes, scores = read_model(folder)(graph.tensor((1, 3, SIZE, SIZE), lm.float32, "images"))
    low, high = boxes[..., :2], boxes[..., 2:]
    whole = lm.concat(((low + high) / 2, high - low, scores), -1).mT
    whole.output("output0")
    model = export(graph)
    names = {number: LABELS[str(number)] for number in range(count)}
    model.metadata_props.add(key="names", value=str(names))
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


@pytest.mark.long
def test_the_command_detect_with_onnx(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved("v11", tmp_path)
    wanted = lm.models.load(tmp_path, backend="reference").detect(picture(tmp_path), 0.3, 0.4)
    options = "--backend", "reference", "--confidence", 0.3, "--iou", 0.4
    run(monkeypatch, tmp_path / "a.png", "--model", exported(tmp_path), *options)
    for line, each in zip(capsys.readouterr().out.splitlines(), wanted, strict=True):
        score, label, *box = line.split()
        assert label == each.label
        # the command prints two digits behind the point
        assert float(score.rstrip("%")) == pytest.approx(100 * each.score, abs=0.02)
        # boxes have coordinates up to 80 in float32, behind some thirty layers: 2e-4 of them
        assert [float(side) for side in box] == pytest.approx(each.box, abs=0.1)
    fewer = exported(tmp_path, 2)
    assert "for the 2 classes of" in run(
        monkeypatch, tmp_path / "a.png", "--model", fewer, *options
    )


DAMAGED = {
    "scale": ({"scale": "huge"}, "scale 'huge' is not one of n, s, m, l, x"),
    "size": ({"image_size": 50}, "size 50 is no multiple of 32"),
    "width": ({"width_multiple": 0.25}, "does not fit"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_a_configuration_must_not_say(name: str, tmp_path: Path) -> None:
    saved("v11", tmp_path)
    change, message = DAMAGED[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(LoadError, match=message):
        lm.models.load(tmp_path)


SCALES = {  # parameters in Ultralytics' tables, of 80 classes
    "YOLOv8": {"n": 3157200, "s": 11166560, "m": 25902640, "l": 43691520, "x": 68229648},
    "YOLO11": {"n": 2624080, "s": 9458752, "m": 20114688, "l": 25372160, "x": 56966176},
}
BINS = 16  # counted there, numbers 0 to 15 here


@pytest.mark.parametrize("name", SCALES)
def test_sizes_that_are_published(name: str, tmp_path: Path) -> None:
    for scale, wanted in SCALES[name].items():
        fields = Fields({"scale": scale, "num_labels": 80}, tmp_path)
        family = family_of({"architectures": [name]})
        assert family is not None
        model = family.model(fields)
        count = sum(math.prod(each.shape) for each in model.parameters())
        assert count + BINS == wanted, scale
