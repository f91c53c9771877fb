"""Text from a language model: one program reads the prompt, another adds a token at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from luminal.base.errors import InputError
from luminal.base.generator import checked_seed
from luminal.base.near_names import suggestion
from luminal.frontend.handle import Array
from luminal.loaders.tokenizer import Tokenizer
from luminal.models import whole_texts
from luminal.models.chat_template import ChatTemplate, Messages, chat_text, parted
from luminal.models.decoder import Decoder
from luminal.models.programs import Features, Programs
from luminal.models.prompt_cache import Prompt, read_prompt, write_prompt
from luminal.models.sampling import SETTINGS, Sampling, checked_count, features_of
from luminal.models.seen import Images
from luminal.models.speculative import Draft, ModelDraft, accepted, check_rewinds
from luminal.models.stats import Stats
from luminal.models.text import Completion, Constraint, Ranked, Text
from luminal.runtime.executable import Executable
from luminal.runtime.results import Results
from luminal.search.options import CompilationMode
from luminal.session.device_choice import chosen_device

if TYPE_CHECKING:
    from luminal.models.seeing.sight import Sight

MOST_ROWS = 64  # texts of a batch: each has caches of the whole context
MAX_CONTEXT = 4096  # positions the caches hold by default: more costs memory few prompts need


# Two programs serve all lengths, since their dims are symbolic: one reads a prompt, one adds a
# token. They are compiled when they are first wanted, so the first token waits for one only.
class LanguageModel:
    """A loaded model. One generation runs at a time: all share the caches of keys and values.

    `context` is the greatest number of tokens, prompt and continuation together.
    """

    def __init__(
        self,
        model: Decoder,
        tokenizer: Tokenizer,
        mode: CompilationMode | str = "fast",
        backend: str | None = None,
        context: int | None = None,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.mode, self.backend = mode, chosen_device(backend)
        longest = model.longest_text
        self.context = min(longest, MAX_CONTEXT) if context is None else context
        if checked_count("context", self.context, 1) > longest:
            raise InputError(
                f"context {context}: the model takes texts of at most {longest} tokens; give no "
                "more, or leave it out"
            )
        self.stats = Stats()
        self.chat_template: ChatTemplate | None = None
        self.sight: Sight | str = "the model reads text alone; docs/models.md has those that see"
        self.programs = Programs(model, self.context, mode, self.backend)
        self._prefix: Prompt | None = None

    def __repr__(self) -> str:
        config = self.model.config
        state = "compiled" if self.programs.has_programs else "not compiled"
        return (
            f"LanguageModel({type(self.model).__name__}, {config.num_hidden_layers} layers of "
            f"{config.hidden_size}, {config.vocab_size} tokens, context {self.context}; "
            f"{self.backend}, {self.mode}, {state})"
        )

    def compile(self, features: Features = ()) -> tuple[Executable, Executable]:
        """The prefill and decode programs of a single text; all others come when needed.

        `features`: what the choice of tokens needs, nothing for the likeliest.
        """
        pair = self.programs.pair(features)
        self.stats.compile = self.programs.seconds
        return pair

    def __call__(
        self, ids: Any, *, hidden_states: bool = False, attentions: bool = False
    ) -> Array | whole_texts.Outputs:
        """The logits of each next token, float32 (batch, s, vocab_size), of ids (batch, s); of one
        text's ids (s,) those of a batch of one.

        A text's logits depend on its ids up to each place, so shorter rows may be padded on the
        right with any id. With `hidden_states` or `attentions` all three are given, as Outputs.
        Raises InputError for what are no ids, or too many.
        """
        rows = whole_texts.checked_rows(ids, self.model.config.vocab_size, self.context)
        program = self.programs.program(
            ("watched", ("states",) * hidden_states + ("weights",) * attentions),
            lambda: whole_texts.watched(self.model, self.context, hidden_states, attentions),
        )
        outputs = whole_texts.run_watched(program, rows, len(self.model.model.layers))
        return outputs if hidden_states or attentions else outputs.logits

    # --- text

    @overload
    def generate(self, prompt: str, max_tokens: int = 200, **options: Any) -> str: ...
    @overload
    def generate(
        self, prompt: Sequence[str], max_tokens: int = 200, **options: Any
    ) -> list[str]: ...
    def generate(
        self, prompt: str | Sequence[str], max_tokens: int = 200, **options: Any
    ) -> str | list[str]:
        """The continuation of a prompt, options as for `stream`; of several, as for `complete`."""
        if isinstance(prompt, Sequence) and not isinstance(prompt, str):
            return [completion.text for completion in self.complete(prompt, max_tokens, **options)]
        return "".join(self.stream(prompt, max_tokens, **options))

    def stream(
        self,
        prompt: str | Sequence[int],
        max_tokens: int = 200,
        *,
        draft: Draft | None = None,
        **options: Any,
    ) -> Iterator[str]:
        """The continuation in pieces of whole characters, as they come.

        The prompt: a text, or token ids. `images`: files, images of Pillow or arrays, for a model
        that sees, one for each placeholder in the prompt. `stop`: strings at which the text ends;
        `constraint`: what it must match (`luminal.models.constraints`); all other options are those
        of Sampling, greedy without. `draft` proposes tokens that are checked several at a time: the
        text is the same (`luminal.models.speculative`). Raises InputError, at once, if the prompt
        is longer than the context or an option is out of its range.
        """
        text = self._text(prompt, max_tokens, **options)
        if draft is not None:
            _check_kind("draft", draft, "propose", "models.PromptLookup or models.ModelDraft")
            check_rewinds(self.programs)
            if isinstance(draft, ModelDraft):
                # Asked before anything is read: two vocabularies that differ give tokens that mean
                # something else, and no error later.
                draft.check_serves(self)
        steps = self._begun([text], draft=draft)
        return (piece for step in steps for _, piece in step if piece)

    def complete(
        self,
        prompts: Sequence[str | Sequence[int]],
        max_tokens: int = 200,
        *,
        n: int = 1,
        seed: int = 0,
        logprobs: bool = False,
        images: Sequence[Sequence[Any]] = (),
        **options: Any,
    ) -> list[Completion]:
        """`n` continuations of each prompt, which are computed side by side, 64 at a time.

        Options as for `stream`; of the continuations of a prompt each has the next seed. What a
        text becomes does not depend on the others. `logprobs`: with log-probabilities. `images`: a
        list for each prompt.
        """
        checked_count("n", n, 1)
        checked_seed("generate", seed)
        if isinstance(prompts, str):
            raise InputError(f"prompts: {prompts!r} is one text; give a list of them")
        shown_images = [*images] or [()] * len(prompts)
        if len(shown_images) != len(prompts):
            raise InputError(
                f"images: {len(shown_images)} lists for {len(prompts)} prompts; give one for each"
            )
        read = [self._read_prompt(*pair) for pair in zip(prompts, shown_images, strict=True)]
        texts = [
            self._made(*prompt, max_tokens, **options, seed=seed + number)
            for prompt in read
            for number in range(n)
        ]
        for _ in self._begun(texts, logprobs) if texts else ():
            pass
        return [text.completion() for text in texts]

    def tokens(
        self, ids: Sequence[int], max_tokens: int, sampling: Sampling | None = None
    ) -> Iterator[int]:
        """The continuation as token ids, up to an end token, `max_tokens` or the context's end."""
        text = Text(self.tokenizer, ids, self.room(ids, max_tokens), sampling)
        steps = self._begun([text])
        return (token for step in steps for token, _ in step if token not in self.tokenizer.eos_ids)

    def encode(self, prompt: str | Sequence[int]) -> list[int]:
        """The prompt's tokens; raises InputError if there are none or too many for the context."""
        if isinstance(prompt, str):
            return self._within(self.tokenizer.encode(prompt))
        return self._within(_checked_ids(prompt, self.model))

    def _within(self, ids: list[int]) -> list[int]:
        """The ids, if the context has room for them."""
        if not ids:
            raise InputError("prompt: it has no tokens; give some text")
        if len(ids) > self.context:
            raise InputError(
                f"prompt: {len(ids)} tokens, but the context is {self.context}; shorten it"
            )
        return ids

    def _read_prompt(
        self, prompt: str | Sequence[int], images: Sequence[Any] = (), bare: bool = False
    ) -> tuple[list[int], Images | None]:
        """The tokens of a prompt, and its images; `bare`: see `Tokenizer.encode`."""
        if isinstance(self.sight, str):
            if not isinstance(images, list | tuple) or images:
                raise InputError(f"images: {self.sight}")
            if isinstance(prompt, str) and bare:
                return self._within(self.tokenizer.encode(prompt, bare=True)), None
            return self.encode(prompt), None
        if not isinstance(prompt, str):
            prompt = _checked_ids(prompt, self.model)
        ids, seen = self.sight.read(prompt, images, bare, self.context)
        return self._within(ids), seen

    # --- chats

    def chat(self, messages: Messages, max_tokens: int = 200, **options: Any) -> str:
        """The answer to a chat; options as for `stream`."""
        return "".join(self.stream_chat(messages, max_tokens, **options))

    def stream_chat(
        self,
        messages: Messages,
        max_tokens: int = 200,
        *,
        tools: Any = None,
        images: Sequence[Any] = (),
        **options: Any,
    ) -> Iterator[str]:
        """The answer in pieces; what the last text shares with the chat's is not read again.

        `messages`: {"role": "user", "content": ...} and so on, or a text, which is one from the
        user. For a model that sees, a content may be a list of parts, {"type": "text", "text": ...}
        and {"type": "image", "image": ...}; parts without an image take those of `images`. `tools`:
        descriptions of functions, for the model's template. Raises InputError where the model has
        no template, or its template refuses the messages.
        """
        text = self._made(*self._read_chat(messages, tools, images), max_tokens, **options)
        return (piece for step in self._begun([text], resume=True) for _, piece in step if piece)

    def use_template(self, source: str) -> None:
        """Chats are written by this chat template (Jinja) from now on. Raises InputError."""
        tokens = {} if self.chat_template is None else self.chat_template.tokens
        template = ChatTemplate(source, tokens)
        template.check()
        self.chat_template = template

    def chat_prompt(self, messages: Messages, tools: Any = None) -> list[int]:
        """The ids that a chat becomes by the model's template, up to where the answer begins."""
        return self._read_chat(messages, tools)[0]

    def _read_chat(
        self, messages: Messages, tools: Any = None, images: Sequence[Any] = ()
    ) -> tuple[list[int], Images | None]:
        if not isinstance(self.sight, str):
            messages, images = parted(messages, images)
        text = chat_text(self.chat_template, self.tokenizer, messages, tools)
        return self._read_prompt(text, images, bare=True)

    # --- whole texts

    def embed(
        self, texts: str | Sequence[str], pooling: str = "mean", normalize: bool = True
    ) -> Array:
        """A vector for each text, float32 (hidden,) or (texts, hidden), of length 1 if normalized.

        The "mean" of the model's last hidden states over the tokens, or that of the "last" one.
        """
        rows = [texts] if isinstance(texts, str) else [*texts]
        if not rows:
            return np.zeros((0, self.model.config.hidden_size), np.float32)
        pooled = self.programs.program(
            ("embed", (pooling,)), lambda: whole_texts.pooled(self.model, self.context, pooling)
        )
        vectors = np.stack([pooled(ids=np.array(self.encode(row), np.int32))["y"] for row in rows])
        if normalize:
            # A vector of zeros stays one; dividing it by its length would make it NaN.
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
        return vectors[0] if isinstance(texts, str) else vectors

    def score(self, text: str) -> Array:
        """The log-probability of each token after the first, given those before it: float32."""
        scored = self.programs.program(
            ("score", ()), lambda: whole_texts.scored(self.model, self.context)
        )
        ids = np.array(self.encode(text), np.int32)
        if len(ids) == 1:
            return np.zeros(0, np.float32)
        scores: Array = scored(ids=ids)["y"]
        return scores

    # --- prompts kept on disk

    def save_prompt(self, prompt: str | Sequence[int], path: str | Path) -> None:
        """Writes the keys and values of a prompt to a file, for `load_prompt`."""
        text = self._text(prompt, 1)
        with self.programs.turn(self.programs.begin()):
            self.programs.read([text], ())
            write_prompt(path, self.programs, text)

    def load_prompt(self, path: str | Path) -> int:
        """Single texts that begin with the file's prompt go on from there; its number of tokens.

        Raises LoadError for a damaged file, or one of another model.
        """
        self._prefix = read_prompt(path, self.programs)
        return len(self._prefix.ids)

    # --- steps

    def _text(
        self,
        prompt: str | Sequence[int],
        max_tokens: int,
        *,
        images: Sequence[Any] = (),
        **options: Any,
    ) -> Text:
        return self._made(*self._read_prompt(prompt, images), max_tokens, **options)

    def _made(
        self,
        ids: list[int],
        images: Images | None,
        max_tokens: int,
        *,
        stop: str | Sequence[str] = (),
        constraint: Constraint | None = None,
        **sampling: Any,
    ) -> Text:
        strings: list[Any] = [*stop] if isinstance(stop, list | tuple) else [stop]
        for string in strings:
            if not isinstance(string, str) or not string:
                raise InputError(f"stop: {string!r} is no text to stop at; give a str")
        if constraint is not None:
            _check_kind("constraint", constraint, "matcher", "models.regex or models.json_schema")
        # Options are passed on from the command line and from other libraries' calls, where a
        # misspelt one would be left aside in silence.
        for name in sampling.keys() - {"seed", *SETTINGS}:
            options = ", ".join(("stop", "constraint", "images", "seed", *SETTINGS))
            near = suggestion(name, ("max_tokens", "draft", "n", *options.split(", ")))
            raise InputError(f"{name}: no such option; there are {options}{near}")
        settings, room = Sampling(**sampling), self.room(ids, max_tokens)
        vocab_size = self.model.config.vocab_size
        for token in settings.logit_bias:
            if token >= vocab_size:
                raise InputError(f"logit_bias: token {token} is not below {vocab_size}")
        matcher = constraint.matcher(self.tokenizer, vocab_size) if constraint else None
        return Text(self.tokenizer, ids, room, settings, strings, matcher, images)

    def room(self, ids: Sequence[int], max_tokens: int) -> int:
        """How many new tokens there may be: the last one needs no place in the caches."""
        return min(checked_count("max_tokens", max_tokens, 0), self.context - len(ids) + 1)

    def _begun(
        self,
        texts: Sequence[Text],
        logprobs: bool = False,
        draft: Draft | None = None,
        resume: bool = False,
    ) -> Iterator[list[tuple[int, str]]]:
        """Steps of these texts; what reads the prompt of one text alone is compiled now."""
        features = features_of(text.draw for text in texts)
        if logprobs:
            features = *features, "top_logprobs"
        if len(texts) == 1:
            # Of several texts the program depends on the longest, so it is compiled with their
            # first step.
            self.programs.reader(features, texts[0])
            self.stats.compile = self.programs.seconds
        return self._steps(texts, features, draft, resume)

    def _steps(
        self, texts: Sequence[Text], features: Features, draft: Draft | None, resume: bool
    ) -> Iterator[list[tuple[int, str]]]:
        """Every step's new tokens, with the characters that they make certain."""
        self.stats.begin(len(texts), sum(text.draw.prompt for text in texts))
        states = self.programs.begin()
        with self.programs.turn(states):
            if resume:
                self.programs.resume(texts[0])
            if self._prefix is not None and len(texts) == 1:
                self._prefix.restore(self.programs, texts[0])
        for begin in range(0, len(texts), MOST_ROWS):
            group, is_first = texts[begin : begin + MOST_ROWS], True
            while any(text.reason is None for text in group):
                with self.programs.turn(states), self._timed(is_first):
                    if draft is not None and not is_first:
                        pushed = accepted(self.programs, group[0], draft, self.stats)
                    else:
                        pushed = _pushed(group, self._read(group, features, is_first))
                self.stats.new_tokens = sum(len(text.tokens) for text in texts)
                is_first = False
                yield pushed

    def _read(self, texts: Sequence[Text], features: Features, is_first: bool) -> Results:
        """A step of these texts, of one alone with the step after it under way."""
        if not is_first and len(texts) == 1 and self.programs.can_read_ahead(texts[0], features):
            return self.programs.read_ahead(texts[0], features)
        return self.programs.read(texts, features)

    @contextmanager
    def _timed(self, is_first: bool) -> Iterator[None]:
        """Adds the time of a step to its phase, without that of compiling."""
        start, before = time.perf_counter(), self.programs.seconds
        yield
        compiled = self.programs.seconds - before
        elapsed = time.perf_counter() - start - compiled
        self.stats.compile += compiled
        if is_first:
            self.stats.prefill += elapsed
        else:
            self.stats.decode += elapsed


