"""Stable Diffusion: each part, each step and the pictures as those of diffusers."""

from __future__ import annotations

import inspect
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import InputError, LoadError
from luminal.cli.main import main
from luminal.loaders.clip_tokenizer import read_clip_tokenizer
from luminal.loaders.fields import Fields
from luminal.loaders.image import read_image
from luminal.models.diffusion.samplers import SAMPLERS
from luminal.models.diffusion.text_to_image import TextToImage
from luminal.models.families.diffusion import noise_of
from tests.close import close_to_greatest
from tests.models.small_diffusion import (
    LENGTH,
    SCHEDULER,
    UNET,
    diffusers,
    saved,
    torch,
    transformers,
    vocabulary,
    with_old_tokenizer,
)

Image = pytest.importorskip("PIL.Image")

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # in diffusers

SCHEDULERS = {"ddim": diffusers.DDIMScheduler, "euler": diffusers.EulerDiscreteScheduler}
SECOND = {
    "attention_head_dim": (2, 4),
    "use_linear_projection": True,
    "transformer_layers_per_block": (1, 2),
    "layers_per_block": 2,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    "flip_sin_to_cos": False,
    "freq_shift": 1,
}
"""What differs in Stable Diffusion 2 and other networks."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that no test changes."""
    folder = tmp_path_factory.mktemp("kept")
    saved(folder)
    return folder


@pytest.fixture
def copied(kept: Path, tmp_path: Path) -> Path:
    """A folder of one test."""
    return Path(shutil.copytree(kept, tmp_path / "copied"))


