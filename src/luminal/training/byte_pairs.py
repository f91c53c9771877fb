"""A tokenizer of byte pairs, made from a text. Sennrich et al. 2016; bytes: Radford et al. 2019."""

from __future__ import annotations

from luminal.base.errors import InputError

END = "<|endoftext|>"  # its id is 0
LEAST = 257  # a token for each byte, and the end


def train_byte_pairs(text: str, vocabulary: int) -> str:
    """The JSON of a tokenizer with `vocabulary` tokens, or fewer where the text has too few pairs.

    Every text has tokens, and the tokens of a text give it back. Raises InputError for a vocabulary
    that does not hold all bytes.
    """
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    if vocabulary < LEAST:
        raise InputError(
            f"tokenizer: a vocabulary of {vocabulary} has no room for all bytes; at least {LEAST}"
        )
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        # All bytes and not only those that this text has: so every other text has tokens too.
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[END],
        show_progress=False,
    )
    tokenizer.train_from_iterator([text], trainer)
    json: str = tokenizer.to_str()
    return json
