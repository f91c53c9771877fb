"""Models of images: what is prepared, logits and vectors as transformers'."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import InputError, LoadError
from luminal.cli.main import main
from luminal.loaders.fields import Fields
from luminal.loaders.image import IMAGENET, preparation_of, read_image, write_image
from luminal.models.convolutional import ConvConfig, ConvNorm
from luminal.models.families import read_model
from luminal.models.image_model import opened
from luminal.models.image_text import ImageTextModel
from tests.close import close, close_to_greatest
from tests.models.small_vision import (
    LABELS,
    SIZE,
    TINY,
    VARIANTS,
    VIT,
    picture,
    random,
    saved,
    saved_clip,
    torch,
    transformers,
    with_preparation,
)
from tests.models.vision_checks import check_outputs

Image = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize("name", ["vit", "dinov2", "resnet", "convnext"])
def test_outputs_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    check_outputs(name, tmp_path, "reference")


@pytest.mark.long
@pytest.mark.parametrize("name", TINY | VARIANTS)
def test_compiled_outputs(name: str, tmp_path: Path) -> None:
    check_outputs(name, tmp_path, "cpu")


@pytest.mark.parametrize("dilation", [1, 2, 4])
@pytest.mark.parametrize("stride", [1, 2])
def test_zeros_around_as_many_as_tensorflow_has(stride: int, dilation: int) -> None:
    from transformers.models.mobilenet_v2.modeling_mobilenet_v2 import apply_tf_padding

    conv = ConvNorm(ConvConfig(1, 1, 3, stride, dilation=dilation, same=True))
    pixels = np.random.default_rng(0).standard_normal((1, 1, 10, 11)).astype(np.float32)
    theirs = torch.nn.Conv2d(1, 1, 3, stride, dilation=dilation, bias=False)
    with torch.no_grad():
        theirs.weight.copy_(torch.from_numpy(conv.conv.weight.numpy()))
        wanted = theirs(apply_tf_padding(torch.from_numpy(pixels), theirs)).numpy()
    graph = lm.Graph()
    conv.eval()(graph.tensor(pixels.shape, lm.float32, "x")).output("out")
    found = graph.compile("reference")(x=pixels)["out"]
    close_to_greatest(found, np.maximum(wanted, 0) / np.sqrt(1 + 1e-5, dtype=np.float32))


def check_sixteen_bits(name: str, folder: Path) -> None:
    """Weights of 16 bits give what the same numbers give in 32: values are rounded nowhere."""
    saved(name, folder)
    path, size = folder / "model.safetensors", (TINY | VARIANTS)[name].size
    narrow = {
        key: np.array(array).astype(lm.bfloat16.numpy) for key, array in lm.load(path).items()
    }
    pixels = np.random.default_rng(0).standard_normal((2, 3, size, size)).astype(np.float32)
    made = []
    for dtype in (lm.bfloat16, lm.float32):
        lm.save(path, {key: array.astype(dtype.numpy) for key, array in narrow.items()})
        graph = lm.Graph()
        read_model(folder)(graph.tensor(pixels.shape, lm.float32, "images")).output("out")
        made.append(graph.compile("reference")(images=pixels)["out"])
    close(*made)


@pytest.mark.parametrize("name", ["vit", "dinov2"])
def test_weights_of_sixteen_bits(name: str, tmp_path: Path) -> None:
    check_sixteen_bits(name, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", TINY)
def test_weights_of_sixteen_bits_of_all(name: str, tmp_path: Path) -> None:
    check_sixteen_bits(name, tmp_path)


PROCESSORS: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViT", {"size": {"height": 24, "width": 20}}),
    "vit_of_one_size": ("ViT", {"size": 24, "do_rescale": False, "do_normalize": False}),
    "clip": ("CLIP", {"size": {"shortest_edge": 24}, "crop_size": 24}),
    "clip_of_one_size": ("CLIP", {"size": 30, "crop_size": {"height": 24, "width": 20}}),
    "padded": ("CLIP", {"size": {"shortest_edge": 19}, "crop_size": {"height": 24, "width": 40}}),
    "dinov2": ("Bit", {"size": {"shortest_edge": 26}, "crop_size": 24, "resample": 3}),
    "mobilenet": ("MobileNetV2", {"size": {"shortest_edge": 28}, "crop_size": 24}),
    "convnext": ("ConvNext", {"size": {"shortest_edge": 24}, "crop_pct": 0.875}),
    "convnext_uncropped": ("ConvNext", {"size": {"shortest_edge": 384}}),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_what_models_take_of_images(name: str, tmp_path: Path) -> None:
    kind, options = PROCESSORS[name]
    theirs = getattr(transformers, f"{kind}ImageProcessorPil")(**options)
    theirs.save_pretrained(tmp_path)
    path = tmp_path / "preprocessor_config.json"
    prepare = preparation_of(Fields(json.loads(path.read_text()), path))
    for size in ((61, 40), (40, 61), (24, 24)):
        image = read_image(picture(*size, tmp_path))
        wanted = theirs(image, return_tensors="np")["pixel_values"][0]
        found = prepare(image)
        assert found.shape[1:] == prepare.shape
        close(found, wanted)


def test_settings_of_processors(tmp_path: Path) -> None:
    saved_clip(tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    settings = transformers.CLIPImageProcessorPil(size={"shortest_edge": 30}, crop_size=SIZE)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "tokenizer.json")
    )
    transformers.CLIPProcessor(settings, tokenizer).save_pretrained(tmp_path)
    image = read_image(picture(61, 40, tmp_path))
    found = lm.models.load(tmp_path, backend="reference").prepare(image)
    close_to_greatest(found, settings(image, return_tensors="np")["pixel_values"][0])
    path = tmp_path / "processor_config.json"
    path.write_text(json.dumps({"processor_class": "CLIPProcessor"}))  # as before
    with pytest.raises(LoadError, match=r"no preprocessor_config.json in it"):
        lm.models.load(tmp_path)
    path.write_text(json.dumps({"image_processor": 1}))
    with pytest.raises(LoadError, match="image_processor is 1, it must be an object"):
        lm.models.load(tmp_path)


def test_labels_of_images(tmp_path: Path) -> None:
    theirs = saved("vit", tmp_path)
    with_preparation(tmp_path)
    loaded = lm.models.load(tmp_path, backend="reference")
    files = [picture(30, 20 + n, tmp_path, f"{n}.png") for n in range(3)]
    pixels = np.stack([loaded.prepare(read_image(file)) for file in files])
    with torch.no_grad():
        wanted = theirs(torch.from_numpy(pixels)).logits.softmax(-1).numpy()
    before = lm.compile_count()
    for guesses, shares in zip(loaded.classify(files, top=2), wanted, strict=True):
        assert len(guesses) == 2
        for guess, number in zip(guesses, np.argsort(-shares), strict=False):
            assert guess.label == LABELS["id2label"][number]
            # a relative error of probabilities is an absolute one of logits, in float32
            assert guess.probability == pytest.approx(shares[number], rel=1e-3)
    assert loaded.classify(files[:1])[0][:2] == loaded.classify(files, top=2)[0]
    assert lm.compile_count() - before == 1


def test_vectors_of_images(tmp_path: Path) -> None:
    theirs = saved("dinov2_gated", tmp_path)
    with_preparation(tmp_path)
    loaded = lm.models.load(tmp_path, backend="reference")
    image = read_image(picture(30, 20, tmp_path))
    with torch.no_grad():
        wanted = theirs(torch.from_numpy(loaded.prepare(image))[None]).last_hidden_state[:, 0]
    close_to_greatest(loaded.embed([image]), wanted.numpy())


TEXTS = ["w1 w2 w3", "w4 w39 w2", "w5 w6 w7 w8 w9 w10 w11 w12 w13"]
"""One is longer than the model takes, one has the token that ends texts as its own."""


def check_similarity(folder: Path, backend: str, end: int = 39) -> None:
    """Of two images and three texts."""
    theirs = saved_clip(folder, end)
    loaded = lm.models.load(folder, backend=backend)
    assert isinstance(loaded, ImageTextModel)
    files = [picture(30, 20 + 9 * n, folder, f"{n}.png") for n in range(2)]
    pixels = torch.from_numpy(np.stack([loaded.prepare(read_image(file)) for file in files]))
    found = loaded.similarity(files, TEXTS)
    for column, text in enumerate(TEXTS):
        words = [int(word[1:]) for word in text.split()][:8]
        ids = torch.tensor([[38, *words, 39]])
        with torch.no_grad():
            wanted = theirs(input_ids=ids, pixel_values=pixels).logits_per_image.numpy()
        close_to_greatest(found[:, column], wanted[:, 0])


@pytest.mark.parametrize("end", [39, 2], ids=["named", "as_in_the_first_files"])
def test_similarity_of_images_and_texts(end: int, tmp_path: Path) -> None:
    check_similarity(tmp_path, "reference", end)


@pytest.mark.long
def test_compiled_similarity(tmp_path: Path) -> None:
    check_similarity(tmp_path, "cpu")


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: object
) -> list[str]:
    """The lines that `luminal classify` prints, or its error."""
    monkeypatch.setattr("sys.argv", ["luminal", "classify", *map(str, words)])
    with pytest.raises(SystemExit) as done:
        main()
    return [*capsys.readouterr().out.splitlines(), str(done.value.code or "")]


def test_the_command_classify(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved("vit", tmp_path)
    with_preparation(tmp_path)
    files = [picture(30, 20 + n, tmp_path, f"{n}.png") for n in range(2)]
    guesses = lm.models.load(tmp_path, backend="reference").classify(files, top=2)
    options = "--model", tmp_path, "--backend", "reference", "--top", 2
    wanted = []
    for file, found in zip(files, guesses, strict=True):
        wanted += [f"{file}:", *(f"{each.probability:7.2%}  {each.label}" for each in found)]
    assert run(capsys, monkeypatch, *files, *options) == [*wanted, ""]
    assert (
        "--label is for CLIP and SigLIP"
        in run(capsys, monkeypatch, *files, *options, "--label", "x")[-1]
    )
    assert "No such file" in run(capsys, monkeypatch, tmp_path / "b.png", *options)[-1]
    assert "no image" in run(capsys, monkeypatch, tmp_path / "config.json", *options)[-1]


def test_the_command_classify_with_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved_clip(tmp_path)
    words = picture(30, 20, tmp_path), "--model", tmp_path, "--backend", "reference"
    assert "give --label TEXT" in run(capsys, monkeypatch, *words)[-1]
    lines = run(capsys, monkeypatch, *words, "--label", "w1 w2", "--label", "w3")
    assert {line.split(maxsplit=1)[1] for line in lines[:-1]} == {"w1 w2", "w3"}


def test_the_command_classify_with_onnx(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx = pytest.importorskip("onnx")
    weight = np.random.default_rng(0).standard_normal((3 * SIZE * SIZE, 3)).astype(np.float32)
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Flatten", ["x"], ["flat"]),
            onnx.helper.make_node("MatMul", ["flat", "w"], ["y"]),
            onnx.helper.make_node("Softmax", ["y"], ["out"]),
        ],
        "classifier",
        [onnx.helper.make_tensor_value_info("x", 1, [1, 3, SIZE, SIZE])],
        [onnx.helper.make_tensor_value_info("out", 1, [1, 3])],
        [onnx.numpy_helper.from_array(weight * 0.02, "w")],
    )
    onnx.save(onnx.helper.make_model(graph), tmp_path / "model.onnx")
    file = picture(30, 20, tmp_path)
    words = file, "--model", tmp_path / "model.onnx", "--backend", "reference", "--top", 1
    (plain, _) = run(capsys, monkeypatch, *words)
    assert plain.split()[1] in "012"
    (tmp_path / "config.json").write_text(json.dumps(LABELS))
    with_preparation(tmp_path)
    path = tmp_path / "preprocessor_config.json"
    pixels = preparation_of(Fields(json.loads(path.read_text()), path))(read_image(file))
    logits = pixels.reshape(-1) @ weight * 0.02
    shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    (named, _) = run(capsys, monkeypatch, *words)
    assert named.split()[1] == LABELS["id2label"][int(shares.argmax())]
    # the command prints two digits behind the point
    assert float(named.split()[0].rstrip("%")) == pytest.approx(100 * shares.max(), abs=0.01)


DAMAGED: dict[str, tuple[str, dict[str, Any], str]] = {
    "labels": ("config.json", {"id2label": {"0": "cat", "2": "cow"}}, "id2label has no text for 1"),
    "stages": ("config.json", {"depths": [1]}, "hidden_sizes has 2 stages, depths 1"),
    "depths": ("config.json", {"depths": [1, 10**9]}, "depths is .* all must be from 1 to"),
    "kind": ("config.json", {"layer_type": "wide"}, "layer_type 'wide' is not"),
    "mean": ("preprocessor_config.json", {"image_mean": 1}, "image_mean is 1; it must be a list"),
    "filter": ("preprocessor_config.json", {"resample": 9}, "resample is 9, it must be at most 5"),
    "size": ("preprocessor_config.json", {"size": 10**9}, "size is 1000000000, it must be at most"),
    "side": ("preprocessor_config.json", {"size": {"height": 10**9, "width": 1}}, "at most 8192"),
    "std": ("preprocessor_config.json", {"image_std": [0, 1, 1]}, "image_std is .* at least 1e-06"),
    "open": ("preprocessor_config.json", {"size": {"shortest_edge": 9}}, "depends on the image"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_settings_must_not_say(name: str, tmp_path: Path) -> None:
    saved("resnet", tmp_path)
    with_preparation(tmp_path)
    file, change, message = DAMAGED[name]
    path = tmp_path / file
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(LoadError, match=message):
        lm.models.load(tmp_path)


def test_no_images(tmp_path: Path) -> None:
    saved("resnet", tmp_path)
    with_preparation(tmp_path)
    loaded = lm.models.load(tmp_path, backend="reference")
    image = Image.new("RGB", (5, 5))
    for nothing in ([], "a.png", image, iter([image]), np.zeros((1, 5, 5, 3))):
        with pytest.raises(InputError, match="give a list of images"):
            loaded.classify(nothing)
    grey = np.full((5, 5), 7, np.uint8)
    assert loaded.classify([grey]) == loaded.classify([Image.fromarray(grey)])
    for other in (np.zeros((5, 5, 3)), np.zeros((5, 5, 2), np.uint8), b"a.png", None):
        with pytest.raises(InputError, match=r"give a file, an image of Pillow or|give uint8 of"):
            loaded.classify([other])
    with pytest.raises(InputError, match=r"\(0, 5\) pixels is empty"):
        loaded.classify([Image.new("RGB", (0, 5))])
    with pytest.raises(InputError, match="top: 0 is not 1 or above"):
        loaded.classify([image], top=0)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGBA", "CMYK", "YCbCr", "I;16"])
def test_images_of_any_mode(mode: str, tmp_path: Path) -> None:
    colours = read_image(picture(30, 20, tmp_path))
    if mode == "I;16":
        colours = colours.convert("L")
        image = Image.fromarray(np.asarray(colours).astype(np.uint16) * 256 + 77)
    else:
        image = colours.convert("RGBA" if mode == "PA" else "RGB").convert(mode)
    wanted = np.asarray((colours if mode == "I;16" else image).convert("RGB"))
    assert image.mode == mode
    np.testing.assert_array_equal(np.asarray(opened(image)), wanted)
    if mode not in ("PA", "YCbCr"):
        image.save(tmp_path / "a.tif")
        np.testing.assert_array_equal(np.asarray(opened(tmp_path / "a.tif")), wanted)


def test_images_far_longer_than_wide() -> None:
    with pytest.raises(InputError, match=r"\(3, 4000\) pixels is too long: .* the other 341333"):
        IMAGENET(Image.new("RGB", (3, 4000)))


@pytest.mark.parametrize("mode", ["I", "F"])
def test_values_of_no_known_range(mode: str, tmp_path: Path) -> None:
    Image.new(mode, (5, 5)).save(tmp_path / "a.tif")
    with pytest.raises(LoadError, match=f"a.tif: .* mode '{mode}' have no known range; give 8 or"):
        read_image(tmp_path / "a.tif")


def test_a_large_image_is_read_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = picture(30, 20, tmp_path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 400)
    assert read_image(path).size == (30, 20)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200)
    with pytest.raises(LoadError, match="exceeds limit"):
        read_image(path)


@pytest.mark.parametrize("ending", ["png", "JPG", "gif", "tif", "pdf"])
def test_images_are_written_by_their_ending(ending: str, tmp_path: Path) -> None:
    image = read_image(picture(30, 20, tmp_path))
    path = tmp_path / f"b.{ending}"
    write_image(path, image)
    if ending != "pdf":
        assert read_image(path).size == image.size
    assert path.stat().st_size > 100


def test_images_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = read_image(picture(30, 20, tmp_path))
    (tmp_path / "folder.png").mkdir()
    for name, message in (
        ("b.txt", "no image that Pillow writes ends so; name a .png or .jpg"),
        ("b", "no image that Pillow writes"),
        ("folder.png", "is a folder"),
        ("none/b.png", "cannot be written: No such file"),
    ):
        with pytest.raises(InputError, match=f"{name}: {message}"):
            write_image(tmp_path / name, image)

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "b.png").write_bytes(b"before")
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(InputError, match=r"b.png: cannot be written: .*No space left"):
        write_image(tmp_path / "b.png", image)
    assert (tmp_path / "b.png").read_bytes() == b"before"
    assert {each.name for each in tmp_path.iterdir()} == {"a.png", "b.png", "folder.png"}


KINDS = {
    "one": {"id2label": {0: "cat"}},
    "independent": {**LABELS, "problem_type": "multi_label_classification"},
    "exclusive": {**LABELS, "problem_type": "single_label_classification"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_of_labels(kind: str, tmp_path: Path) -> None:
    config = transformers.ViTConfig(**VIT | KINDS[kind])
    theirs = random(transformers.ViTForImageClassification(config))
    theirs.save_pretrained(tmp_path)
    with_preparation(tmp_path)
    image = read_image(picture(30, 20, tmp_path))
    processor = transformers.ViTImageProcessorPil.from_pretrained(tmp_path)
    pipeline = transformers.pipeline(
        "image-classification", model=theirs, image_processor=processor
    )
    wanted = pipeline(image, top_k=2)
    (found,) = lm.models.load(tmp_path, backend="reference").classify([image], top=2)
    assert [each.label for each in found] == [each["label"] for each in wanted]
    for own, other in zip(found, wanted, strict=True):
        # a relative error of probabilities is an absolute one of logits, in float32
        assert own.probability == pytest.approx(other["score"], rel=1e-3)


def test_what_texts_must_not_be(tmp_path: Path) -> None:
    saved_clip(tmp_path)
    loaded = lm.models.load(tmp_path, backend="reference")
    image = Image.new("RGB", (5, 5))
    with pytest.raises(InputError, match="texts: got 'w1'; give a list of texts"):
        loaded.similarity([image], "w1")
    with pytest.raises(InputError, match="there are no labels; give some texts"):
        loaded.classify([image], [])
