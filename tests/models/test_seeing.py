"""Language models that see: what is read of images and texts as transformers'."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import InputError, LoadError
from luminal.cli.main import main
from luminal.models import PromptLookup
from tests.long_share import long_but
from tests.models.seeing_checks import check_pixels, check_texts
from tests.models.small_seeing import SMALL, picture, saved, texts_of

SHORT = ["idefics3", "gemma3", "qwen2_5_vl"]


@pytest.mark.parametrize("name", long_but(SMALL, SHORT))
def test_what_is_read_of_images_is_that_of_transformers(name: str, tmp_path: Path) -> None:
    theirs, processor = saved(name, tmp_path)
    model = lm.models.load(tmp_path, backend="reference")
    several = texts_of(name)[1]
    check_pixels(model, processor, several[1])
    check_texts(theirs, processor, model, [several], 3)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", SMALL)
def test_texts_alone_and_in_a_batch(name: str, backend: str, tmp_path: Path) -> None:
    theirs, processor = saved(name, tmp_path)
    model = lm.models.load(tmp_path, backend=backend)
    check_texts(theirs, processor, model, texts_of(name))


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_a_draft_changes_no_text(name: str, tmp_path: Path) -> None:
    saved(name, tmp_path)
    model = lm.models.load(tmp_path, backend="reference")
    for text, images in texts_of(name):
        plain = model.generate(text, 12, images=images)
        assert model.generate(text, 12, images=images, draft=PromptLookup()) == plain


@pytest.mark.long
def test_a_folder_of_qwen_as_older_versions_wrote_it(tmp_path: Path) -> None:
    saved("qwen2_5_vl", tmp_path)
    text, images = texts_of("qwen2_5_vl")[1]
    expected = lm.models.load(tmp_path, backend="reference").generate(text, 8, images=images)
    path, weights = tmp_path / "config.json", tmp_path / "model.safetensors"
    config = json.loads(path.read_text())
    part = config.pop("text_config")
    rope = part.pop("rope_parameters")
    part["rope_scaling"] = {"type": "mrope", "mrope_section": rope["mrope_section"]}
    path.write_text(json.dumps({**part, "rope_theta": rope["rope_theta"], **config}))
    arrays = {name: np.array(array) for name, array in lm.load(weights).items()}
    older = (("model.language_model.", "model."), ("model.visual.", "visual."))
    for new, old in older:
        arrays = {name.replace(new, old): array for name, array in arrays.items()}
    lm.save(weights, arrays)
    found = lm.models.load(tmp_path, backend="reference").generate(text, 8, images=images)
    assert found == expected


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seeing")
    saved("idefics3", folder)
    return folder


def read_tokens(model: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens each later step reads."""
    counts: list[int] = []
    read = model.programs.read

    def counted(texts: Any, features: Any) -> Any:
        counts.append(len(texts[0].unread))
        return read(texts, features)

    monkeypatch.setattr(model.programs, "read", counted)
    return counts


def test_a_chat_reads_an_image_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = lm.models.load(folder, backend="reference")
    part = {"type": "image", "image": picture(30, 20)}
    first = [{"role": "user", "content": [part, {"type": "text", "text": "w7"}]}]
    answer = model.chat(first, 4)
    longer = [*first, {"role": "assistant", "content": answer}, {"role": "user", "content": "w8"}]
    expected = lm.models.load(folder, backend="reference").chat(longer, 4)
    counts = read_tokens(model, monkeypatch)
    assert model.chat(longer, 4) == expected
    assert counts[0] < 10  # the image and what was said about it are in the caches
    # Another image in the same place has the same ids; it must be read nevertheless.
    part["image"] = picture(30, 20, seed=5)
    expected = lm.models.load(folder, backend="reference").chat(longer, 4)
    counts.clear()
    assert model.chat(longer, 4) == expected
    assert counts[0] > 30


