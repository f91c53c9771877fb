"""How long each phase of a generation took."""

from __future__ import annotations

from luminal.base.records import dataclass


@dataclass(slots=True)
class Stats:
    """Seconds of each phase, tokens read and written by the last generation.

    `proposed` and `accepted` count the tokens of a draft, where there was one. `weights` says which
    matrices are packed, and which were decoded when they were read.
    """

    load: float = 0.0
    compile: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0
    prompt_tokens: int = 0
    new_tokens: int = 0
    texts: int = 1
    proposed: int = 0
    accepted: int = 0
    weights: str = ""

    def begin(self, texts: int, prompt_tokens: int) -> None:
        """Forgets the last generation."""
        self.prefill = self.decode = 0.0
        self.texts, self.prompt_tokens = texts, prompt_tokens
        self.new_tokens = self.proposed = self.accepted = 0

    @property
    def tokens_per_second(self) -> float:
        """The speed of decoding: the first new token of each text comes from the prefill."""
        steps = self.new_tokens - self.texts
        return steps / self.decode if steps > 0 and self.decode > 0 else 0.0

    @property
    def acceptance(self) -> float:
        """The share of a draft's tokens that were right."""
        return self.accepted / self.proposed if self.proposed else 0.0

    def text(self) -> str:
        """One line a phase."""
        lines = [
            f"load     {self.load * 1e3:9.1f} ms",
            f"compile  {self.compile * 1e3:9.1f} ms",
            f"prefill  {self.prefill * 1e3:9.1f} ms  {self.prompt_tokens} tokens",
            f"decode   {self.decode * 1e3:9.1f} ms  {self.new_tokens} tokens, "
            f"{self.tokens_per_second:.1f} tokens/s",
        ]
        if self.proposed:
            told = f"{self.accepted} of {self.proposed} tokens, {self.acceptance:.0%}"
            lines.append(f"accepted {told} of the draft's")
        if self.weights:
            lines.insert(0, f"weights  {self.weights}")
        return "\n".join(lines)
