"""VITS: durations, latents and samples as transformers', with the same noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import InputError, LoadError
from luminal.cli.main import main
from luminal.loaders.wav import read_wav
from luminal.models.families import read_model
from luminal.models.speak import SpeechSynthesizer, Voice, frames_of
from luminal.models.vits import Vits
from luminal.models.vits_durations import inverse_spline
from tests.close import close_to_greatest
from tests.models.small_vits import PLAIN, VOICES, drawn, saved, torch, transformers

KINDS: dict[str, dict[str, Any]] = {
    "drawn": {},
    "plain": PLAIN,
    "voices": VOICES,
    "plain_voices": PLAIN | VOICES,
}


def check_speech(folder: Path, backend: str, *texts: str, **changes: Any) -> None:
    """What a loaded model says, with noise and without, by two programs."""
    model = saved(folder, **changes)
    loaded = lm.models.load(folder, backend=backend)
    assert isinstance(loaded, SpeechSynthesizer)
    config = loaded.model.config
    before, flow, hop = lm.compile_count(), config.flow.size, config.decoder.hop
    for seed, text in enumerate(texts):
        ids = transformers.VitsTokenizer.from_pretrained(folder)(text, return_tensors="pt")
        rng = np.random.default_rng(seed)
        durations = rng.standard_normal((1, 2, ids["input_ids"].shape[1]), np.float32)
        for voice in (Voice(), Voice(noise=0, duration_noise=0)):
            model.noise_scale, model.noise_scale_duration = voice.noise, voice.duration_noise
            found = loaded.speak(text, seed=seed, speed=1.25, voice=voice)
            latents = np.random.default_rng(seed)
            latents.standard_normal(durations.shape, np.float32)
            noise = latents.standard_normal((len(found) // hop, flow), np.float32)[None]
            speaker = {"speaker_id": 0} if config.speakers else {}
            with torch.no_grad(), drawn(durations, noise):
                wanted = model(**ids, **speaker, speaking_rate=1.25).waveform[0].numpy()
            close_to_greatest(found, wanted)
    assert lm.compile_count() - before == 2


def test_speech_is_that_of_transformers(tmp_path: Path) -> None:
    check_speech(tmp_path, "reference", "a bad cab")


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_speech(kind: str, tmp_path: Path) -> None:
    check_speech(tmp_path, "cpu", "a bad cab", "e", "dead bee, a faded Abacad", **KINDS[kind])


def check_batch(folder: Path, backend: str, lengths: list[int], **changes: Any) -> None:
    """Of texts in a batch; what follows a text's end changes nothing."""
    model = saved(folder, **changes)
    rng = np.random.default_rng(1)
    batch, longest = len(lengths), max(lengths)
    ids = rng.integers(0, 12, (batch, longest)).astype(np.int32)
    mask = np.arange(longest) < np.array(lengths)[:, None]
    noise = rng.standard_normal((batch, 2, longest), np.float32)
    flow = model.config.flow_size
    latent_noise = rng.standard_normal((batch, 4096, flow), np.float32)
    speakers = np.array([2] * batch, np.int32)
    voices = {"speaker_id": 2} if model.config.num_speakers > 1 else {}
    model.noise_scale, model.noise_scale_duration = 0.5, 0.7
    with torch.no_grad(), drawn(noise, latent_noise):
        wanted = model(torch.tensor(ids), torch.tensor(mask), **voices)
    loaded = read_model(folder)
    assert isinstance(loaded, Vits)
    graph = lm.Graph()
    b, s = graph.dim("b", 1, 9), graph.dim("s", 1, 99)
    given = {
        "ids": graph.tensor((b, s), lm.int32, "ids"),
        "noise": graph.tensor((b, 2, s), lm.float32, "noise"),
    }
    counts, who = (graph.tensor((b,), lm.int32, name) for name in ("n", "who"))
    read = loaded.read_text(given["ids"], given["noise"], counts, who if voices else None)
    for name, tensor in read._asdict().items():
        tensor.output(name)
    ids[~mask] = 7
    more: dict[str, Any] = {"who": speakers} if voices else {}
    found = graph.compile(backend=backend)(
        ids=ids, noise=noise * np.float32(0.7), n=np.array(lengths, np.int32), **more
    )
    frames = [
        frames_of(np.asarray(logs)[:length], 1.0)
        for logs, length in zip(found["log_durations"], lengths, strict=True)
    ]
    totals = [int(each.sum()) for each in frames]
    np.testing.assert_array_equal(
        np.array(totals) * loaded.config.decoder.hop, wanted.sequence_lengths.numpy()
    )
    latents = np.full((batch, max(totals), flow), 9, np.float32)
    for row, each in enumerate(frames):
        means, logs = (
            np.repeat(np.asarray(found[name])[row, : lengths[row]], each, 0)
            for name in ("means", "log_deviations")
        )
        latents[row, : totals[row]] = means + latent_noise[row, : totals[row]] * np.exp(
            logs
        ) * np.float32(0.5)
    graph = lm.Graph()
    b, f = graph.dim("b", 1, 9), graph.dim("f", 1, 4096)
    x = graph.tensor((b, f, flow), lm.float32, "x")
    counts, who = (graph.tensor((b,), lm.int32, name) for name in ("n", "who"))
    loaded.speak(x, counts, who if voices else None).output("samples")
    samples = graph.compile(backend=backend)(x=latents, n=np.array(totals, np.int32), **more)
    close_to_greatest(np.asarray(samples["samples"]), wanted.waveform.numpy())