def _pushed(texts: Sequence[Text], results: Results) -> list[tuple[int, str]]:
    """The chosen tokens, pushed to the texts that are not done."""
    pushed = []
    for row, (text, token) in enumerate(zip(texts, results["tokens"].tolist(), strict=True)):
        # A text with recurrent layers reads its prompt a token at a time beside others; what the
        # model says before its end is not a choice yet.
        if text.reason is not None or len(text.unread):
            continue
        if "logprobs" in results:
            ranked = zip(results["top_tokens"][row], results["top_logprobs"][row], strict=True)
            top: tuple[Ranked, ...] = tuple((int(id_), float(value)) for id_, value in ranked)
            piece = text.push(token, float(results["logprobs"][row]), top)
        else:
            piece = text.push(token)
        pushed.append((token, piece))
    return pushed


def _check_kind(what: str, value: Any, method: str, makers: str) -> None:
    if isinstance(value, type) or not hasattr(value, method):
        raise InputError(f"{what}: {value!r} is none; make one with {makers}")


def _checked_ids(ids: Any, model: Decoder) -> list[int]:
    if not isinstance(ids, Sequence | np.ndarray):
        raise InputError(f"prompt: {ids!r} is no text; give a str, or token ids")
    size = model.config.vocab_size
    for token in ids:
        if not 0 <= checked_count("prompt: token", token, 0) < size:
            raise InputError(f"prompt: token {token} is not below {size}, the vocabulary's size")
    return [int(token) for token in ids]
