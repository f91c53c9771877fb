"""A small model that sees, compared with transformers: pixels, ids, logits, greedy tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import luminal as lm
from luminal.models import LanguageModel
from luminal.models.decoder import Decoder
from luminal.models.seen import Images, Part, Seen, inputs_of, names_of
from tests.close import close, close_to_greatest
from tests.models.small_seeing import torch

Array = np.ndarray[Any, Any]


def pixels_of(model: LanguageModel, images: Sequence[Any]) -> dict[str, Array]:
    """All inputs of the tower for these images, one after the other."""
    assert not isinstance(model.sight, str)
    runs = [run for image in images for run in model.sight.processor.prepare(image).runs]
    return {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}


def check_pixels(model: LanguageModel, processor: Any, images: Sequence[Any]) -> None:
    """What the tower takes of each image alone."""
    for image in images:
        wanted = processor.image_processor(image, return_tensors="np")["pixel_values"]
        found = pixels_of(model, [image])["images"]
        close(found, wanted.reshape(found.shape))


def logits_of(
    decoder: Decoder, texts: Sequence[tuple[list[int], Images | None]], backend: str
) -> Array:
    """Logits of texts of one length, in one batch and without caches."""
    parts = [Part(images, 0, len(ids)) for ids, images in texts]
    names, count = names_of(parts), len(texts[0][0])
    graph = lm.Graph()
    ids = graph.tensor((len(texts), count), lm.int32, "ids")
    seen = Seen.declared(ids, names, decoder.config.hidden_size, 512)
    decoder(ids, seen=seen).output("logits")
    inputs = inputs_of(parts, names, count)
    array = np.array([text for text, _ in texts], np.int32)
    logits: Array = graph.compile(backend)({"ids": array, **inputs})["logits"]
    return logits


def check_texts(
    theirs: Any,
    processor: Any,
    model: LanguageModel,
    texts: Sequence[tuple[str, list[Any]]],
    new: int = 8,
) -> None:
    """Ids, logits without caches and `new` greedy tokens of each text alone, with the
    log-probability of the first; of several then the same in one batch.
    """
    assert not isinstance(model.sight, str)
    alone = []
    for text, images in texts:
        inputs = processor(text=text, images=images or None, return_tensors="pt")
        ids, seen = model.sight.read(text, images)
        assert ids == inputs["input_ids"][0].tolist()
        with torch.no_grad():
            wanted = theirs(**inputs).logits
            made = theirs.generate(**inputs, max_new_tokens=new, do_sample=False)
        close_to_greatest(logits_of(model.model, [(ids, seen)], model.backend), wanted.numpy())
        (found,) = model.complete([text], new, images=[images], logprobs=True)
        assert list(found.tokens) == made[0, len(ids) :].tolist()
        first = wanted[0, -1].double().log_softmax(-1)[found.tokens[0]].numpy()
        close_to_greatest(np.array(found.logprobs[0]), first)
        alone.append(found)
    if len(texts) > 1:
        prompts, images = zip(*texts, strict=True)
        batch = model.complete(prompts, new, images=images, logprobs=True)
        for found, one in zip(batch, alone, strict=True):
            assert found.tokens == one.tokens
            close_to_greatest(np.array(found.logprobs), np.array(one.logprobs))
