"""Damaged folders of every packed format: a LoadError that names the file, the tensor or the key,
and what to do; or what is loaded is a whole model.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from luminal.base.errors import InputError, LoadError
from luminal.models.architectures import decoder_of
from luminal.models.checkpoint import load_checkpoint
from tests.fuzz.damage import damaged_bytes, damaged_json
from tests.long_share import long_but
from tests.models.packings import FORMS, Array, Form, Tensors, tensors_of, write

MODULE = "model.layers.0.mlp.up_proj"
SHORT_DRAWS, LONG_DRAWS = 12, 60
FREE = "g_idx", "weight_format", "input_scale", "weight_zero_point"
"""Parts that a matrix need not have."""


def refusal(folder: Path) -> str:
    """The text of the error, "" where a model was loaded."""
    try:
        model = decoder_of(load_checkpoint(folder, keep_quantized=random.random() < 0.5))
    except (LoadError, InputError) as error:  # InputError: nothing of it is said to be packed
        text = str(error)
        assert str(folder) in text
        assert "\n" not in text
        return text
    for held in model.parameters():
        held.numpy()
    return ""


def parts_of(tensors: Tensors) -> list[str]:
    return [name for name in tensors if name.startswith(f"{MODULE}.")]


def damages(tensors: Tensors) -> Iterator[tuple[str, str, Tensors]]:
    """What is wrong, the tensor's name, and the tensors."""
    for name in parts_of(tensors):
        if name.endswith(".input_scale"):  # of activations: it is not read
            continue
        array, rest = tensors[name], {k: v for k, v in tensors.items() if k != name}
        if not name.endswith(FREE):
            yield "missing", name, rest
        # No part is of complex numbers, nor of integers of 16 bits.
        yield "dtype", name, {**rest, name: np.ones(array.shape, np.int16)}
        if array.ndim and array.size > 1:
            yield "shape", name, {**rest, name: array[:-1]}
        if not name.endswith(FREE) and array.size > 1:  # one scale may have any rank
            yield "rank", name, {**rest, name: array[None, None]}
        if f"{name}.absmax" in tensors:
            continue  # bytes of codes, whatever they are stored as
        if array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16:
            for value in (np.nan, np.inf, -np.inf):
                spoilt = array.copy()
                spoilt.reshape(-1)[-1] = value
                yield "finite", name, {**rest, name: spoilt}


@pytest.mark.parametrize("name", long_but(FORMS, [*FORMS][::3]))
def test_damaged_tensors_are_refused(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    tensors, _ = tensors_of(form)
    for what, tensor, damaged in damages(tensors):
        write(tmp_path, damaged, form.section, form.files)
        text = refusal(tmp_path)
        assert text, (what, tensor)
        assert MODULE in text, (what, tensor, text)
        if what == "finite":
            assert tensor in text
            assert "NaN or infinity" in text
        assert "download the file again" in text or "expected shape" in text, (what, tensor, text)


@pytest.mark.parametrize("name", [name for name in FORMS if "group_size" in FORMS[name].section])
def test_sizes_that_no_group_has(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    tensors, _ = tensors_of(form)
    for size in (0, -2, 10**12, "32", 1.5, True):
        write(tmp_path, tensors, {**form.section, "group_size": size})
        assert "config.json: group_size is" in refusal(tmp_path)
    for bits in (0, 5, -4, 10**12, "4", None, [4]):
        write(tmp_path, tensors, {**form.section, "bits": bits})
        text = refusal(tmp_path)
        assert "config.json: bits of quantization_config is" in text
        assert "take the unquantized model" in text
    other = {2: 4, 3: 2, 4: 8, 8: 4}[form.section["bits"]]
    write(tmp_path, tensors, {**form.section, "bits": other, "group_size": 16})
    assert refusal(tmp_path)


def test_groups_beyond_the_last(tmp_path: Path) -> None:
    form = FORMS["gptq 4 bits"]
    tensors, _ = tensors_of(form)
    for value in (-1, 2, 2**31 - 1):
        groups = tensors[f"{MODULE}.g_idx"].copy()
        groups[3] = value
        write(tmp_path, {**tensors, f"{MODULE}.g_idx": groups}, form.section)
        assert "up_proj.g_idx' is int32[64]: it must hold numbers of 2 groups" in refusal(tmp_path)


# --- at random ------------------------------------------------------------------------------------


def drawn(form: Form, tensors: Tensors, folder: Path, rng: random.Random) -> str:
    """A folder with one to three things wrong; says what."""
    tensors, section = dict(tensors), form.section
    said = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind = rng.choice(("section", "tensor", "tensor", "name"))
        said.append(kind)
        if kind == "section":
            section = damaged_json({"s": section}, rng)
            section = section.get("s")
        elif kind == "name":
            name = rng.choice(list(tensors))
            tensors[rng.choice((name + "x", f"{MODULE}.weight", name[1:]))] = tensors.pop(name)
        else:
            name = rng.choice(list(tensors))
            tensors[name] = spoilt(tensors[name], rng)
    write(folder, tensors, section)
    if rng.random() < 0.2:
        path = folder / "model.safetensors"
        path.write_bytes(damaged_bytes(path.read_bytes(), rng))
        said.append("bytes")
    return ", ".join(said)


def spoilt(array: Array, rng: random.Random) -> Array:
    match rng.randrange(6):
        case 0:
            return array.astype(rng.choice((np.float32, np.int32, np.uint8, np.int64, np.float16)))
        case 1:
            return array[: rng.randrange(len(array) + 1)] if array.ndim else array[None]
        case 2:
            return np.ascontiguousarray(array.T)
        case 3:
            return array.reshape(-1)
        case 4:
            return np.concatenate((array, array)) if array.ndim else array
    whole = bytearray(array.tobytes())
    for _ in range(min(8, len(whole))):
        whole[rng.randrange(len(whole))] = rng.randrange(256)
    return np.frombuffer(bytes(whole), array.dtype).reshape(array.shape)


def check_draws(first: int, last: int, folder: Path) -> Counter[str]:
    results: Counter[str] = Counter()
    whole = {name: tensors_of(form)[0] for name, form in FORMS.items()}
    names = list(FORMS)
    for number in range(first, last):
        rng = random.Random(f"packing {number}")
        random.seed(number)
        name = names[number % len(names)]
        with np.errstate(all="ignore"):
            said = drawn(FORMS[name], whole[name], folder, rng)
            try:
                text = refusal(folder)
            except Exception as error:
                raise AssertionError(f"draw {number}, {name}: {said}") from error
        results["refused" if text else "loaded"] += 1
    return results


def test_a_share_of_damaged_folders(tmp_path: Path) -> None:
    results = check_draws(0, SHORT_DRAWS * 4, tmp_path)
    assert results["refused"] > results["loaded"] > 0


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_damaged_folders(tmp_path: Path) -> None:
    check_draws(SHORT_DRAWS * 4, LONG_DRAWS * len(FORMS), tmp_path)
