"""Language models that see: a vision tower and a projector make vectors of images for a decoder.

A file of this folder has the record of one family; the decoder is that of `architectures`.
"""

from __future__ import annotations

from typing import Any

from luminal.base import lazy
from luminal.base.errors import InputError, LoadError, ShapeError
from luminal.frontend.matrices.packed import Packed
from luminal.loaders.fields import Fields, naming
from luminal.loaders.ggml.types import unpacked
from luminal.models.checkpoint import Checkpoint, folder_processor, has_processor
from luminal.models.decoder import Decoder, compute_dtype_of
from luminal.models.families.renaming import renamed
from luminal.models.seeing.processor import Processor
from luminal.models.seeing.record import Seeing
from luminal.models.seeing.sight import Sight


def sight_of(
    sees: str,
    checkpoint: Checkpoint,
    decoder: Decoder,
    mode: Any,
    backend: str,
    compute_dtype: Any,
) -> Sight | str:
    """What sees for the decoder of a checkpoint, or why it sees nothing. `sees`: "module:RECORD" in
    this package. Raises LoadError for what does not fit.
    """
    path = checkpoint.path
    if not has_processor(checkpoint.place):
        return (
            f"{checkpoint.place}: no preprocessor_config.json in it, which says how images are "
            "prepared; save_pretrained of the model's processor of transformers writes one"
        )
    record: Seeing = lazy.found(f"{__name__}.{sees}")
    fields = Fields(checkpoint.config, path)
    size = decoder.config.vocab_size
    tokenizer = checkpoint.tokenizer_for(size)
    assert tokenizer is not None
    with naming(checkpoint.place):
        try:
            tower = record.tower(fields, decoder.config.hidden_size)
        except (InputError, ShapeError) as error:
            raise LoadError(f"{path}: {error}") from error
        plain = {
            name: array.numpy() if isinstance(array, Packed) else unpacked(array)
            for name, array in checkpoint.tensors.items()
            if name.startswith(record.parts)
        }
        weights = record.weights(renamed(plain, record.names(fields)))
        tower.load_state_dict(weights, adopt_dtypes=True)
        tower.eval()
        tower.computing(compute_dtype_of(tower, compute_dtype))
        settings = folder_processor(checkpoint.place, "image_processor")
        token, placeholder = (
            _id_of(fields, keys, size) for keys in (record.tokens, record.placeholders)
        )
        processor = Processor(
            sees, fields, settings, tokenizer, token, tokenizer.name_of(placeholder)
        )
        _ = processor.prepare  # settings that are not supported are refused here
        return Sight(
            tower,
            processor,
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
