"""DETR: logits, boxes and things in images as transformers'."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import LoadError
from luminal.cli.main import main
from luminal.loaders.fields import Fields
from luminal.models.detr_detector import DetrDetector
from luminal.models.families import read_model
from luminal.models.families.detr import DETR
from tests.close import close, close_to_greatest
from tests.models.small_vision import random, torch, transformers

Image = pytest.importorskip("PIL.Image")

TRUNK = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 2], "out_features": ["stage2"]}
SIZES = {
    "use_timm_backbone": False,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 48,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "num_queries": 6,
    "id2label": {0: "cat", 1: "dog", 2: "cow"},
}
SIDES = {"shortest_edge": 40, "longest_edge": 60}


def saved(folder: Path) -> Any:
    """A random DETR with its preparation."""
    torch.manual_seed(0)
    trunk = transformers.ResNetConfig(**TRUNK)
    model = transformers.DetrForObjectDetection(
        transformers.DetrConfig(backbone_config=trunk, **SIZES)
    )
    model = random(model)
    with torch.no_grad():
        model.model.query_position_embeddings.weight.mul_(3)  # queries differ
    model.save_pretrained(folder)
    processor(folder)
    return model


def processor(folder: Path) -> Any:
    settings = transformers.DetrImageProcessorPil(size=SIDES)
    settings.save_pretrained(folder)
    return settings


def picture(width: int, height: int) -> Any:
    small = np.random.default_rng(0).integers(0, 256, (5, 6, 3), np.uint8)
    return Image.fromarray(small).resize((width, height), 3)


def check_outputs(folder: Path, backend: str) -> None:
    """Of images of two shapes, by one program."""
    theirs = saved(folder)
    graph = lm.Graph()
    shape = graph.dim("b", 1, 4), 3, graph.dim("h", 1, 64), graph.dim("w", 1, 64)
    for name, made in zip(
        ("logits", "boxes"), read_model(folder)(graph.tensor(shape, lm.float32, "x")), strict=True
    ):
        made.output(name)
    exe = graph.compile(backend)
    for size in ((2, 3, 40, 53), (1, 3, 64, 24)):
        pixels = np.random.default_rng(0).standard_normal(size).astype(np.float32)
        with torch.no_grad():
            wanted = theirs(torch.from_numpy(pixels))
        found = exe(x=pixels)
        close_to_greatest(found["logits"], wanted.logits.numpy())
        close_to_greatest(found["boxes"], wanted.pred_boxes.numpy())


def check_things(folder: Path, backend: str) -> None:
    """Of two images, one of which is far wider than high."""
    theirs, settings = saved(folder), processor(folder)
    loaded = lm.models.load(folder, backend=backend)
    assert isinstance(loaded, DetrDetector)
    before = lm.compile_count()
    for size in ((50, 61), (90, 31)):
        image = picture(*size)
        inputs = settings(image, return_tensors="pt")
        close(loaded.prepared(image)[0], inputs["pixel_values"][0].numpy())
        with torch.no_grad():
            outputs = theirs(**inputs)
        (wanted,) = settings.post_process_object_detection(outputs, 0.3, [size[::-1]])
        order = np.argsort(-wanted["scores"].numpy(), kind="stable")
        found = loaded.detect(image, 0.3)
        assert 0 < len(found) == len(order)
        for own, n in zip(found, order, strict=True):
            assert own.label == SIZES["id2label"][int(wanted["labels"][n])]
            # a softmax behind some ten layers in float32
            assert own.score == pytest.approx(float(wanted["scores"][n]), rel=1e-4)
            box = np.clip(wanted["boxes"][n].numpy(), 0, [*size] * 2)
            close_to_greatest(np.array(own.box), box)
    assert lm.compile_count() - before == 1


def test_outputs_are_those_of_transformers(tmp_path: Path) -> None:
    check_outputs(tmp_path, "reference")


def test_things_are_those_of_transformers(tmp_path: Path) -> None:
    check_things(tmp_path, "reference")


@pytest.mark.long
def test_compiled_outputs_and_things(tmp_path: Path) -> None:
    check_outputs(tmp_path, "cpu")
    check_things(tmp_path, "cpu")


TIMM = (
    (r"\.embedder\.embedder\.convolution", ".conv1"),
    (r"\.embedder\.embedder\.normalization", ".bn1"),
    (r"\.shortcut\.convolution", ".downsample.0"),
    (r"\.shortcut\.normalization", ".downsample.1"),
)


def test_a_trunk_with_names_of_timm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path)
    before = read_model(tmp_path).state_dict()

    def old(name: str) -> str:
        for pattern, theirs in TIMM:
            name = re.sub(pattern, theirs, name)
        stage = re.search(r"stages\.(\d)\.layers\.(\d)\.", name)
        if stage is None:
            return name
        prefix, rest = name[: stage.start()].removesuffix("encoder."), name[stage.end() :]
        for number in range(3):
            rest = rest.replace(f"layer.{number}.convolution", f"conv{number + 1}")
            rest = rest.replace(f"layer.{number}.normalization", f"bn{number + 1}")
        return f"{prefix}layer{int(stage[1]) + 1}.{stage[2]}.{rest}"

    path = tmp_path / "model.safetensors"
    weights = {old(name): np.array(array) for name, array in lm.load(path).items()}
    names = set(weights)
    assert "model.backbone.conv_encoder.model.layer2.0.downsample.0.weight" in names
    assert not any("convolution" in name for name in names)
    lm.save(path, weights)
    after = read_model(tmp_path).state_dict()
    assert before.keys() == after.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name])


def test_old_settings_of_images(tmp_path: Path) -> None:
    saved(tmp_path)
    path = tmp_path / "preprocessor_config.json"
    now = lm.models.load(tmp_path, backend="reference").prepare
    values = json.loads(path.read_text())
    for key in ("image_processor_type", "do_pad"):
        values.pop(key, None)
    kind = {"feature_extractor_type": "DetrFeatureExtractor", "size": 40, "max_size": 60}
    path.write_text(json.dumps(values | kind))
    assert lm.models.load(tmp_path, backend="reference").prepare == now


def test_the_sizes_of_a_trunk_that_timm_names(tmp_path: Path) -> None:
    config = transformers.DetrConfig(**SIZES | {"use_timm_backbone": True}, backbone="resnet18")
    config.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    for old in (False, True):
        values = json.loads(path.read_text())
        if old:  # as before transformers 5
            values |= {"backbone_config": None, "backbone": "resnet18"}
        model = DETR.model(Fields(values, path))
        assert len(model.trunk.blocks) == 1 + sum([2, 2, 2, 2])
        assert model.trunk.width == 512
    with pytest.raises(LoadError, match=r"backbone 'swin' is not supported; resnet18, resnet34, "):
        DETR.model(Fields(values | {"backbone": "swin"}, path))


DAMAGED: dict[str, tuple[str, dict[str, Any], str]] = {
    "dilation": ("config.json", {"dilation": True}, "dilation=True is not supported"),
    "places": ("config.json", {"position_embedding_type": "learned"}, "'sine' is"),
    "width": ("config.json", {"d_model": 30}, "d_model must be a multiple of 4"),
    "heads": ("config.json", {"encoder_attention_heads": 5}, "d_model 32 does not divide among"),
    "pad": ("preprocessor_config.json", {"pad_size": {"height": 9}}, "pad_size is not supported"),
    "side": ("preprocessor_config.json", {"size": {"shortest_edge": 4, "longest_edge": 10**6}}, ""),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_settings_must_not_say(name: str, tmp_path: Path) -> None:
    saved(tmp_path)
    file, change, message = DAMAGED[name]
    path = tmp_path / file
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(LoadError, match=message or "longest_edge is 1000000, it must be at most"):
        lm.models.load(tmp_path)


def test_the_command_detect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path)
    path = tmp_path / "a.png"
    picture(50, 61).save(path)
    wanted = lm.models.load(tmp_path, backend="reference").detect(path, 0.3)
    words = "luminal", "detect", path, "--model", tmp_path, "--backend", "reference"
    monkeypatch.setattr("sys.argv", [*map(str, words), "--confidence", "0.3"])
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code in (0, None)
    assert capsys.readouterr().out.splitlines() == [*map(str, wanted)]
