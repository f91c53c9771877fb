"""Language models that see: a vision tower and a projector make vectors of images for a decoder.

A file of this folder has the record of one family; the decoder is that of `architectures`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from luminal.base import lazy
from luminal.base.errors import InputError, LoadError, ShapeError
from luminal.frontend.matrices.packed import Packed
from luminal.loaders.fields import Fields, naming
from luminal.loaders.ggml.types import unpacked
from luminal.loaders.mapped import given_path
from luminal.loaders.tokenizer import HuggingFaceTokenizer
from luminal.models.checkpoint import Checkpoint, folder_processor, has_processor
from luminal.models.decoder import Decoder, compute_dtype_of
from luminal.models.families.renaming import renamed
from luminal.models.seeing.processor import Processor
from luminal.models.seeing.projector_file import projectors_beside, read_projector
from luminal.models.seeing.record import Seeing, Sees
from luminal.models.seeing.sight import Sight


def sight_of(
    sees: str,
    checkpoint: Checkpoint,
    projector: str | Path | None,
    decoder: Decoder,
    mode: Any,
    backend: str,
    compute_dtype: Any,
) -> Sight | str:
    """What sees for the decoder of a checkpoint, or why it sees nothing; empty where nothing was
    to. `sees`: "module:RECORD" in this package, of a folder; of a GGUF file what sees is in
    `projector`, or where that is None in an mmproj file beside it.

    Raises LoadError for what does not fit, InputError for a projector of a folder.
    """
    size = decoder.config.vocab_size
    tokenizer = checkpoint.tokenizer_for(size)
    assert tokenizer is not None
    runs = mode, backend, compute_dtype
    if checkpoint.path.suffix != ".gguf":
        if projector is not None:
            raise InputError(
                f"projector {projector}: {checkpoint.place} is no text model in GGUF, which alone "
                "takes one; leave it out"
            )
        parts = _of_folder(sees, checkpoint) if sees else ""
        return parts if isinstance(parts, str) else _made(parts, tokenizer, decoder, *runs)

    def read(path: Path) -> Sight:
        parts = read_projector(path, decoder.config.hidden_size, size, tokenizer)
        return _made(parts, tokenizer, decoder, *runs)

    if projector is not None:
        return read(given_path(projector))
    beside = projectors_beside(checkpoint.path)
    refused = ""
    for path in beside:
        try:
            return read(path)
        except LoadError as error:  # nobody asked for it: the text model is whole without
            refused = refused or f"{error}; or name one, with projector= or --mmproj"
    return refused


def _of_folder(sees: str, checkpoint: Checkpoint) -> Sees | str:
    """What sees in a folder of Hugging Face's, or what it lacks for that."""
    place = checkpoint.place
    if not has_processor(place):
        return (
            f"{place}: no preprocessor_config.json in it, which says how images are prepared; "
            "save_pretrained of the model's processor of transformers writes one"
        )
    record: Seeing = lazy.found(f"{__name__}.{sees}")
    tensors = {
        name: array for name, array in checkpoint.tensors.items() if name.startswith(record.parts)
    }
    fields = Fields(checkpoint.config, checkpoint.path)
    with naming(place):
        return Sees(sees, place, fields, folder_processor(place, "image_processor"), tensors)


def _made(
    sees: Sees,
    tokenizer: HuggingFaceTokenizer,
    decoder: Decoder,
    mode: Any,
    backend: str,
    compute_dtype: Any,
) -> Sight:
    """The tower with its weights, and what prepares images. Raises LoadError for misfits."""
    record: Seeing = lazy.found(f"{__name__}.{sees.record}")
    fields = sees.config
    with naming(sees.source):
        try:
            tower = record.tower(fields, decoder.config.hidden_size)
        except (InputError, ShapeError) as error:
            raise LoadError(f"{fields.path}: {error}") from error
        plain = {
            name: array.numpy() if isinstance(array, Packed) else unpacked(array)
            for name, array in sees.tensors.items()
        }
        weights = record.weights(renamed(plain, record.names(fields)))
        tower.load_state_dict(weights, adopt_dtypes=True)
        tower.eval()
        tower.computing(compute_dtype_of(tower, compute_dtype))
        size = decoder.config.vocab_size
        token, placeholder = (
            _id_of(fields, keys, size) for keys in (record.tokens, record.placeholders)
        )
        processor = Processor(
            sees.record,
            fields,
            sees.settings,
            tokenizer,
            token,
            sees.placeholder or tokenizer.name_of(placeholder),
        )
        _ = processor.prepare  # settings that are not supported are refused here
        return Sight(
            tower,
            processor,
            source=sees.source,
            whole=record.whole,
            places=record.places,
            mode=mode,
            backend=backend,
        )


def _id_of(fields: Fields, keys: tuple[str, ...], count: int) -> int:
    """The id of the first of these keys that is there."""
    for key in keys:
        if fields.values.get(key) is not None:
            return fields.token_id(key, count)
    return fields.token_id(keys[0], count)
