"""Files that say more than they hold, or are none: one line of LoadError each, at once.

`tests/fuzz/test_damaged_files.py` draws thousands of them; these are the classes by name.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import InputError, LoadError
from luminal.loaders import tokenizer as tokenizers_module
from luminal.loaders.gguf import read_gguf
from luminal.loaders.json_file import MAX_BYTES
from luminal.loaders.safetensors_file import read_sharded
from luminal.loaders.write_atomic import replacing
from luminal.models import load
from luminal.models.checkpoint import read_tokenizer
from tests.fuzz import damaged_models
from tests.fuzz.damage import joined

read = functools.partial(load, backend="reference")

SECONDS = 1.0
MOST_BYTES = 200e6


@contextmanager
def refused(match: str) -> Iterator[None]:
    """The block raises a LoadError of one line, within a second and 200 MB."""
    tracemalloc.start()
    start = time.process_time()
    try:
        with pytest.raises(LoadError, match=match) as caught:
            yield
        assert time.process_time() - start < SECONDS
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "model"
    place.mkdir()
    damaged_models.write_folder(place)
    read(place)
    return place


def rewrite(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# --- more than the file holds ---------------------------------------------------------------------


def test_a_thousand_million_layers(folder: Path) -> None:
    rewrite(folder / "config.json", num_hidden_layers=10**9)
    with refused("num_hidden_layers is 1000000000, it must be at most 4096"):
        read(folder)


def test_a_thousand_million_layers_in_a_gguf(tmp_path: Path) -> None:
    metadata = damaged_models.gguf_metadata(byte_level=False) | {"llama.block_count": 10**9}
    path = tmp_path / "m.gguf"
    path.write_bytes(joined(damaged_models.gguf_fields(metadata, {})))
    with refused("num_hidden_layers is 1000000000, it must be at most 4096"):
        read(path)


def test_a_million_layers_of_a_llama2c_file_are_not_listed(tmp_path: Path) -> None:
    """The norms of all layers are in the file, the matrices are not."""
    path = tmp_path / "m.bin"
    fields = damaged_models.llama2c_fields()
    fields[2] = fields[2]._replace(value=1_000_000)
    with path.open("wb") as file:
        file.write(joined(fields))
        file.truncate(60_000_000)
    with refused(r"truncated: model\.layers\.\*\.self_attn\.q_proj\.weight ends at byte"):
        read(path)


@pytest.mark.parametrize("shape", [(1,) * 65, (1,) * 1000])
def test_more_dims_than_an_array_has(tmp_path: Path, shape: tuple[int, ...]) -> None:
    metadata = damaged_models.gguf_metadata(byte_level=False)
    path = tmp_path / "m.gguf"
    path.write_bytes(joined(damaged_models.gguf_fields(metadata, {"model.norm": shape})))
    with refused(rf"'output_norm\.weight' has {len(shape)} dims; at most 64 are supported"):
        read_gguf(path)
    header = {"a": {"dtype": "U8", "shape": list(shape), "data_offsets": [0, 1]}}
    text = json.dumps(header).encode()
    (tmp_path / "m.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"\0")
    with refused(rf"tensor 'a' has {len(shape)} dims; at most 64 are supported"):
        lm.load(tmp_path / "m.safetensors")


def test_a_shape_beyond_all_memory_that_is_empty(tmp_path: Path) -> None:
    """NumPy computes strides of empty arrays too."""
    header = {"a": {"dtype": "F32", "shape": [0, 2**40, 2**40], "data_offsets": [0, 0]}}
    text = json.dumps(header).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    with refused("tensor 'a': no memory holds the shape"):
        lm.load(path)


def test_tensors_that_overlap_are_found_before_they_are_copied(tmp_path: Path) -> None:
    """Each would be copied for its alignment: a thousand times a megabyte."""
    size = 1 << 20
    header = {
        f"a{n}": {"dtype": "F32", "shape": [size // 4], "data_offsets": [n, n + size]}
        for n in range(1000)
    }
    text = json.dumps(header).encode()
    text += b" " * ((1 - len(text)) % 4)  # the data begins off the elements' multiples
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(size + 999))
    with refused("tensor 'a1' overlaps 'a0'"):
        lm.load(path)


def test_gguf_tensors_that_overlap(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    metadata = damaged_models.gguf_metadata(byte_level=False)
    path.write_bytes(joined(damaged_models.gguf_fields(metadata, {"model.norm": (80,)})))
    with refused("overlaps|truncated"):
        read_gguf(path)


# --- other types ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [[], {}, None, 3, ["F32"]])
def test_a_dtype_that_is_no_text(tmp_path: Path, dtype: Any) -> None:
    text = json.dumps({"a": {"dtype": dtype, "shape": [1], "data_offsets": [0, 4]}}).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    with refused("tensor 'a': the header entry needs dtype, shape and two data_offsets"):
        lm.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"llama.embedding_length": "8"}, "llama.embedding_length is '8', it must be an integer"),
        (
            {"llama.embedding_length": [8]},
            r"llama.embedding_length is \[8\], it must be an integer",
        ),
        ({"llama.block_count": 2.0}, "llama.block_count is 2.0, it must be an integer"),
        ({"llama.attention.head_count": True}, "head_count is True, it must be an integer"),
        ({"llama.attention.head_count": 0}, "head_count is 0, it must be at least 1"),
        ({"llama.rope.freq_base": "x"}, "freq_base is 'x', it must be a number above 0"),
        ({"general.alignment": 0}, "general.alignment is 0, it must be at least 1"),
        ({"tokenizer.ggml.tokens": [1] * 263}, "tokens holds 1, it must be a list of str"),
        ({"tokenizer.ggml.scores": 1.0}, "scores is 1.0, it must be a list"),
        ({"tokenizer.ggml.add_bos_token": 1}, "add_bos_token is 1, it must be true or false"),
        (
            {"tokenizer.ggml.bos_token_id": 263},
            "bos_token_id is 263; the vocabulary has 263 tokens",
        ),
        ({"tokenizer.ggml.eos_token_id": 2**32 - 1}, "eos_token_id is 4294967295, it must be at"),
        ({"tokenizer.ggml.unknown_token_id": 300}, "unknown_token_id is 300; the vocabulary has"),
    ],
)
def test_gguf_metadata_of_another_type(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    metadata = damaged_models.gguf_metadata(byte_level=False) | change
    path = tmp_path / "m.gguf"
    path.write_bytes(joined(damaged_models.gguf_fields(metadata, {})))
    with refused(message):
        read(path)


def test_nested_arrays_of_a_gguf(tmp_path: Path) -> None:
    deep = b"".join(b"\x09\0\0\0" + (1).to_bytes(8, "little") for _ in range(100_000))
    head = b"GGUF" + (3).to_bytes(4, "little") + bytes(8) + (1).to_bytes(8, "little")
    path = tmp_path / "m.gguf"
    path.write_bytes(head + (1).to_bytes(8, "little") + b"k" + b"\x09\0\0\0" + deep)
    with refused("the metadata's arrays nest 9 deep"):
        read_gguf(path)


NESTED = "[" * 100_000 + "]" * 100_000


def test_nested_json(folder: Path, tmp_path: Path) -> None:
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text('{"architectures":' + NESTED + "}")
    with refused(r"config\.json: not JSON of a model: lists or objects nest too deeply"):
        read(folder)
    (folder / "config.json").write_text(config)
    (folder / "tokenizer.json").write_text('{"model":' + NESTED + "}")
    with refused(r"tokenizer\.json: not JSON of a model"):
        read(folder)
    (folder / "tokenizer.json").write_text(json.dumps(damaged_models.tokenizer()))
    text = ('{"a":' + NESTED + "}").encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    with refused("the header: not JSON of a model"):
        read(folder)


def test_an_endless_json(folder: Path) -> None:
    with (folder / "config.json").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with refused(r"config\.json: more than 100000000 bytes; the file is damaged"):
        read(folder)


@pytest.mark.parametrize("file", ["../m.safetensors", "/etc/passwd", "a\nb", "a\0b", "x" * 5000, 3])
def test_an_index_names_files_beside_it(folder: Path, file: Any) -> None:
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": file}}))
    with refused("no weight_map of tensor names to names of files beside it"):
        read(folder)


# --- tokens ---------------------------------------------------------------------------------------


def change_tokenizer(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "tokenizer.json"
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


def test_ids_with_gaps_beyond_the_model(folder: Path) -> None:
    """The vocabulary has few tokens, one of them with a great id."""
    change_tokenizer(folder, lambda found: found["model"]["vocab"].update(abc=10**6))
    with refused("the tokenizer has 1000001 tokens, the model 300"):
        read(folder)


def test_a_post_processor_that_adds_ids_beyond_the_vocabulary(folder: Path) -> None:
    change_tokenizer(
        folder, lambda f: f["post_processor"]["special_tokens"]["<s>"].update(ids=[299])
    )
    with refused("a text begins or ends with id 299; the vocabulary ends at 260"):
        read(folder)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (300, "300 begins or ends a text .*, the model has 300 tokens"),
        ([1, 10**6], "1000000 begins or ends a text"),
        ([[]], r"eos_token_id is \[\[\]\], it must be an id or several"),
        (True, "eos_token_id is True, it must be an id or several"),
        (-1, "eos_token_id is -1, it must be an id or several"),
        ("1", "eos_token_id is '1', it must be an id or several"),
    ],
)
def test_ends_beyond_the_vocabulary(folder: Path, name: str, ids: Any, message: str) -> None:
    rewrite(folder / "generation_config.json", eos_token_id=None)
    rewrite(folder / name, eos_token_id=ids)
    with refused(message):
        read(folder)


PANICS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a template without its token": lambda f: f["post_processor"].update(special_tokens={}),
    "a charsmap that is none": lambda f: f.update(
        normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    ),
    "a prefix longer than a token": lambda f: f["model"].update(continuing_subword_prefix="#" * 9),
}


@pytest.mark.parametrize("panic", PANICS)
def test_a_panic_of_the_tokenizers_library(
    folder: Path, capfd: pytest.CaptureFixture[str], panic: str
) -> None:
    """It is no Exception, and prints a message of its own."""
    change_tokenizer(folder, PANICS[panic])
    with refused(r"tokenizer\.json: not a tokenizer the tokenizers library reads: "):
        read(folder)
    assert capfd.readouterr().err == ""


def test_a_panic_at_a_later_text(folder: Path) -> None:
    change_tokenizer(folder, lambda f: f.update(pre_tokenizer={"type": "FixedLength", "length": 0}))
    with refused(r"tokenizer\.json: not a tokenizer the tokenizers library reads"):
        read_tokenizer(folder).encode("some text")


def test_an_interrupt_is_no_error_of_a_file(folder: Path) -> None:
    with pytest.raises(KeyboardInterrupt), tokenizers_module.library_errors(folder):
        raise KeyboardInterrupt


def test_what_others_print_meanwhile_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    with tokenizers_module.panics_unheard():
        os.write(2, b"a warning\n")
    assert capfd.readouterr().err == "a warning\n"

    def panic() -> None:
        with tokenizers_module.panics_unheard():
            os.write(2, b"a panic\n")
            raise LoadError("x")

    with pytest.raises(LoadError):
        panic()
    assert capfd.readouterr().err == ""


# --- what is no file ------------------------------------------------------------------------------


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))


OTHERS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "directory": (lambda path: path.mkdir(), "is a directory, it must be a regular file"),
    "fifo": (os.mkfifo, "is a FIFO, it must be a regular file"),
    "socket": (listening, "cannot be read: No such device"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "is a device, it must be a regular"),
    "loop": (lambda path: path.symlink_to(path.name), "cannot be read: Too many levels"),
    "dangling": (lambda path: path.symlink_to("none"), "cannot be read: No such file"),
    "empty": (lambda path: path.touch(), "the file is empty|not JSON"),
}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "a.gguf"])
def test_what_is_no_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    make, message = OTHERS[kind]
    path = folder / name
    path.unlink(missing_ok=True)
    monkeypatch.chdir(folder)  # names of sockets are short
    make(path)
    broken_link = name == "a.gguf" and kind in ("loop", "dangling")  # given by the user
    with refused("no such file or folder" if broken_link else message):
        read(path if name == "a.gguf" and kind != "directory" else folder)
        if name == "a.gguf":
            lm.load(path)


def test_a_fifo_as_a_shard(tmp_path: Path) -> None:
    damaged_models.write_folder(tmp_path, sharded=True)
    shard = tmp_path / "model-1.safetensors"
    shard.unlink()
    os.mkfifo(shard)
    with refused(r"model-1\.safetensors: is a FIFO, it must be a regular file"):
        read(tmp_path)


def as_nobody(action: Callable[[], None]) -> int:
    """The exit status of a child that may read little, also where the tests are run by root."""
    child = os.fork()
    if child == 0:
        status = 2
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            action()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "."])
def test_without_permission(folder: Path, name: str) -> None:
    read(folder)
    (folder / name).chmod(0)

    def load() -> None:
        with refused(r"cannot be read: Permission denied|Permission denied"):
            read(folder)

    try:
        assert as_nobody(load) == 0
    finally:
        (folder / name).chmod(0o700)


def test_numpy_files_are_told_from_pickles(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", a=np.ones(2))
    with refused("NumPy's own format; convert it once"):
        lm.load(tmp_path / "m.npz")


# --- headers, indices and normalizers that ask for too much


def safetensors_of(place: Path, header: bytes, data: bytes = b"") -> Path:
    place.write_bytes(len(header).to_bytes(8, "little") + header + data)
    return place


ENTRY = '{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'


@pytest.mark.parametrize(
    ("header", "match"),
    [
        ('{"a":ENTRY,"a":ENTRY}', "has 'a' twice"),
        ('{"\\ud800":ENTRY}', "its name is no UTF-8"),
        ('{"__metadata__":[1],"a":ENTRY}', r"__metadata__ is \[1\]"),
        ('{"__metadata__":{"k":1},"a":ENTRY}', "__metadata__ is {'k': 1}"),
        ('{"a":ENTRY,"b":"' + "x" * 16_000_000 + '"}', "at most 16000000 bytes"),
    ],
)
def test_a_header_that_contradicts_itself(tmp_path: Path, header: str, match: str) -> None:
    whole = header.replace("ENTRY", ENTRY).encode()
    path = safetensors_of(tmp_path / "x.safetensors", whole, b"\0")
    with refused(match):
        lm.load(path)


def test_an_index_of_too_many_files(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {str(n): f"{n}.st" for n in range(20_000)}}))
    with refused("names 20000 files, at most 10000 are supported"):
        read_sharded(index)
    index.write_text(json.dumps({"weight_map": {"a": ""}}))
    with refused("index.json: no weight_map of tensor names to names of files"):
        read_sharded(index)


def test_a_gguf_of_arrays_of_nothing(tmp_path: Path) -> None:
    count = 1 << 20
    array = (9).to_bytes(4, "little") + count.to_bytes(8, "little") + bytes(12) * count
    header = b"GGUF" + (3).to_bytes(4, "little") + bytes(8) + (1).to_bytes(8, "little")
    key = (1).to_bytes(8, "little") + b"k" + (9).to_bytes(4, "little")
    (tmp_path / "x.gguf").write_bytes(header + key + array)
    with refused("the metadata's arrays nest 2 deep"):
        read_gguf(tmp_path / "x.gguf")


@pytest.mark.parametrize("part", ["normalizer", "decoder"])
def test_a_tokenizer_that_blows_up_texts(folder: Path, part: str) -> None:
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 100}
    rewrite(folder / "tokenizer.json", **{part: {"type": "Sequence", f"{part}s": [step] * 5}})
    with refused(f"its {part} may make a text 10000000000 times as long"):
        read_tokenizer(folder)


def test_no_device_is_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    with ThreadPoolExecutor() as pool:
        read = pool.submit((tmp_path / "a").read_bytes)
        lm.save(tmp_path / "a", {"x": np.zeros(1)})
    assert (tmp_path / "a").is_fifo()
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]
    lm.save(tmp_path / "b", {"x": np.zeros(1)})
    assert read.result() == (tmp_path / "b").read_bytes()
    lm.save("/dev/null", {"x": np.zeros(1)})
    assert Path("/dev/null").is_char_device()


def test_what_is_open_already_is_written_to(tmp_path: Path) -> None:
    """As by `luminal embed -o /dev/stdout >> file`: there is something before it."""
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with path.open("ab") as file:
        (tmp_path / "link").symlink_to(f"/dev/fd/{file.fileno()}")
        for name in (f"/proc/self/fd/{file.fileno()}", tmp_path / "link"):
            with replacing(name) as stream:
                stream.write(b", more")
    assert path.read_bytes() == b"before, more, more"
    with pytest.raises(InputError, match="/dev/fd/999: cannot be written: Bad file descriptor"):
        lm.save("/dev/fd/999", {"x": np.zeros(1)})


def test_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: File name too long"):
        lm.save(tmp_path / ("a" * 300), {"x": np.zeros(1)})
