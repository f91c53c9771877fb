"""What a client asks for: bodies of OpenAI's completions and chat completions, checked.

https://platform.openai.com/docs/api-reference has the fields. `top_k`, `min_p` and
`repetition_penalty` are additions that other servers know as well.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, NamedTuple, Protocol

from luminal.base.records import dataclass
from luminal.loaders.shown import shown
from luminal.models.sampling import Sampling
from luminal.models.seeing.record import Prepared
from luminal.serve.conversation import messages_of
from luminal.serve.errors import ApiError, refused
from luminal.serve.fields import Fields
from luminal.serve.pictures import Pictures
from luminal.serve.tools import Schema, form_of, tools_of
from luminal.serve.words import Chat

DEFAULT_TOKENS = 16
"""`max_tokens` of a completion, where OpenAI's documentation has the same number."""

TEXTS, FILES = 1 << 20, 25 << 20
"""Bytes of a request that has texts, and of one that may have sound or images."""

MOST_LOGPROBS = 5  # of a completion's tokens
MOST_STOPS = 4
LONGEST_STOP = 1024  # characters: a text is searched for all that may be the beginning of one
MOST_BIASES = 300


@dataclass(frozen=True, slots=True)
class Limits:
    """What a client may ask for; more is refused."""

    body: int = TEXTS
    """Bytes of a request."""
    new_tokens: int = 4096
    texts: int = 16
    """Prompts times choices of one request."""
    vectors: int = 256
    """Texts of one request for vectors."""
    queue: int = 256
    """Texts that wait for a place."""
    images: int = 16
    """Those of one request."""
    pixels: int = 1 << 25
    """Those of one image, which some bytes of a file may stand for."""
    seconds: float = 600.0
    """A request is ended after so long."""


@dataclass(frozen=True, slots=True)
class Order:
    """A checked request. `count` texts for each prompt; text i of all has the sampling's seed + i.

    `logprobs`: so many likeliest tokens come with each token; None: no log-probabilities.
    """

    prompts: tuple[tuple[int, ...], ...]
    count: int
    new_tokens: int
    sampling: Sampling
    stops: tuple[str, ...]
    logprobs: int | None
    stream: bool
    usage_in_stream: bool
    schema: Schema | None = None
    """What all of the text obeys."""
    tools: tuple[str, ...] = ()
    """The names of the functions that the text may call."""
    echo: bool = False
    """Whether the prompt is given before the text, with its log-probabilities."""
    calls: int | None = None
    """Of so many of its calls a text is told; None: of all."""
    images: tuple[Prepared, ...] = ()
    """Those in its only prompt."""
    told: Mapping[str, Any] = field(default_factory=dict)
    """What the answer says of the request, where its form has that."""
    adapter: int = 0
    """The number of the adapter that the model answers with; 0: none."""

    def sampling_of(self, number: int) -> Sampling:
        """How text `number` of all chooses."""
        # Each text has a seed of its own, or the n choices of a prompt would all be the same text.
        return replace(self.sampling, seed=(self.sampling.seed + number) % 2**63)


class Vocabulary(Protocol):
    """What reading a prompt needs of a model."""

    @property
    def vocab_size(self) -> int:
        """Ids are below this."""

    @property
    def context(self) -> int:
        """The most tokens of a text."""

    def encode(self, text: str) -> list[int]:
        """The tokens of a prompt."""

    def encode_chat(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]
    ) -> Chat:
        """A conversation that the assistant goes on with."""

    def image(self, data: bytes, most: int) -> Prepared:
        """An image of at most so many pixels. Raises InputError."""


