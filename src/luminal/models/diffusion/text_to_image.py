"""Draws a text: noise becomes latents step by step, latents become a picture."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import track

from luminal.base import dtypes
from luminal.base.errors import InputError
from luminal.base.number_kinds import is_number
from luminal.frontend.movement.views import concat
from luminal.loaders.clip_tokenizer import PaddedTokenizer
from luminal.loaders.shown import shown
from luminal.models.clip import ClipText
from luminal.models.diffusion.samplers import SAMPLERS, Noise, Plan, Step
from luminal.models.diffusion.unet import UNet
from luminal.models.diffusion.vae import Vae
from luminal.models.sampling import checked_count
from luminal.runtime.executable import Executable
from luminal.search.options import CompilationMode
from luminal.session.device_choice import chosen_device
from luminal.session.graph import Graph, compile

if TYPE_CHECKING:
    from PIL.Image import Image

Array = np.ndarray[Any, Any]
_MOST_GUIDANCE = 1e6
_MOST_SIDE = 1 << 14


class TextToImage:
    """A loaded Stable Diffusion: a program for texts, and for each size of pictures one for a step,
    whatever the sampler, and one for pixels.
    """

    def __init__(
        self,
        unet: UNet,
        vae: Vae,
        text: ClipText,
        tokenizer: PaddedTokenizer,
        noise: Noise,
        mode: CompilationMode | str = "fast",
        backend: str | None = None,
    ) -> None:
        self.unet, self.vae, self.text = unet, vae, text
        self.tokenizer, self.noise = tokenizer, noise
        self.mode, self.backend = mode, chosen_device(backend)
        self._programs: dict[tuple[Any, ...], Executable] = {}

    def __repr__(self) -> str:
        side = self.unet.config.side * self.vae.config.step
        return f"TextToImage(pictures of {side} x {side}; {self.backend})"

    def draw(
        self,
        prompt: str,
        steps: int = 30,
        guidance: float = 7.5,
        seed: int = 0,
        size: int | tuple[int, int] | None = None,
        sampler: str = "ddim",
        negative: str = "",
        progress: bool = True,
    ) -> Image:
        """A picture of what `prompt` says; the same seed gives the same picture.

        `guidance`: how far the text moves each step, up to 1 for as it was trained (Ho and
        Salimans, arXiv 2207.12598); `negative` says what to move away from. `size`: (width, height)
        in pixels or one number for both, by default as it was trained. `sampler`: "ddim" or
        "euler".
        `progress`: show a bar where the standard error is a terminal. Raises InputError.
        """
        for name, text in (("prompt", prompt), ("negative", negative)):
            if not isinstance(text, str):
                raise InputError(f"draw: {name} is {shown(text)}; it must be a text")
        if not is_number(guidance, Real) or not 0 <= guidance <= _MOST_GUIDANCE:
            raise InputError(f"draw: guidance is {shown(guidance)}; it must be 0 or above")
        plan = self._plan(sampler, steps)
        shape = self._shape(size)
        checked_count("draw: seed", seed, 0)
        guided = bool(guidance > 1)  # below, as models that learned guidance are asked
        told = self.encode([negative, prompt] if guided else [prompt])
        latents = self.initial(seed, shape) * np.float32(plan.start)
        program = self._step_program(shape, guided)
        for step in _shown(plan.steps, progress):
            numbers = np.array([*step, guidance], np.float32)
            latents = program(latents=latents, text=told, numbers=numbers)["latents"]
        return self.picture(latents)

    def encode(self, texts: list[str]) -> Array:
        """What one or two texts tell the U-Net: (texts, tokens, features). Raises InputError."""
        ids = np.array([self.tokenizer.ids(text) for text in texts], np.int32)
        return np.asarray(self._text_program()(ids=ids)["told"])

    def initial(self, seed: int, shape: tuple[int, int]) -> Array:
        """The noise that a picture with latents of (height, width) begins with, of variance 1."""
        rng = np.random.default_rng(seed)
        count = self.unet.config.inputs
        return rng.standard_normal((1, count, *shape), dtype=np.float32)

    def picture(self, latents: Array) -> Image:
        """The picture of latents (1, latents, height, width)."""
        from PIL import Image

        pixels = self._picture_program(latents.shape[2:])(latents=latents)["pixels"]
        # Rounded here, since what is cast to bytes is cut off.
        return Image.fromarray(np.round(np.asarray(pixels) * 255).astype(np.uint8))

    def _plan(self, sampler: str, steps: int) -> Plan:
        if not isinstance(sampler, str) or sampler not in SAMPLERS:
            raise InputError(
                f"draw: sampler is {shown(sampler)}; it is one of {', '.join(map(repr, SAMPLERS))}"
            )
        checked_count("draw: steps", steps, 1)
        if steps > len(self.noise.alphas):
            raise InputError(
                f"draw: steps is {steps}; the model was trained with {len(self.noise.alphas)}"
            )
        return SAMPLERS[sampler](self.noise, steps)

    def _shape(self, size: int | tuple[int, int] | None) -> tuple[int, int]:
        """(height, width) of the latents."""
        pixels = self.vae.config.step
        if size is None:
            return (self.unet.config.side,) * 2
        sides = (size, size) if isinstance(size, int) else size
        if not isinstance(sides, tuple | list) or len(sides) != 2:
            raise InputError(f"draw: size is {shown(size)}; give (width, height), or one number")
        step = pixels * self.unet.config.step
        for side in sides:
            if checked_count("draw: size", side, 1) % step or side > _MOST_SIDE:
                nearest = min(max(round(side / step), 1) * step, _MOST_SIDE)
                raise InputError(
                    f"draw: size {side} is no multiple of {step} up to {_MOST_SIDE}; take {nearest}"
                )
        width, height = sides
        return height // pixels, width // pixels

    def _text_program(self) -> Executable:
        def record(graph: Graph) -> None:
            shape = graph.dim("b", 1, 2), self.tokenizer.length
            self.text(graph.tensor(shape, dtypes.int32, "ids")).output("told")

        return self._program(("text",), record)

    def _step_program(self, shape: tuple[int, int], guided: bool) -> Executable:
        """One step, whatever the sampler: its numbers and the guidance are an input."""

        def record(graph: Graph) -> None:
            config, texts = self.unet.config, 2 if guided else 1
            latents = graph.tensor((1, config.inputs, *shape), dtypes.float32, "latents")
            told_shape = texts, self.tokenizer.length, config.text
            told = graph.tensor(told_shape, dtypes.float32, "text")
            count = len(Step._fields) + 1
            numbers = graph.tensor((count,), dtypes.float32, "numbers")
            time, scale, keep, add, guidance = (numbers[n] for n in range(count))
            seen = latents * scale
            # With and without the text at once: both read the same weights.
            seen = concat((seen, seen), 0) if guided else seen
            said = self.unet(seen, time, told)
            if guided:
                plain, moved = said[:1], said[1:]
                said = plain + (moved - plain) * guidance
            (latents * keep + said * add).output("latents")

        return self._program(("step", shape, guided), record)

    def _picture_program(self, shape: tuple[int, ...]) -> Executable:
        """Latents (1, latents, h, w) to pixels (height, width, 3) from 0 to 1."""

        def record(graph: Graph) -> None:
            latents = (1, self.vae.config.latents, *shape)
            picture = self.vae.decode(graph.tensor(latents, dtypes.float32, "latents"))
            pixels = (picture / 2 + 0.5).clamp(0, 1).squeeze(0).movedim(0, -1)
            pixels.output("pixels")

        return self._program(("picture", shape), record)

    def _program(self, key: tuple[Any, ...], record: Any) -> Executable:
        if key not in self._programs:
            graph = Graph(key[0])
            record(graph)
            self._programs[key] = compile(graph, backend=self.backend, mode=self.mode)
        return self._programs[key]


def _shown(steps: list[Step], progress: bool) -> Iterable[Step]:
    """The steps, with a bar on a terminal."""
    console = Console(stderr=True)
    if not progress or not console.is_terminal:
        return steps
    return track(steps, "drawing", console=console, transient=True)
