"""Segment Anything: encoded images, masks and scores as transformers'."""

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
from luminal.models.segment_anything import Mask, SegmentAnything
from tests.close import close, close_to_greatest
from tests.models.small_vision import torch, transformers

Image = pytest.importorskip("PIL.Image")

PIXELS = 48
VISION = {
    "hidden_size": 16,
    "output_channels": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": PIXELS,
    "patch_size": 8,
    "window_size": 4,  # does not divide the 6 patches
    "global_attn_indexes": [1],
    "mlp_dim": 24,
    "num_pos_feats": 16,
}
PROMPTS = {
    "hidden_size": 32,
    "image_size": PIXELS,
    "patch_size": 8,
    "image_embedding_size": 6,
    "mask_input_channels": 8,
}
DECODER = {
    "hidden_size": 32,
    "mlp_dim": 24,
    "num_attention_heads": 2,
    "iou_head_hidden_dim": 20,
    "iou_head_depth": 4,
}


def saved(folder: Path) -> tuple[Any, Any]:
    """A random SAM with its processor."""
    torch.manual_seed(0)
    config = transformers.SamConfig(
        vision_config=VISION, prompt_encoder_config=PROMPTS, mask_decoder_config=DECODER
    )
    model = transformers.SamModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1 and "embed" not in name:
                torch.nn.init.normal_(parameter, std=1.2 * parameter[0].numel() ** -0.5)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.3)
        # Masks that are neither empty nor all of the image.
        model.mask_decoder.upscale_conv2.weight.normal_(std=0.5)
        model.mask_decoder.upscale_conv2.bias.zero_()
        for reader in model.mask_decoder.output_hypernetworks_mlps:
            reader.proj_out.weight.normal_(std=0.5)
            reader.proj_out.bias.normal_()
    model.save_pretrained(folder)
    sides = {"size": {"longest_edge": PIXELS}, "pad_size": {"height": PIXELS, "width": PIXELS}}
    images = transformers.SamImageProcessorPil(**sides)
    images.save_pretrained(folder)
    return model, transformers.SamProcessor(images)


def picture(width: int, height: int) -> Any:
    small = np.random.default_rng(0).integers(0, 256, (5, 6, 3), np.uint8)
    return Image.fromarray(small).resize((width, height), 3)


ASKED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "point": ({"points": [(20, 9)]}, {"input_points": [[[20, 9]]]}),
    "points": (
        {"points": [(20, 9), (3.5, 30)], "labels": [1, 0]},
        {"input_points": [[[20, 9], [3.5, 30]]], "input_labels": [[1, 0]]},
    ),
    "boxes": (
        {"boxes": [(2, 3, 30, 20), (10, 10, 25, 39)]},
        {"input_boxes": [[[2, 3, 30, 20], [10, 10, 25, 39]]]},
    ),
    "both": (
        {"points": [(20, 9)], "labels": [0], "boxes": [(2, 3, 30, 20)]},
        {
            "input_points": [[[20, 9]]],
            "input_labels": [[0]],
            "input_boxes": [[[2, 3, 30, 20]]],
        },
    ),
}


def check_masks(folder: Path, backend: str, sizes: tuple[tuple[int, int], ...]) -> None:
    """For all kinds of questions of images of these sizes, by two programs."""
    theirs, processor = saved(folder)
    loaded = lm.models.load(folder, backend=backend)
    assert isinstance(loaded, SegmentAnything)
    before = lm.compile_count()
    for size in sizes:
        image = picture(*size)
        seen = loaded.encode(image)
        for name, (ours, asked) in ASKED.items():
            inputs = processor(image, **asked, return_tensors="pt")
            originals, reshaped = (inputs.pop(f"{k}_sizes") for k in ("original", "reshaped_input"))
            close(loaded.prepared(image)[0], inputs["pixel_values"][0].numpy())
            inputs = {name: x.float() if x.is_floating_point() else x for name, x in inputs.items()}
            for single in (False, True) if name == "points" else (False,):
                with torch.no_grad():
                    outputs = theirs(**inputs, multimask_output=not single)
                    encoded = theirs.get_image_embeddings(inputs["pixel_values"])
                close_to_greatest(seen.encoded, encoded.numpy())
                (masks,) = processor.post_process_masks(outputs.pred_masks, originals, reshaped)
                (scores,) = outputs.iou_scores.numpy()
                found = seen.masks(**ours, single=single)
                assert len(found) == len(masks)
                for things, wanted, score in zip(found, masks.numpy(), scores, strict=True):
                    order = np.argsort(-score, kind="stable")
                    close_to_greatest(
                        np.array([mask.score for mask in things], np.float32), score[order]
                    )
                    for mask, pixels in zip(things, wanted[order], strict=True):
                        assert mask.pixels.shape == size[::-1]
                        assert 0 < pixels.sum() < pixels.size
                        # where a logit is 0 up to rounding
                        assert (mask.pixels != pixels).mean() < 1e-3
    assert lm.compile_count() - before == 2