def check_pictures(folder: Path, backend: str, size: tuple[int, int], **options: Any) -> None:
    """By both samplers, of the same noise."""
    loaded = lm.models.load(folder, backend=backend)
    assert isinstance(loaded, TextToImage)
    theirs = diffusers.StableDiffusionPipeline.from_pretrained(folder, safety_checker=None)
    theirs.set_progress_bar_config(disable=True)
    before = lm.compile_count()
    guidance = options.get("guidance", 7.5)
    for sampler, scheduler in SCHEDULERS.items():
        theirs.scheduler = scheduler.from_pretrained(folder / "scheduler")
        latents = loaded.initial(3, (size[1] // 2, size[0] // 2))
        (wanted,) = theirs(
            "the cat",
            width=size[0],
            height=size[1],
            num_inference_steps=2,
            guidance_scale=guidance,
            negative_prompt="dog",
            latents=torch.from_numpy(latents),
        ).images
        found = loaded.draw("the cat", 2, guidance, 3, size, sampler, "dog")
        assert found.size == size
        difference = np.asarray(found).astype(int) - np.asarray(wanted).astype(int)
        assert np.abs(difference).max() <= 1  # where a value lies between two bytes
        assert np.asarray(wanted).std() > 10
    assert lm.compile_count() - before == 3


def test_pictures_are_those_of_diffusers(kept: Path) -> None:
    check_pictures(kept, "reference", (8, 16))


@pytest.mark.long
@pytest.mark.parametrize("guidance", [0, 4.0])
def test_compiled_pictures(guidance: float, tmp_path: Path) -> None:
    saved(tmp_path, SECOND, prediction_type="v_prediction", timestep_spacing="trailing")
    check_pictures(tmp_path, "cpu", (24, 16), guidance=guidance)


def check_noise(unet: dict[str, Any], folder: Path, backend: str) -> None:
    """What the U-Net says of two latents."""
    theirs = saved(folder, unet).unet
    rng = np.random.default_rng(0)
    latents = rng.standard_normal((2, 4, 6, 8)).astype(np.float32)
    text = rng.standard_normal((2, LENGTH, UNET["cross_attention_dim"])).astype(np.float32)
    graph = lm.Graph()
    inputs = {"latents": latents, "time": np.float32(701.5), "text": text}
    tensors = [graph.tensor(np.shape(x), lm.float32, name) for name, x in inputs.items()]
    lm.models.load(folder, backend="reference").unet(*tensors).output("noise")
    with torch.no_grad():
        wanted = theirs(torch.from_numpy(latents), 701.5, torch.from_numpy(text)).sample
    close_to_greatest(graph.compile(backend)(inputs)["noise"], wanted.numpy())


def test_noise_is_that_of_diffusers(tmp_path: Path) -> None:
    check_noise(SECOND, tmp_path, "reference")


@pytest.mark.long
def test_compiled_noise(tmp_path: Path) -> None:
    check_noise(SECOND, tmp_path, "cpu")


def check_vae(folder: Path, backend: str, old: bool) -> None:
    """Both ways of two pictures."""
    theirs = saved(folder).vae
    if old:  # the names and shapes of folders before diffusers 0.16
        path = folder / "vae" / "diffusion_pytorch_model.safetensors"
        names = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
        weights = {}
        for name, array in lm.load(path).items():
            for new, before in names.items():
                name = re.sub(rf"\.{re.escape(new)}\.", f".{before}.", name)
            is_matrix = "attentions" in name and array.ndim == 2
            weights[name] = np.array(array)[..., None, None] if is_matrix else np.array(array)
        lm.save(path, weights)
    pictures = np.random.default_rng(0).standard_normal((2, 3, 12, 16)).astype(np.float32)
    vae = lm.models.load(folder, backend="reference").vae
    graph = lm.Graph()
    latents = vae.encode(graph.tensor(pictures.shape, lm.float32, "pictures")).output("latents")
    vae.decode(latents).output("back")
    with torch.no_grad():
        scale = theirs.config.scaling_factor
        mean = theirs.encode(torch.from_numpy(pictures)).latent_dist.mode()
        back = theirs.decode(mean).sample
    found = graph.compile(backend)(pictures=pictures)
    close_to_greatest(found["latents"], mean.numpy() * scale)
    close_to_greatest(found["back"], back.numpy())


@pytest.mark.parametrize("old", [True, pytest.param(False, marks=pytest.mark.long)])
def test_latents_are_those_of_diffusers(old: bool, tmp_path: Path) -> None:
    check_vae(tmp_path, "reference", old)


@pytest.mark.long
def test_compiled_latents(tmp_path: Path) -> None:
    check_vae(tmp_path, "cpu", old=False)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_steps_are_those_of_diffusers(sampler: str) -> None:
    for spacing, prediction in ((None, "epsilon"), ("leading", "v_prediction")):
        check_steps(sampler, spacing, prediction, (1, 5))


@pytest.mark.long
@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction"])
@pytest.mark.parametrize("spacing", [None, "leading", "trailing", "linspace"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_all_steps(sampler: str, spacing: str | None, prediction: str) -> None:
    check_steps(sampler, spacing, prediction, (1, 7, 50))


def check_steps(
    sampler: str, spacing: str | None, prediction: str, counts: tuple[int, ...]
) -> None:
    """Of what a network might say, by two schedules."""
    settings = SCHEDULER | {"prediction_type": prediction}
    settings |= {} if spacing is None else {"timestep_spacing": spacing}
    rng = np.random.default_rng(0)
    for schedule in ("scaled_linear", "linear"):
        noise = noise_of(Fields(settings | {"beta_schedule": schedule}, Path("scheduler")))
        for count in counts:
            theirs = SCHEDULERS[sampler].from_config(settings | {"beta_schedule": schedule})
            theirs.set_timesteps(count)
            start, steps = SAMPLERS[sampler](noise, count)
            # alphas are float32 there, of a product of a thousand factors
            assert start == pytest.approx(float(theirs.init_noise_sigma), rel=1e-4)
            assert len(steps) == len(theirs.timesteps) == count
            own = wanted = rng.standard_normal((1, 4, 2, 2)) * start
            for step, time in zip(steps, theirs.timesteps, strict=True):
                # moments are float32 there
                assert step.time == pytest.approx(float(time), rel=1e-6)
                other = torch.from_numpy(wanted.astype(np.float32))
                seen = theirs.scale_model_input(other, time)
                close_to_greatest((step.scale * own).astype(np.float32), seen.numpy())
                said = rng.standard_normal(own.shape)
                own = step.keep * own + step.add * said
                given = torch.from_numpy(said.astype(np.float32))
                wanted = theirs.step(given, time, other).prev_sample.numpy()
                close_to_greatest(own.astype(np.float32), wanted)


PROMPTS = ("A cat's\n  the DOG!", "", "dog " * 20, "3 <|endoftext|> !!?", "cat, é the")


@pytest.mark.parametrize("old", [False, True])
def test_ids_are_those_of_transformers(old: bool, kept: Path, tmp_path: Path) -> None:
    if old:
        with_old_tokenizer(tmp_path)
        theirs = transformers.CLIPTokenizer.from_pretrained(tmp_path, model_max_length=LENGTH)
    else:
        theirs = transformers.CLIPTokenizer.from_pretrained(kept / "tokenizer")
    ours = read_clip_tokenizer(tmp_path if old else kept / "tokenizer", LENGTH)
    for prompt in PROMPTS:
        wanted = theirs(prompt, padding="max_length", truncation=True, max_length=LENGTH)
        assert ours.ids(prompt) == wanted["input_ids"], prompt
    assert ours.padding == vocabulary()["!" if old else "<|endoftext|>"]


@pytest.mark.long
def test_weights_of_sixteen_bits(tmp_path: Path) -> None:
    pipeline = saved(tmp_path / "whole")
    # Halves of a folder lie in files whose names say so.
    pipeline.to(torch.float16).save_pretrained(tmp_path / "half", variant="fp16")
    wanted = pipeline.to(torch.float32)
    wanted.save_pretrained(tmp_path / "rounded")
    pictures = [
        lm.models.load(tmp_path / name, backend="reference").draw("cat", 2, progress=False)
        for name in ("half", "rounded")
    ]
    assert not list((tmp_path / "half").glob("*/diffusion_pytorch_model.safetensors"))
    difference = np.subtract(*(np.asarray(picture).astype(int) for picture in pictures))
    assert np.abs(difference).max() <= 1  # where a value lies between two bytes


def test_what_is_not_drawn(kept: Path) -> None:
    loaded = lm.models.load(kept, backend="reference")
    for options, message in (
        ({"prompt": 7}, "prompt is 7; it must be a text"),
        ({"sampler": "heun"}, "sampler is 'heun'; it is one of 'ddim', 'euler'"),
        ({"steps": 0}, "steps: 0 is not 1 or above"),
        ({"steps": 2000}, "steps is 2000; the model was trained with 1000"),
        ({"guidance": np.nan}, "guidance is nan; it must be 0 or above"),
        ({"seed": -1}, "seed: -1 is not 0 or above"),
        ({"size": 30}, "size 30 is no multiple of 4 up to 16384; take 32"),
        ({"size": (16, 16, 16)}, r"size is \(16, 16, 16\); give \(width, height\), or one number"),
        ({"negative": None}, "negative is None; it must be a text"),
    ):
        with pytest.raises(InputError, match=message):
            loaded.draw(**{"prompt": "cat", **options})
    with pytest.raises(InputError, match=r"no language model, which alone takes context=; leave"):
        lm.models.load(kept, context=8)


DAMAGED: dict[str, tuple[str, dict[str, Any], str]] = {
    "kind": ("model_index.json", {"_class_name": "FluxPipeline"}, "'FluxPipeline' is not supp"),
    "levels": ("unet/config.json", {"down_block_types": ["DownBlock2D"]}, "it must have 2 of Down"),
    "widths": ("unet/config.json", {"block_out_channels": [16, -1]}, "all must be from 1 to 65536"),
    "heads": ("unet/config.json", {"attention_head_dim": 5}, "16 does not divide among"),
    "groups": ("unet/config.json", {"norm_num_groups": 3}, "do not divide into 3 groups"),
    "more": ("unet/config.json", {"addition_embed_type": "text_time"}, "'text_time' is not supp"),
    "text": ("unet/config.json", {"cross_attention_dim": 32}, "misshapen|shape|cross_attention"),
    "shift": ("vae/config.json", {"shift_factor": 0.1}, "shift_factor=0.1 is not supported"),
    "betas": ("scheduler/scheduler_config.json", {"beta_schedule": "sigmoid"}, "'sigmoid' is not"),
    "sample": ("scheduler/scheduler_config.json", {"prediction_type": "sample"}, "'sample' is not"),
    "token": ("tokenizer/tokenizer_config.json", {"pad_token": "zz"}, "has no 'zz', which is its"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_settings_must_not_say(name: str, copied: Path) -> None:
    file, change, message = DAMAGED[name]
    path = copied / file
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(LoadError, match=message):
        lm.models.load(copied)


def test_folders_that_lack_a_part(copied: Path) -> None:
    (copied / "vae" / "diffusion_pytorch_model.safetensors").unlink()
    with pytest.raises(LoadError, match=r"vae: no diffusion_pytorch_model.safetensors in it"):
        lm.models.load(copied)
    (copied / "unet" / "config.json").unlink()
    with pytest.raises(LoadError, match=r"unet: no config.json in it; all folders of the pipeline"):
        lm.models.load(copied)


def run_draw(monkeypatch: pytest.MonkeyPatch, folder: Path, *more: object) -> str:
    """The error of `luminal draw`."""
    words = "luminal", "draw", "the cat", "--model", folder, "--backend", "reference", *more
    monkeypatch.setattr("sys.argv", [*map(str, words)])
    with pytest.raises(SystemExit) as done:
        main()
    return str(done.value.code or "")


OPTIONS = ("--steps", 1, "--seed", 1, "--size", "16x24", "--sampler", "euler", "--guidance", 3)


def test_options_of_the_command_draw(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def draw(self: TextToImage, *arguments: Any) -> Any:
        asked.append(inspect.signature(own).bind(self, *arguments).arguments)
        return Image.new("RGB", (16, 24))

    own = TextToImage.draw
    monkeypatch.setattr(TextToImage, "draw", draw)
    out = tmp_path / "out.png"
    assert run_draw(monkeypatch, kept, "-o", out, *OPTIONS, "--negative", "dog") == ""
    wanted = {"prompt": "the cat", "steps": 1, "guidance": 3, "seed": 1, "size": (16, 24)}
    wanted |= {"sampler": "euler", "negative": "dog"}
    assert {key: value for key, value in asked[0].items() if key != "self"} == wanted
    assert read_image(out).size == (16, 24)
    wrong = run_draw(monkeypatch, kept, "-o", out, "--size", 16)
    assert "--size 16 is not WIDTHxHEIGHT; give one as 512x512" in wrong
    assert "no image that Pillow writes ends so" in run_draw(monkeypatch, kept, "-o", f"{out}.txt")
    absent = run_draw(monkeypatch, Path("nowhere"), "-o", tmp_path / "absent" / "out.png")
    assert "there is no folder" in absent  # before the model is read


@pytest.mark.long
def test_the_command_draw(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.png"
    assert run_draw(monkeypatch, kept, "-o", out, *OPTIONS) == ""
    picture = lm.models.load(kept, backend="reference").draw(
        "the cat", 1, 3, seed=1, size=(16, 24), sampler="euler"
    )
    np.testing.assert_array_equal(np.asarray(read_image(out)), np.asarray(picture))