def test_images_of_a_chat_may_be_given_aside(folder: Path, tmp_path: Path) -> None:
    model = lm.models.load(folder, backend="reference")
    image = picture(30, 20)
    image.save(tmp_path / "a.png")
    content: list[Any] = [{"type": "image"}, {"type": "text", "text": "w7"}]
    aside = model.chat([{"role": "user", "content": content}], 4, images=[image])
    for given in (tmp_path / "a.png", str(tmp_path / "a.png"), np.asarray(image)):
        content[0] = {"type": "image", "image": given}
        assert model.chat([{"role": "user", "content": content}], 4) == aside
    # What a user writes is no placeholder.
    assert "w" in model.chat("<image> w7", 4)
    with pytest.raises(InputError, match="more parts of type 'image' than images, 0; give each"):
        model.chat([{"role": "user", "content": [{"type": "image"}]}])
    with pytest.raises(InputError, match="1 of 1 images have no part; write"):
        model.chat("w7", images=[image])


def test_what_is_wrong_with_images(folder: Path, tmp_path: Path) -> None:
    model = lm.models.load(folder, backend="reference", context=60)
    one = picture(9, 9)
    for prompt, images, message in (
        ("w1", [one], r"there are 1, but the prompt has 0 placeholders; write '<image>' once"),
        ("w1 <image>", [], r"there are 0, but the prompt has 1 placeholders"),
        ([1, 2], [one], r"1 with 40 vectors, but the prompt has 0 tokens of id 41 \('<image>'\)"),
        ("<image>", one, r"is no list; give a list of images"),
        (
            "<image>",
            [7],
            r"images: 7 is none; give a file, an image of Pillow or an array of bytes",
        ),
        ("<image>", [np.zeros((4, 4, 3))], r"an array is float64 of shape \(4, 4, 3\); give uint8"),
        ("<image>" * 2, [picture(60, 33)] * 2, r"context is 60; 56 stand for images: give fewer"),
    ):
        with pytest.raises(InputError, match=message):
            model.stream(prompt, images=images)  # type: ignore[arg-type]
    with pytest.raises(LoadError, match="No such file"):
        model.generate("<image>", images=[tmp_path / "none.png"])
    with pytest.raises(InputError, match="1 lists for 2 prompts; give one for each"):
        model.generate(["w1", "w2"], images=[[]])
    (tmp_path / "a").mkdir()
    saved("idefics3", tmp_path / "a")
    path = tmp_path / "a" / "processor_config.json"
    text = path.read_text()
    path.unlink()
    blind = lm.models.load(tmp_path / "a", backend="reference")
    assert blind.complete(["w1"], 2)[0].tokens
    with pytest.raises(InputError, match=r"no preprocessor_config.json in it, which says how"):
        blind.generate("<image>", images=[one])
    settings = json.loads(text)
    settings["image_processor"]["max_image_size"] = {"longest_edge": 32}
    path.write_text(json.dumps(settings))
    with pytest.raises(LoadError, match="\\(32, 32\\) pixels, the tower takes 16 x 16; take the"):
        lm.models.load(tmp_path / "a", backend="reference")


def test_a_model_that_reads_text_alone_sees_nothing() -> None:
    model = lm.models.load(lm.models.SHIPPED, backend="reference")
    with pytest.raises(InputError, match=r"the model reads text alone; docs/models.md has those"):
        model.generate("HAMLET", images=[picture(9, 9)])


def test_the_commands(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    file = tmp_path / "a.png"
    picture(30, 20).save(file)
    model = lm.models.load(folder, backend="reference")

    def run(*arguments: str) -> str:
        options = ["--model", str(folder), "--backend", "reference", "--max-tokens", "4"]
        monkeypatch.setattr(sys, "argv", ["luminal", *arguments, *options])
        with pytest.raises(SystemExit) as done:
            main()
        return str(done.value.code)

    assert run("generate", "--prompt", "<image> w7", "--image", str(file)) == "0"
    expected = model.generate("<image> w7", 4, images=[file])
    assert capsys.readouterr().out == f"<image> w7{expected}\n"
    content = [{"type": "image", "image": file}, {"type": "text", "text": "w7"}]
    expected = model.chat([{"role": "user", "content": content}], 4)
    for more, lines in (([], f"/image {file}\nw7\n"), (["--image", str(file)], "w7\n")):
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        assert run("chat", "--temperature", "0", *more) == "0"
        assert capsys.readouterr().out == f"{expected}\n"
