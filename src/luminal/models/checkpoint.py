"""One entry for every kind of checkpoint: a folder, a `.gguf`, a llama2.c `.bin`, or a Hub id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from luminal.base.errors import InputError, LoadError
from luminal.base.records import dataclass
from luminal.frontend.matrices.packed import Packed
from luminal.loaders import hub
from luminal.loaders.fields import Fields, naming
from luminal.loaders.ggml.named_blocks import METHOD, with_blocks
from luminal.loaders.json_file import MAX_BYTES, read_json
from luminal.loaders.mapped import Array, given_path, is_there, open_file
from luminal.loaders.safetensors_file import read_safetensors, read_sharded
from luminal.loaders.shown import shown
from luminal.loaders.tokenizer import HuggingFaceTokenizer, read_tokenizer_json
from luminal.memory.mapped_pages import read_ahead
from luminal.memory.row_order import StoredRows
from luminal.models import quantized
from luminal.models.adapters import read_adapter
from luminal.models.quantized.parts import Packing

EMBEDDING, OUTPUT = "model.embed_tokens.weight", "lm_head.weight"


# One form for all: GGUF and llama2.c files become what a `config.json` would say and weights under
# its names, so one table of architectures reads them all, and what is checked of a folder is
# checked of a file.
@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model as it lies on disk, in the terms of a folder of Hugging Face's whatever it is.

    `config` is what a `config.json` says; `tensors` have the names that go with its architecture,
    and are views of mapped files where these store them so. `path` has the configuration.
    `chat_template` is a text of Jinja that makes one text of the messages of a chat. `packing` says
    how another program had packed the matrices, `adapter` what was merged into them.
    """

    config: Mapping[str, Any]
    tensors: Mapping[str, Any]
    tokenizer: HuggingFaceTokenizer | None
    path: Path
    chat_template: str | None = None
    packing: Packing | None = None
    adapter: str = ""

    @property
    def place(self) -> Path:
        """The folder, or the file."""
        return self.path.parent if self.path.name == "config.json" else self.path

    def tokenizer_for(self, count: int) -> HuggingFaceTokenizer | None:
        """The tokenizer. Raises LoadError where it does not fit a model of `count` tokens."""
        if self.tokenizer is not None:
            _check_ids(self.tokenizer, count, self.path)
        return self.tokenizer


def load_checkpoint(
    path_or_id: str | Path,
    tokenizer: str | Path | None = None,
    keep_quantized: bool | None = False,
    keep_order: bool = False,
    with_tokenizer: bool = True,
    ahead: bool = True,
    adapter: str | Path | None = None,
) -> Checkpoint:
    """Read a model from a folder, a `.gguf` or `.bin` file, or the Hugging Face Hub.

    `tokenizer` names a tokenizer.json, a llama2.c tokenizer file, a `.gguf`, or a folder, where
    the model has none of its own. `keep_quantized`: packed matrices stay blocks, of which
    `luminal.loaders.ggml.packed` makes Parameters; None: so they do where there are any.
    `keep_order`: matrices whose rows a GGUF file has in another order stay as they lie, for
    `decoder_of`; else they are copied.
    `with_tokenizer=False` leaves the model's own tokenizer unread, whatever is wrong with it.
    `ahead`: a thread begins to read the weights; not for a rank, which reads a part of them.
    `adapter`: a folder of PEFT, which is merged into the weights.
    Raises LoadError for whatever is missing, damaged or unknown, InputError where there are no
    packed matrices to keep.
    """
    path = locate(path_or_id)
    change = None if adapter is None else read_adapter(adapter)  # small, and read first
    keeps = keep_quantized is not False
    checkpoint = _read(path, tokenizer, keeps, keep_order, with_tokenizer)
    if ahead and change is None:
        _read_ahead(checkpoint.tensors)
    packs = checkpoint.packing is not None or any(map(is_packed, checkpoint.tensors.values()))
    if keep_quantized and not packs:
        raise InputError(
            f"{path}: has no packed matrices that could be kept (keep_quantized); `luminal "
            "quantize` writes such files"
        )
    if change is not None:
        merged = change.merged(checkpoint.tensors)
        return replace(checkpoint, tensors=merged, adapter=change.text)
    return checkpoint