def test_texts_in_a_batch(tmp_path: Path) -> None:
    check_batch(tmp_path, "reference", [3, 7, 1])


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_batch(kind: str, tmp_path: Path) -> None:
    check_batch(tmp_path, "cpu", [12, 5, 9, 1], **KINDS[kind])


def drawn_settings(seed: int) -> dict[str, Any]:
    """Any configuration that there may be."""
    rng = np.random.default_rng(seed)

    def one(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    stages, blocks, heads = one(1, 2, 3), one(1, 2, 3), one(1, 2, 3)
    rates = [one(1, 2, 3, 5) for _ in range(stages)]
    settings: dict[str, Any] = {
        "hidden_size": heads * one(4, 6, 9),
        "num_hidden_layers": one(1, 2),
        "num_attention_heads": heads,
        "window_size": one(1, 2, 5),
        "ffn_kernel_size": one(1, 2, 3, 4),
        "hidden_act": one("relu", "gelu", "silu"),
        "use_bias": one(True, False),
        "flow_size": one(2, 6, 10),
        "upsample_initial_channel": one(8, 11, 16),
        "upsample_rates": rates,
        "upsample_kernel_sizes": [rate + one(0, 2, 4) for rate in rates],
        "resblock_kernel_sizes": [one(1, 3, 5) for _ in range(blocks)],
        "resblock_dilation_sizes": [[one(1, 2, 4)] * one(1, 2) for _ in range(blocks)],
        "leaky_relu_slope": one(0.1, 0.3),
        "depth_separable_num_layers": one(1, 2, 3),
        "duration_predictor_flow_bins": one(2, 4, 10),
        "duration_predictor_tail_bound": one(1.0, 5.0),
        "duration_predictor_kernel_size": one(1, 3, 5),
        "duration_predictor_num_flows": one(0, 1, 2, 4),
        "prior_encoder_num_flows": one(1, 2, 3),
        "prior_encoder_num_wavenet_layers": one(1, 2, 3),
        "wavenet_kernel_size": one(1, 3, 5),
        "wavenet_dilation_rate": one(1, 2, 3),
    }  # fmt: skip
    settings |= one({}, PLAIN)
    settings |= one({}, VOICES, {"speaker_embedding_size": 5})
    return settings


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_drawn_settings(seed: int, tmp_path: Path) -> None:
    backend = "cpu" if seed < 4 else "reference"
    check_batch(tmp_path, backend, [4, 9, 1], **drawn_settings(seed))


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_of_16_bits(dtype: str, tmp_path: Path) -> None:
    """They are computed with in 32 bits."""
    model = saved(tmp_path)
    latents = np.random.default_rng(0).standard_normal((1, 20, 8)).astype(np.float32)
    ids, noise = np.array([[1, 5, 3, 0]], np.int32), np.ones((1, 2, 4), np.float32)

    def outputs() -> list[Any]:
        graph, loaded = lm.Graph(), read_model(tmp_path)
        assert isinstance(loaded, Vits)
        loaded.speak(graph.tensor(latents.shape, lm.float32, "x")).output("samples")
        read = loaded.read_text(
            graph.tensor(ids.shape, lm.int32, "ids"), graph.tensor(noise.shape, lm.float32, "noise")
        )
        for name, tensor in read._asdict().items():
            tensor.output(name)
        made = graph.compile("cpu")(x=latents, ids=ids, noise=noise)
        return [np.asarray(made[name]) for name in ("samples", *read._fields)]

    wanted = outputs()
    model.to(getattr(torch, dtype)).save_pretrained(tmp_path)
    bound = {"float16": 1e-2, "bfloat16": 8e-2}[dtype]  # some times their precision
    for narrow, wide in zip(outputs(), wanted, strict=True):
        assert narrow.dtype == np.float32
        close_to_greatest(narrow, wide, bound)
        assert (narrow != wide).any()


@pytest.mark.parametrize("bound", [5.0, 1.5])
def test_splines(bound: float) -> None:
    """What transformers computes forwards of it, in float64, is the value again."""
    module = pytest.importorskip("transformers.models.vits.modeling_vits")
    rng = np.random.default_rng(0)
    y = rng.uniform(-1.3 * bound, 1.3 * bound, (2, 60)).astype(np.float32)
    y[0, :2] = -bound, bound
    parts = [rng.standard_normal((2, 60, n)).astype(np.float32) for n in (5, 5, 4)]
    graph = lm.Graph()
    tensors = [graph.tensor(each.shape, lm.float32, f"x{n}") for n, each in enumerate((y, *parts))]
    inverse_spline(tensors[0], tensors[1], tensors[2], tensors[3], bound).output("x")
    values: dict[str, Any] = {f"x{n}": each for n, each in enumerate((y, *parts))}
    found = np.asarray(graph.compile(backend="reference")(**values)["x"])
    wide = [torch.tensor(each, dtype=torch.float64) for each in (found, *parts)]
    again, _ = module._unconstrained_rational_quadratic_spline(*wide, tail_bound=bound)
    # Where a bin is narrow the curve is steep, and multiplies the rounding of what it is of.
    np.testing.assert_allclose(again.numpy(), y, rtol=0, atol=3e-5 * bound)
    outside = np.abs(y) > bound
    np.testing.assert_array_equal(found[outside], y[outside])
    assert 0 < outside.sum() < outside.size / 2


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is not damaged, of a model of one voice that has a table of others."""
    folder = tmp_path_factory.mktemp("vits")
    saved(folder, speaker_embedding_size=4)
    return folder


TEXTS = ("ABAD cab", " a!  b?", "ţa Ța ț", "<pad>a", "_a'", "abc-dé")


@pytest.mark.parametrize(
    "settings", [{}, {"add_blank": False}, {"language": "ron"}, {"is_uroman": True}]
)
def test_ids_are_those_of_transformers(settings: dict[str, Any], whole: Path) -> None:
    tokenizer = transformers.VitsTokenizer.from_pretrained(whole, **settings)
    letters = lm.models.load(whole, backend="reference").letters._replace(
        gaps=settings.get("add_blank", True),
        language=settings.get("language", ""),
        is_latin="is_uroman" in settings,
    )
    for text in TEXTS:
        if letters.is_latin and not text.isascii():
            with pytest.raises(InputError, match="has letters that are not Latin"):
                letters.encode(text)
        else:
            assert letters.encode(text) == tokenizer(text)["input_ids"], text


def test_what_is_not_said(whole: Path) -> None:
    loaded = lm.models.load(whole, backend="reference")
    for options, message in (
        ({"text": "xyz!"}, "'xyz!' has no letters that the model knows"),
        ({"text": 7}, "7 is no text; give a string"),
        ({"text": "a", "speed": 5}, "speed is 5; it is from 0.25 to 4"),
        ({"text": "a", "speed": float("nan")}, "speed is nan"),
        ({"text": "a", "speaker": 1}, "speaker is 1; the model has 1, from 0 on"),
        ({"text": "a", "speaker": 0.5}, "speaker is 0.5; the model has 1"),
        ({"text": "a", "speed": "fast"}, "speed is fast; it is from"),
        ({"text": "a", "seed": -1}, "speak: seed=-1 is negative; give an int >= 0"),
        ({"text": "a" * 5000}, "the text has 10001 tokens, at most 8192; give it in parts"),
    ):
        with pytest.raises(InputError, match=message):
            loaded.speak(**options)
    with pytest.raises(InputError, match="would last inf frames, at most 16384"):
        frames_of(np.array([1, 200], np.float32), 1.0)
    with pytest.raises(InputError, match="would last nan frames, at most 16384"):
        frames_of(np.array([1, np.nan], np.float32), 1.0)


def test_a_seed_says_a_text_the_same_way(whole: Path) -> None:
    loaded = lm.models.load(whole, backend="reference")
    first, same, other = (loaded.speak("a bad", seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, same)
    assert first.shape != other.shape or (first != other).any()


def test_the_command_speak(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*more: str) -> str:
        options = ["luminal", "speak", "a bad cab", "--model", str(whole), "--backend", "reference"]
        monkeypatch.setattr("sys.argv", [*options, *more])
        with pytest.raises(SystemExit) as done:
            main()
        return capsys.readouterr().out + str(done.value.code or "")

    path = tmp_path / "a.wav"
    assert run("-o", str(path), "--seed", "3", "--speed", "2") == ""
    found, rate = read_wav(path)
    wanted = lm.models.load(whole, backend="reference").speak("a bad cab", speed=2, seed=3)
    assert rate == 16000
    np.testing.assert_allclose(found, wanted * (2**15 - 1) / 2**15, rtol=0, atol=2**-16)
    assert "must end with .wav; only WAVE is written" in run("-o", str(tmp_path / "a.mp3"))
    assert "speaker is 2; the model has 1" in run("-o", str(path), "--speaker", "2")
    absent = str(tmp_path / "absent" / "a.wav")  # is refused before the model is read
    assert "there is no folder" in run("-o", absent, "--model", "nowhere")


DAMAGED: dict[str, tuple[str, dict[str, Any], str]] = {
    "channels": ("config.json", {"depth_separable_channels": 4}, "depth_separable_channels=4 is"),
    "heads": ("config.json", {"num_attention_heads": 3}, "16 does not divide among num_att.* 3"),
    "flow": ("config.json", {"flow_size": 7}, "flow_size is 7; it must be even"),
    "rates": ("config.json", {"upsample_rates": [4]}, "upsample_rates has 1 numbers, .* 2; there"),
    "narrow": ("config.json", {"upsample_initial_channel": 3}, "the 3 channels of upsample_init"),
    "kernel": ("config.json", {"upsample_kernel_sizes": [7, 4]}, "has 7 for a rate of 4; it must"),
    "blocks": ("config.json", {"resblock_kernel_sizes": [3]}, "has 1 numbers, .* 2; each kernel"),
    "even": ("config.json", {"resblock_kernel_sizes": [3, 4]}, "kernel 4 and dilations .* odd"),
    "gap": ("config.json", {"resblock_dilation_sizes": [[1], [0]]}, "all are from 1 to 65536"),
    "wave": ("config.json", {"wavenet_kernel_size": 4}, "wavenet_kernel_size is 4; it must be odd"),
    "far": ("config.json", {"wavenet_dilation_rate": 65536, "prior_encoder_num_wavenet_layers": 3},
            "3 layers would skip more than 65536 frames"),
    "voices": ("config.json", {"num_speakers": 3, "speaker_embedding_size": 0}, "must be at least"),
    "bins": ("config.json", {"duration_predictor_flow_bins": 1}, "flow_bins is 1, it must be at l"),
    "act": ("config.json", {"hidden_act": "sin"}, "activation 'sin' is not known"),
    "shape": ("config.json", {"ffn_dim": 20}, r"layers.0.up.weight"),
    "phonemes": ("tokenizer_config.json", {"phonemize": True}, "phonemes of espeak, which are not"),
    "case": ("tokenizer_config.json", {"normalize": False}, "normalize=False is not supported"),
    "ids": ("vocab.json", {"a": 12}, "'a' is 12; it must be an id below 12"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_what_settings_must_not_say(name: str, whole: Path, tmp_path: Path) -> None:
    for path in whole.iterdir():
        (tmp_path / path.name).symlink_to(path)
    file, change, message = DAMAGED[name]
    path = tmp_path / file
    values = json.loads(path.read_text())
    path.unlink()
    path.write_text(json.dumps(values | change))
    with pytest.raises(LoadError, match=message):
        lm.models.load(tmp_path)


def test_a_folder_without_letters(whole: Path, tmp_path: Path) -> None:
    for path in whole.iterdir():
        if path.name != "vocab.json":
            (tmp_path / path.name).symlink_to(path)
    with pytest.raises(LoadError, match=r"no vocab.json in it; save_pretrained of the model's tok"):
        lm.models.load(tmp_path)
