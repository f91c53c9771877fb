"""Texts that tokenizers are trained on and compared by."""

from __future__ import annotations

TEXTS = (
    "", " ", "  ", "a", " a", "a ", "a  b   c", "Hello, world!", "It's 12.5 or 1234567.",
    "we'll THEY'RE I'd", "tab\tand\nline\n\nnext\r\n", "   leading", "trailing   ", "\n", "\n\n \n",
    "def f(x):\n    return x[0] + 1  # ok", "if (a<b && c>=d) { return !e; }", "<b>x</b>",
    "naïve café Ångström", "cafe\u0301 and A\u030a", "日本語のテキスト", "한국어 문장",
    "Привет, мир",
    "مرحبا بالعالم", "שלום עולם", "हिन्दी", "ไทย", "😀", "👩‍👩‍👧 family 🇫🇷", "a😀b 🙂🙂",
    "x\u00a0y\u2003z\u200b", "e=mc² ½ ①", "ＡＢＣ１２３", "aaaaaaaaaaaaaaaa", "https://a.b/c?d=e&f=%20",
    "snake_case camelCase kebab-case", "$100 €5 £3 ¥7", "\u0000\u0001", "ﬁ ﬂ ﬃ", "the end.",
)  # fmt: skip
CORPUS = [
    "the quick brown fox jumps over the lazy dog, and the dog's owner didn't see it.",
    "Once upon a time there was a little girl; she'd 12 cats and 345 dogs in 2024.",
    "def main(argument):\n    for number in range(100):\n        print(number, argument)\n",
    "naïve café, 日本語のテキスト, Привет мир, 한국어 문장, hello world hello there",
    "we'll see what they're doing   with   spaces and THEIR CAPITALS, ok?",
] * 8