def _read(
    path: Path,
    tokenizer: str | Path | None,
    keep_quantized: bool,
    keep_order: bool,
    with_tokenizer: bool,
) -> Checkpoint:
    other = None if tokenizer is None else read_tokenizer(given_path(tokenizer))
    if path.is_dir():
        return _read_folder(path, other, keep_quantized, with_tokenizer)
    if path.suffix == ".gguf":
        return _read_gguf(path, other, keep_quantized, keep_order, with_tokenizer)
    if path.suffix == ".bin":
        from luminal.loaders.llama2c import read_llama2c

        config, tensors = read_llama2c(path)
        beside = next(filter(is_there, tokenizers_beside(path, config["vocab_size"])), None)
        if other is None and with_tokenizer and beside is not None:
            other = read_tokenizer(beside)
        return Checkpoint(config, tensors, other, path)
    raise LoadError(
        f"{path}: unknown kind of file; pass a folder with config.json and safetensors, "
        f"a .gguf, or a llama2.c .bin"
    )


def _read_folder(
    path: Path,
    tokenizer: HuggingFaceTokenizer | None,
    keep_quantized: bool,
    with_tokenizer: bool,
) -> Checkpoint:
    config, file = folder_config(path), path / "config.json"
    section = quantized.section_of(config, path)
    packing, is_oss = None, config.get("architectures") == ["GptOssForCausalLM"]
    if not quantized.reads(section) and not is_oss:
        check_quantization(config, file)  # before the weights are looked at
    tensors: dict[str, Any] = folder_tensors(path, keep_quantized)
    if quantized.reads(section):
        turned = config.get("architectures") == ["GPT2LMHeadModel"]
        loaded = quantized.read(tensors, section, keep_quantized, file, weights_file(path), turned)
        tensors, packing = loaded.tensors, loaded.packing
        config["quantization_config"] = None
    elif is_oss and (count := sum(name.endswith("_blocks") for name in tensors)):
        # Its record reads them.
        packing = Packing("MXFP4", count, {"experts become bfloat16": count})
    if tokenizer is None and with_tokenizer:
        tokenizer = _own_tokenizer(path)
    template = folder_chat_template(path)
    return Checkpoint(config, tensors, tokenizer, file, template, packing)


def _read_gguf(
    path: Path,
    tokenizer: HuggingFaceTokenizer | None,
    keep_quantized: bool,
    keep_order: bool,
    with_tokenizer: bool,
) -> Checkpoint:
    from luminal.loaders.gguf import read_split_gguf  # late: a folder needs none of it
    from luminal.loaders.gguf_tokenizer import gguf_tokenizer
    from luminal.models.gguf.read import architecture_of_file, config_of, heads_of
    from luminal.models.gguf.tensors import form_of, hugging_face_tensors, with_listed

    file = read_split_gguf(path)
    architecture = architecture_of_file(file, path)
    config = config_of(file, architecture, path)
    heads = heads_of(file, architecture, path)
    with naming(path):
        whole = with_listed(file, form_of(architecture))
        tensors = hugging_face_tensors(
            whole.tensors, architecture, heads, keep_quantized, keep_order
        )
    if tokenizer is None and with_tokenizer and "tokenizer.ggml.model" in file.metadata:
        # Only where no other one is given: what is wrong with the file's own then does not matter.
        tokenizer = gguf_tokenizer(file.metadata, path)
    template = Fields(file.metadata, path).text("tokenizer.chat_template", "") or None
    return Checkpoint(config, tensors, tokenizer, path, template)


def _read_ahead(tensors: Mapping[str, Any]) -> None:
    """Asks for the pages of all weights that a run reads whole: not of an embedding beside an
    output, of which it reads the rows of its ids.
    """
    # Pages are asked for in the background while the program compiles; a cold disk is then read
    # once, in order, instead of page by page where kernels first touch it.
    rows = {EMBEDDING} if OUTPUT in tensors else set()
    whole = (tensor for name, tensor in tensors.items() if name not in rows)
    read_ahead(array for tensor in whole for array in _memory(tensor))


def _memory(tensor: Any) -> Iterable[Array]:
    """The arrays that a weight lies in."""
    if isinstance(tensor, Packed):
        return tensor.data_dict.values()
    return (tensor.memory if isinstance(tensor, StoredRows) else tensor,)


