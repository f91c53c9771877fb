"""SegFormer: logits, labels of pixels and of images as transformers'."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import InputError, LoadError
from luminal.cli.main import main
from luminal.loaders.image import read_image
from luminal.models.families import read_model
from luminal.models.segment import Region, Segmentation, Segmenter
from tests.close import close, close_to_greatest
from tests.models.small_vision import random, torch, transformers

Image = pytest.importorskip("PIL.Image")

SIZES = {
    "num_encoder_blocks": 2,
    "depths": [1, 2],
    "hidden_sizes": [8, 16],
    "num_attention_heads": [1, 2],
    "sr_ratios": [2, 1],
    "patch_sizes": [7, 3],
    "strides": [4, 2],
    "mlp_ratios": [2, 3],
    "decoder_hidden_size": 12,
    "id2label": {0: "wall", 1: "sky", 2: "tree", 3: "road", 4: "sea"},
}
HEIGHT, WIDTH = 40, 48


def saved(folder: Path, kind: str = "SemanticSegmentation") -> Any:
    """A random SegFormer with its preparation."""
    torch.manual_seed(0)
    config = transformers.SegformerConfig(**SIZES)
    model = random(getattr(transformers, f"SegformerFor{kind}")(config))
    model.save_pretrained(folder)
    processor(folder)
    return model


def processor(folder: Path) -> Any:
    size = {"height": HEIGHT, "width": WIDTH}
    settings = transformers.SegformerImageProcessorPil(size=size)
    settings.save_pretrained(folder)
    return settings


def picture(width: int, height: int) -> Any:
    small = np.random.default_rng(0).integers(0, 256, (5, 6, 3), np.uint8)
    return Image.fromarray(small).resize((width, height), 3)


def check_logits(kind: str, folder: Path, backend: str) -> None:
    """Of two images of another size than the preparation's."""
    theirs = saved(folder, kind)
    pixels = np.random.default_rng(0).standard_normal((2, 3, 48, 32)).astype(np.float32)
    graph = lm.Graph()
    read_model(folder)(graph.tensor(pixels.shape, lm.float32, "images")).output("out")
    with torch.no_grad():
        wanted = theirs(torch.from_numpy(pixels)).logits.numpy()
    close_to_greatest(graph.compile(backend)(images=pixels)["out"], wanted)


def check_labels(folder: Path, backend: str) -> None:
    """Of all pixels of two images, by one program."""
    theirs, settings = saved(folder), processor(folder)
    loaded = lm.models.load(folder, backend=backend)
    assert isinstance(loaded, Segmenter)
    before = lm.compile_count()
    for size in ((61, 40), (29, 70)):
        image = picture(*size)
        inputs = settings(image, return_tensors="pt")
        close(loaded.prepare(image), inputs["pixel_values"][0].numpy())
        with torch.no_grad():
            outputs = theirs(**inputs)
        (wanted,) = settings.post_process_semantic_segmentation(outputs, [size[::-1]])
        assert len(np.unique(wanted)) > 2
        np.testing.assert_array_equal(loaded.segment(image).ids, wanted.numpy())
    assert lm.compile_count() - before == 1


@pytest.mark.parametrize("kind", ["SemanticSegmentation", "ImageClassification"])
def test_logits_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    check_logits(kind, tmp_path, "reference")


def test_labels_of_pixels_are_those_of_transformers(tmp_path: Path) -> None:
    check_labels(tmp_path, "reference")


@pytest.mark.long
def test_compiled_logits_and_labels(tmp_path: Path) -> None:
    check_logits("SemanticSegmentation", tmp_path, "cpu")
    check_logits("ImageClassification", tmp_path, "cpu")
    check_labels(tmp_path, "cpu")


def test_regions() -> None:
    ids = np.zeros((4, 6), np.int32)
    ids[1:3, 2:6] = 2
    ids[3, 0] = 1
    found = Segmentation(ids, ("sky", "sea", "tree", "sea"))
    assert found.regions() == [
        Region("sky", 15 / 24, (0, 0, 6, 4)),
        Region("tree", 8 / 24, (2, 1, 6, 3)),
        Region("sea", 1 / 24, (0, 3, 1, 4)),
    ]
    np.testing.assert_array_equal(found.mask("tree"), ids == 2)
    with pytest.raises(InputError, match=r"mask: 'moon' is no label of this model; the first of"):
        found.mask("moon")
    colours = np.asarray(found.drawn(Image.new("RGB", (6, 4))))
    assert len(np.unique(colours.reshape(-1, 3), axis=0)) == 3
    assert (colours[1:3, 2:6] == colours[1, 2]).all()
    with pytest.raises(InputError, match=r"the image has \(4, 6\) pixels, the regions \(6, 4\)"):
        found.drawn(Image.new("RGB", (4, 6)))


DAMAGED: dict[str, tuple[dict[str, Any], str]] = {
    "stages": ({"strides": [4]}, r"strides is \[4\]; it must have a number from 1 to 65536 for"),
    "depth": ({"depths": [1, 10**9]}, r"depths is \[1, 1000000000\]; .* from 1 to 4096"),
    "heads": ({"num_attention_heads": [3, 2]}, "hidden_sizes 8 does not divide among .* 3"),
    "last": ({"reshape_last_stage": False}, "reshape_last_stage=False is not supported"),
    "activation": ({"hidden_act": "sine"}, "activation 'sine' is not known"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_a_configuration_must_not_say(name: str, tmp_path: Path) -> None:
    saved(tmp_path)
    change, message = DAMAGED[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(LoadError, match=message):
        lm.models.load(tmp_path)


def test_the_command_segment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path)
    path, out = tmp_path / "a.png", tmp_path / "out.png"
    picture(30, 20).save(path)

    def run(*more: object) -> list[str]:
        words = "luminal", "segment", path, "--model", tmp_path, "--backend", "reference", *more
        monkeypatch.setattr("sys.argv", [*map(str, words)])
        with pytest.raises(SystemExit) as done:
            main()
        return [*capsys.readouterr().out.splitlines(), str(done.value.code or "")]

    found = lm.models.load(tmp_path, backend="reference").segment(path)
    assert run("-o", out) == [*map(str, found.regions()), ""]
    np.testing.assert_array_equal(read_image(out), found.drawn(read_image(path)))
    assert "no image that Pillow writes ends so" in run("-o", tmp_path / "out.txt")[-1]