def completion(body: Fields, words: Vocabulary, limits: Limits) -> Order:
    """The order of a body of `/v1/completions`. Raises ApiError."""
    prompts = prompts_of(body.needed("prompt"), words)
    count = body.integer("n", 1, limits.texts, 1)
    # OpenAI's `best_of` writes more texts than it gives. Doing so quietly would cost a client time
    # that it cannot see.
    if body.integer("best_of", 1, limits.texts, count) != count:
        raise refused("best_of", "it must be n: all texts are given")
    if body.get("suffix"):
        raise refused("suffix", "it is not supported; leave it out")
    echo = body.flag("echo")
    order = order_of(
        body,
        words,
        limits,
        prompts=prompts,
        count=count,
        new_tokens=body.integer("max_tokens", 0 if echo else 1, limits.new_tokens, DEFAULT_TOKENS),
        logprobs=body.integer("logprobs", 0, MOST_LOGPROBS),
        echo=echo,
    )
    body.end()
    return order


def chat(body: Fields, words: Vocabulary, limits: Limits) -> Order:
    """The order of a body of `/v1/chat/completions`. Raises ApiError."""
    messages = messages_of(body, Pictures(words, limits))
    count = body.integer("n", 1, limits.texts, 1)
    new = body.integer("max_tokens", 1, limits.new_tokens)
    # The older name is the default of the newer one, which wins where a client sends both.
    new = body.integer("max_completion_tokens", 1, limits.new_tokens, new)
    top = body.integer("top_logprobs", 0, 20, 0)
    wanted = body.flag("logprobs")
    tools = tools_of(body)
    schema, names = form_of(body, tools)
    ids, images = words.encode_chat(messages, tools)
    order = order_of(
        body,
        words,
        limits,
        prompts=(tuple(ids),),
        count=count,
        new_tokens=min(limits.new_tokens, max(1, words.context - len(ids))) if new is None else new,
        logprobs=top if wanted else None,
        schema=schema,
        tools=names,
        images=(*images,),
        calls=None if body.flag("parallel_tool_calls", True) else 1,
    )
    body.end()
    return order


class Ready(NamedTuple):
    """An answer that needs no run of the model: an object of JSON."""

    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Vectors:
    """What `/v1/embeddings` is asked for; `form`: "float" or "base64"; `adapter`: see Order."""

    prompts: tuple[tuple[int, ...], ...]
    form: str
    adapter: int = 0


def embeddings(body: Fields, words: Vocabulary, limits: Limits) -> Vectors:
    """The texts of a body of `/v1/embeddings`. Raises ApiError."""
    prompts = prompts_of(body.needed("input"), words, "input")
    if len(prompts) > limits.vectors:
        raise refused("input", f"{len(prompts)} texts; at most {limits.vectors}")
    for ids in prompts:
        if len(ids) > words.context:
            raise refused("input", f"{len(ids)} tokens; at most {words.context}")
    form = body.choice("encoding_format", ("float", "base64"), "float")
    if body.get("dimensions") is not None:
        raise refused("dimensions", "it is not supported; leave it out")
    body.ignore("model", "user")
    body.end()
    return Vectors(prompts, form)


def order_of(body: Fields, words: Vocabulary, limits: Limits, **specific: Any) -> Order:
    """What both kinds of requests have, and what one kind has, the `specific`."""
    prompts = specific["prompts"]
    if len(prompts) * specific["count"] > limits.texts:
        raise refused(
            "n", f"{len(prompts)} prompts times {specific['count']} texts; at most {limits.texts}"
        )
    # Checked before the engine, whose answer would come after a wait in the queue.
    for ids in prompts:
        if len(ids) + specific["new_tokens"] > words.context:
            raise ApiError(
                400,
                f"This model's maximum context length is {words.context} tokens; the prompt has "
                f"{len(ids)}, and {specific['new_tokens']} were asked for. Shorten one of them.",
                "max_tokens" if len(ids) < words.context else "prompt",
                "context_length_exceeded",
            )
    stream = body.flag("stream")
    options = body.object("stream_options")
    if options is not None and not stream:
        raise refused(
            "stream_options", "it is for streams only; give stream: true, or leave it out"
        )
    usage = options is not None and options.flag("include_usage")
    if options is not None:
        options.ignore("include_obfuscation")
        options.end()
    body.ignore("model", "user", "metadata", "store", "service_tier", "safety_identifier")
    body.ignore("prompt_cache_key", "prompt_cache_retention")
    common: dict[str, Any] = {"stream": stream, "usage_in_stream": usage}
    if "sampling" not in specific:
        common |= {"sampling": sampling_of(body, words), "stops": stops_of(body.get("stop"))}
    return Order(**common, **specific)