def is_packed(tensor: Any) -> bool:
    """Does a matrix of a checkpoint lie in blocks, or in codes and scales?"""
    # Blocks are records with named fields, and no plain array has such a dtype.
    return isinstance(tensor, Packed) or bool(tensor.dtype.names)


def _check_ids(tokenizer: HuggingFaceTokenizer, count: int, source: str | Path) -> None:
    """Raises LoadError where the tokenizer gives or awaits ids that the model does not have."""
    if tokenizer.vocab_size > count:
        raise LoadError(
            f"{source}: the tokenizer has {tokenizer.vocab_size} tokens, the model {count}; pass "
            "the tokenizer the model was trained with"
        )
    # An id beyond the vocabulary has no row in the embedding: it is refused when the model is
    # opened, not in the middle of a text.
    bos = tokenizer.bos_id
    highest = max([*tokenizer.eos_ids, 0 if bos is None else bos])
    if highest >= count:
        raise LoadError(
            f"{source}: {highest} begins or ends a text (bos_token_id, eos_token_id), the model "
            f"has {count} tokens"
        )


def tokenizers_beside(path: Path, count: int) -> list[Path]:
    """Where the tokenizer of a llama2.c file may lie: under the name that its training script gives
    to a vocabulary of `count` pieces, under that of Llama's, or as other programs write it.
    """
    names = f"tok{count}.bin", "tokenizer.bin", "tokenizer.json"
    return [path.with_name(name) for name in names if name != path.name]


def read_tokenizer(path: Path) -> HuggingFaceTokenizer:
    """The tokenizer of a tokenizer.json or its folder, a llama2.c `.bin`, or a `.gguf`."""
    if path.is_dir():
        path = path / "tokenizer.json"
    if not is_there(path):
        raise LoadError(f"{path}: no such file; pass a tokenizer.json, a llama2.c .bin or a .gguf")
    if path.suffix == ".json":
        return read_tokenizer_json(path)
    if path.suffix == ".bin":
        from luminal.loaders.llama2c import read_llama2c_tokenizer

        return read_llama2c_tokenizer(path)
    if path.suffix == ".gguf":
        from luminal.loaders.gguf import read_gguf
        from luminal.loaders.gguf_tokenizer import gguf_tokenizer

        return gguf_tokenizer(read_gguf(path).metadata, path)
    raise LoadError(
        f"{path}: unknown kind of tokenizer; pass a tokenizer.json, a llama2.c .bin or a .gguf"
    )


def locate(path_or_id: str | Path) -> Path:
    """The folder or file of a model, of the Hub's cache for an id. Raises LoadError for neither."""
    path = given_path(path_or_id)
    try:
        if path.exists():
            return path
    except OSError as error:
        raise LoadError(f"{path}: cannot be read: {error.strerror}") from error
    if isinstance(path_or_id, str) and hub.is_hub_id(path_or_id):
        return hub.fetch(path_or_id)
    raise LoadError(
        f"{path_or_id}: no such file or folder; pass a folder, a .gguf, a llama2.c .bin, or a "
        f"Hugging Face id of the form owner/name"
    )


def folder_config(folder: Path) -> dict[str, Any]:
    """The folder's `config.json`, without what it says of blocks. Raises LoadError where there is
    none.
    """
    if not is_there(folder / "config.json") and is_there(folder / "adapter_config.json"):
        raise LoadError(
            f"{folder}: is an adapter and no model; give the model that it was trained on, and "
            "this folder as adapter= (--adapter)"
        )
    if not is_there(folder / "config.json"):
        raise LoadError(f"{folder}: no config.json in it{_hint(folder)}")
    config = read_json(folder / "config.json")
    quantization = config.get("quantization_config")
    if type(quantization) is dict and quantization.get("quant_method") == METHOD:
        del config["quantization_config"]
    return config


_PACKED = {
    "hqq": "HQQ",
    "aqlm": "AQLM",
    "quanto": "quanto",
    "torchao": "torchao",
}
"""What `quant_method` says, and what it is called."""


