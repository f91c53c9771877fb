"""How texts are cut before byte-level pairs merge, by the names that GGUF files give.

The patterns are those of the models' published `tokenizer.json` files: GPT-2's (Radford et al.,
2019) and its successors, which differ in digits, capitals and line ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers import Regex, pre_tokenizers

from luminal.base.records import dataclass

_ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CAPITALS = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_SMALL = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _words(digits: str) -> str:
    """Words with what stands before them, numbers of so many digits, punctuation, line ends."""
    return (
        rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
    )


def _capitalised(digits: str, endings: str) -> str:
    """A pattern by which a capital begins a word."""
    return (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}*{_SMALL}+{endings}"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}+{_SMALL}*{endings}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    )


@dataclass(frozen=True, slots=True)
class Cut:
    """`patterns`: each cuts what the one before it left, after characters that were written in
    parts are joined where `composed`. `whole`: a piece that is a token stays one, however its pairs
    would merge. `add_bos`: by default.
    """

    patterns: tuple[str, ...]
    composed: bool = False
    whole: bool = False
    add_bos: bool = False

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        """The pre-tokenizer of the tokenizers library for these patterns."""
        splits: list[Any] = [
            pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self.patterns
        ]
        # The library's own pattern is GPT-2's; the patterns above have cut already.
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([*splits, level])


_PLAIN = Cut((GPT2_PATTERN,))
_DIGITS_APART = Cut((r"\p{N}", GPT2_PATTERN))
_LLAMA3 = Cut((_words(r"\p{N}{1,3}"),), whole=True, add_bos=True)
_THREE_DIGITS = Cut((_words(r"\p{N}{1,3}"),))
_ONE_DIGIT = Cut((_words(r"\p{N}"),), composed=True)
_BLOOM = Cut((r" ?[^(\s|.,!?…。，、।۔،)]+",))
_GPT4O = Cut((_capitalised(r"\p{N}{1,3}", f"{_ENDINGS}?"),))
_DEEPSEEK3 = Cut(
    (
        r"\p{N}{1,3}",
        "[一-龥぀-ゟ゠-ヿ]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
    )
)

CUTS: Mapping[str, Cut] = {
    **dict.fromkeys(("gpt-2", "default", "phi-2", "mpt", "olmo", "jais"), _PLAIN),
    **dict.fromkeys(
        ("starcoder", "smollm", "refact", "command-r", "codeshell", "exaone"), _DIGITS_APART
    ),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2"), _LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe", "glm4"), _THREE_DIGITS),
    **dict.fromkeys(("qwen2", "stablelm2", "deepseek-r1-qwen", "hunyuan"), _ONE_DIGIT),
    **dict.fromkeys(("bloom", "poro-chat", "gpt3-finnish"), _BLOOM),
    "falcon": Cut((r"[\p{P}\$\+<=>\^~\|`]+", GPT2_PATTERN, "[0-9][0-9][0-9]")),
    "tekken": Cut((_capitalised(r"\p{N}", ""),), whole=True, add_bos=True),
    **dict.fromkeys(("gpt-4o", "llama4"), _GPT4O),
    "deepseek-coder": Cut((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}")),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense"), _DEEPSEEK3),
}
"""By `tokenizer.ggml.pre`; the first of equal ones is written."""