def prompts_of(value: Any, words: Vocabulary, name: str = "prompt") -> tuple[tuple[int, ...], ...]:
    """The prompts that a field has: a text, a list of texts, a list of ids or of lists of ids.
    Raises ApiError.
    """
    if isinstance(value, str):
        prompts: list[Any] = [value]
    elif isinstance(value, list) and value:
        # A list of ints is one prompt of tokens, any other list is several prompts.
        prompts = [value] if type(value[0]) is int else value
    else:
        raise refused(name, f"{shown(value)} is no text, no list of texts or token ids")
    return tuple(_prompt(prompt, words, name) for prompt in prompts)


def _prompt(value: Any, words: Vocabulary, name: str) -> tuple[int, ...]:
    if isinstance(value, str):
        ids = words.encode(value)
    elif isinstance(value, list) and all(type(token) is int for token in value):
        ids = value
        for token in ids:
            if not 0 <= token < words.vocab_size:
                raise refused(name, f"{shown(token)} is no token; ids are below {words.vocab_size}")
    else:
        raise refused(name, f"{shown(value)} is no text and no list of token ids")
    if not ids:
        raise refused(name, "it has no tokens; give some text")
    return tuple(ids)


def stops_of(value: Any, name: str = "stop") -> tuple[str, ...]:
    """The texts at which a text ends. Raises ApiError."""
    texts = [value] if isinstance(value, str) else [] if value is None else value
    fine = isinstance(texts, list) and len(texts) <= MOST_STOPS
    if not fine or not all(isinstance(text, str) and text for text in texts):
        raise refused(name, f"{shown(value)} is no text and no list of at most {MOST_STOPS} texts")
    longest = max(map(len, texts), default=0)
    if longest > LONGEST_STOP:
        raise refused(name, f"a text of {longest} characters; at most {LONGEST_STOP}")
    return tuple(texts)


def sampling_of(body: Fields, words: Vocabulary) -> Sampling:
    top_k = body.integer("top_k", -1, words.vocab_size)
    bias, seed = body.object("logit_bias"), body.integer("seed", -(2**63), 2**63 - 1)
    return Sampling(
        temperature=body.number("temperature", 0, 2, 1.0),
        top_k=top_k if top_k and top_k > 0 else None,  # 0 and -1 stand for all
        top_p=max(body.number("top_p", 0, 1, 1.0), 1e-9),  # 0 leaves the likeliest
        min_p=body.number("min_p", 0, 1, 0.0),
        presence_penalty=body.number("presence_penalty", -2, 2, 0.0),
        frequency_penalty=body.number("frequency_penalty", -2, 2, 0.0),
        repetition_penalty=body.number("repetition_penalty", 0.01, 10, 1.0),
        logit_bias={} if bias is None else _biases(bias, words),
        seed=secrets.randbits(63) if seed is None else seed % 2**63,
    )


def _biases(bias: Fields, words: Vocabulary) -> dict[int, float]:
    biases: dict[int, float] = {}
    if len(bias.names) > MOST_BIASES:
        raise refused("logit_bias", f"{len(bias.names)} tokens; at most {MOST_BIASES}")
    for key in bias.names:
        if not (key.isascii() and key.isdigit() and len(key) < 10 and int(key) < words.vocab_size):
            raise refused(
                "logit_bias", f"{shown(key)} is no token; ids are below {words.vocab_size}"
            )
        biases[int(key)] = bias.number(key, -100, 100, 0.0)
    return biases