def test_masks_are_those_of_transformers(tmp_path: Path) -> None:
    check_masks(tmp_path, "reference", ((41, 50),))


@pytest.mark.long
def test_compiled_masks(tmp_path: Path) -> None:
    check_masks(tmp_path, "cpu", ((41, 50), (70, 40), (48, 48)))


@pytest.mark.long
def test_many_boxes_are_asked_in_parts(tmp_path: Path) -> None:
    saved(tmp_path)
    seen = lm.models.load(tmp_path, backend="reference").encode(picture(41, 50))
    boxes = [(n % 7, n % 5, 20 + n % 11, 30) for n in range(70)]
    found = seen.masks(boxes=boxes)
    assert len(found) == 70
    for number in (0, 69):
        ((mask, *_),) = seen.masks(boxes=boxes[number : number + 1])
        np.testing.assert_array_equal(mask.pixels, found[number][0].pixels)


def test_a_mask() -> None:
    pixels = np.zeros((4, 6), bool)
    assert str(Mask(pixels, 0.5)) == " 0.500    0.00%  empty"
    pixels[1:3, 2:6] = True
    assert Mask(pixels, 0.5).box == (2, 1, 6, 3)
    assert str(Mask(pixels, 0.5)) == " 0.500   33.33%  2 1 6 3"


def test_what_is_not_asked(tmp_path: Path) -> None:
    saved(tmp_path)
    seen = lm.models.load(tmp_path, backend="reference").encode(picture(41, 50))
    box = (1, 2, 3, 4)
    for asked, message in (
        ({}, "there are no points and no boxes; give some"),
        ({"points": [(1, 2)], "boxes": [box, box]}, "2 boxes with points; points are of one thing"),
        ({"points": [(1, 2)], "labels": [2]}, r"labels are \[2\]; there must be a 0 or 1 for each"),
        ({"points": [(1, 2)], "labels": [1, 0]}, "a 0 or 1 for each of the 1 points"),
        ({"points": (1, 2)}, r"points are \(1, 2\); give a list of 2 numbers each"),
        ({"points": [(1, np.nan)]}, "give a list of 2 numbers each"),
        ({"boxes": [(1, 2, 3)]}, "give a list of 4 numbers each"),
        ({"boxes": 7}, "boxes are 7; give a list of 4 numbers each"),
        ({"points": [(1, 2)] * 300}, "300 points are too many; give 253"),
    ):
        with pytest.raises(InputError, match=message):
            seen.masks(**asked)


DAMAGED: dict[str, tuple[str, dict[str, Any], str]] = {
    "patch": ("vision_config", {"patch_size": 7}, "image_size 48 is no multiple of patch_size 7"),
    "heads": ("vision_config", {"num_attention_heads": 3}, "hidden_size 16 does not divide among"),
    "places": ("vision_config", {"use_rel_pos": False}, "use_rel_pos=False is not supported"),
    "outputs": ("vision_config", {"output_channels": 16}, "output_channels 16 of the encoder is"),
    "narrow": ("mask_decoder_config", {"num_attention_heads": 5}, "must be a multiple of 8, and"),
    "masks": ("mask_decoder_config", {"num_multimask_outputs": 2}, "answers"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_a_configuration_must_not_say(name: str, tmp_path: Path) -> None:
    saved(tmp_path)
    section, change, message = DAMAGED[name]
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    values[section] |= change
    path.write_text(json.dumps(values))
    with pytest.raises(LoadError, match=message):
        lm.models.load(tmp_path)


def test_another_size_of_images(tmp_path: Path) -> None:
    saved(tmp_path)
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"size": {"longest_edge": 40}}))
    with pytest.raises(LoadError, match="longest_edge is 40, the model takes 48"):
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

    seen = lm.models.load(tmp_path, backend="reference").encode(path)
    ((mask, *_),) = seen.masks([(3, 4.5)], [(1, 2, 20, 15)])
    assert run("--point", "3,4.5", "--box", "1,2,20,15", "-o", out) == [str(mask), ""]
    before, after = np.asarray(read_image(path)), np.asarray(read_image(out))
    changed = (before != after).any(-1)
    assert 0 < mask.pixels.sum() < mask.pixels.size
    assert not (changed & ~mask.pixels).any()
    assert changed[mask.pixels].mean() > 0.9
    assert "give --point X,Y or --box LEFT,TOP,RIGHT,BOTTOM" in run()[-1]
    assert "--point 3 is not 2 numbers" in run("--point", 3)[-1]