def check_quantization(config: Mapping[str, Any], path: Path) -> None:
    """Raises LoadError for a `config.json` of weights packed in a way that is not read, by name."""
    quantization = config.get("quantization_config")
    if not quantization:
        return
    # Packed weights have other names and shapes. Without this check the first message would be
    # about a missing matrix, which tells nobody what to do.
    method = quantization.get("quant_method") if isinstance(quantization, Mapping) else None
    kind = _PACKED.get(str(method), shown(method) if method else "packed")
    raise LoadError(
        f"{path}: the weights are quantized: {kind}, which is not read; take the unquantized model "
        "(luminal quantize makes a GGUF file of that), or a GGUF file of it"
    )


def folder_tokenizer(folder: Path, count: int) -> HuggingFaceTokenizer:
    """The folder's tokenizer, for a model of `count` tokens. LoadError where there is none."""
    tokenizer = _own_tokenizer(folder)
    if tokenizer is None:
        raise LoadError(
            f"{folder}: no tokenizer.json in it; save_pretrained of a tokenizer of transformers "
            "writes one, also from vocab.txt or spiece.model"
        )
    _check_ids(tokenizer, count, folder)
    return tokenizer


def _own_tokenizer(folder: Path) -> HuggingFaceTokenizer | None:
    path = folder / "tokenizer.json"
    return read_tokenizer_json(path) if is_there(path) else None


def folder_chat_template(folder: Path) -> str | None:
    """The folder's `chat_template.jinja`, or the one in its `chat_template.json` or
    `tokenizer_config.json`; the default of several.
    """
    if is_there(folder / "chat_template.jinja"):
        with open_file(folder / "chat_template.jinja") as file:
            return file.read(MAX_BYTES).decode("utf-8", "replace")
    path = folder / "chat_template.json"  # of processors before transformers 5
    if not is_there(path):
        path = folder / "tokenizer_config.json"
    template = read_json(path).get("chat_template") if is_there(path) else None
    if isinstance(template, list):
        named = {
            listed.get("name"): listed.get("template")
            for listed in template
            if type(listed) is dict
        }
        # Some models bring several, for tools or for documents, and call the one for plain chats
        # "default".
        template = named.get("default")
    if template is not None and not isinstance(template, str):
        raise LoadError(f"{path}: chat_template is {shown(template)}, it must be a text")
    return template


def folder_processor(folder: Path, kind: str) -> Fields:
    """How inputs are prepared: the part `kind` of its `processor_config.json` (what transformers
    saves since its fifth version), else its `preprocessor_config.json`. Raises LoadError where
    there is neither.
    """
    path = folder / "processor_config.json"
    if is_there(path):
        part = Fields(read_json(path), path).section(kind)
        if part:
            return part
    path = folder / "preprocessor_config.json"
    if not is_there(path):
        raise LoadError(
            f"{folder}: no {path.name} in it; save_pretrained of the model's processor of "
            "transformers writes one"
        )
    return Fields(read_json(path), path)


def has_processor(folder: Path) -> bool:
    """Whether a folder says how inputs are prepared."""
    names = "processor_config.json", "preprocessor_config.json"
    return any(is_there(folder / name) for name in names)


def folder_tensors(folder: Path, keep_quantized: bool = False) -> dict[str, Array]:
    """Every tensor of the safetensors in a folder. Raises LoadError where there are none."""
    path = weights_file(folder)
    tensors = read_sharded(path) if path.suffix == ".json" else read_safetensors(path)
    return with_blocks(tensors, keep_quantized, path)


def weights_file(folder: Path) -> Path:
    """The folder's `model.safetensors`, or the index of several. LoadError where there is none."""
    # The index first: a folder that is both was split later, and a single file beside it may be an
    # old one or a part.
    for name in ("model.safetensors.index.json", "model.safetensors"):
        if is_there(folder / name):
            return folder / name
    raise LoadError(
        f"{folder}: no model.safetensors and no model.safetensors.index.json in it; other formats "
        f"are to be converted to safetensors first"
    )


def _hint(folder: Path) -> str:
    try:
        models = sorted(p.name for p in folder.iterdir() if p.suffix in (".gguf", ".bin"))
    except OSError as error:
        return f": {error.strerror}"
    return f"; pass one of its files: {', '.join(models)}" if models else ""
