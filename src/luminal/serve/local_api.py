"""The paths of programs that run models at home, Ollama and llama.cpp's server, on an Api.

https://docs.ollama.com/api and
https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md have them.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from luminal.base.installation import VERSION
from luminal.frontend.matrices.packed import Packed
from luminal.serve.application import json_answer
from luminal.serve.errors import OLLAMA
from luminal.serve.fields import parse
from luminal.serve.llama_cpp import LlamaCppReplies
from luminal.serve.ollama_order import now
from luminal.serve.ollama_replies import OllamaReplies, nanoseconds
from luminal.serve.reading import named, number_of
from luminal.serve.replies import Replies

if TYPE_CHECKING:
    from luminal.serve.app import Api
    from luminal.serve.orders import Order

POST = ["POST"]


class LocalApi:
    """Handlers of these paths; texts, vectors and limits are those of `api`."""

    def __init__(self, api: Api) -> None:
        self._api, self._began = api, now()
        self.routes = [
            Route(OLLAMA + "chat", self.chat, methods=POST),
            Route(OLLAMA + "generate", self.generate, methods=POST),
            Route(OLLAMA + "embed", self.embed, methods=POST),
            Route(OLLAMA + "show", self.show, methods=POST),
            Route(OLLAMA + "tags", self.tags),
            Route(OLLAMA + "version", self.version),
            Route("/completion", self.completion, methods=POST),
            Route("/tokenize", self.tokens, methods=POST),
            Route("/detokenize", self.tokens, methods=POST),
            Route("/props", self.props),
        ]

    # --- Ollama

    async def chat(self, request: Request) -> Response:
        """Answers a POST to /api/chat."""
        return await self._ollama(request, True)

    async def generate(self, request: Request) -> Response:
        """Answers a POST to /api/generate."""
        return await self._ollama(request, False)

    async def _ollama(self, request: Request, is_chat: bool) -> Response:
        start = time.perf_counter()

        def form(order: Order) -> Replies:
            return OllamaReplies(self._api.names[order.adapter], start, is_chat, order.tools)

        return await self._api.written(request, form)

    async def embed(self, request: Request) -> Response:
        """Answers a POST to /api/embed."""
        start = time.perf_counter()
        asked, vectors = await self._api.vectors(request)
        return json_answer(
            {
                "model": self._api.names[asked.adapter],
                "embeddings": [vector.tolist() for vector in vectors],
                "total_duration": nanoseconds(time.perf_counter() - start),
                "load_duration": 0,
                "prompt_eval_count": sum(map(len, asked.prompts)),
            }
        )

    async def show(self, request: Request) -> Response:
        """Answers a POST to /api/show: what the model is and can do."""
        body = parse(await self._api.body(request))
        name = body.get("model") or body.get("name") or body.needed("model")
        number_of(named(OLLAMA, name, self._api.names), self._api.names)
        words, config = self._api.served.words, self._api.served.engine.model.config
        can = ["completion", "embedding"]
        can += ["vision"] * self._sees + ["tools"] * (words.template is not None)
        sizes = {
            "context_length": words.context,
            "embedding_length": config.hidden_size,
            "block_count": config.num_hidden_layers,
        }
        return json_answer(
            {
                "modelfile": "",
                "parameters": "",
                "template": self._template,
                "details": self._details,
                "model_info": {
                    "general.architecture": "luminal",
                    "general.parameter_count": self._parameters,
                    **{f"luminal.{key}": value for key, value in sizes.items()},
                },
                "capabilities": can,
                "modified_at": self._began,
            }
        )

    async def tags(self, _: Request) -> Response:
        """Answers a GET of /api/tags: all models, in the form of those that are installed."""
        about: dict[str, Any] = {"modified_at": self._began, "digest": "", "size": self._bytes}
        about["details"] = self._details
        models = [{"name": name, "model": name} | about for name in self._api.names]
        return json_answer({"models": models})

    async def version(self, _: Request) -> Response:
        """Answers a GET of /api/version."""
        return json_answer({"version": VERSION})

    # --- llama.cpp

    async def completion(self, request: Request) -> Response:
        """Answers a POST to /completion."""
        start = time.perf_counter()
        return await self._api.written(
            request, lambda _: LlamaCppReplies(self._api.names[0], start)
        )

    async def tokens(self, request: Request) -> Response:
        """Answers a POST to /tokenize and /detokenize."""
        return await self._api.ready(request)

    async def props(self, _: Request) -> Response:
        """Answers a GET of /props: what a client may need to know of the model."""
        served = self._api.served
        return json_answer(
            {
                "default_generation_settings": {"n_ctx": served.context},
                "total_slots": served.engine.options.rows,
                "model_path": self._api.names[0],
                "chat_template": self._template,
                "modalities": {"vision": self._sees, "audio": False},
                "build_info": f"luminal {VERSION}",
            }
        )

    # --- the model

    @property
    def _sees(self) -> bool:
        return self._api.served.sight is not None

    @property
    def _template(self) -> str:
        template = self._api.served.words.template
        return "" if template is None else template.source

    @property
    def _details(self) -> dict[str, Any]:
        """What is known of a model's kind: of its file nothing is kept."""
        size = f"{self._parameters / 1e9:.1f}B"
        return {
            "parent_model": "",
            "format": "",
            "family": "",
            "families": [],
            "parameter_size": size,
            "quantization_level": "",
        }

    @property
    def _parameters(self) -> int:
        """How many numbers the model has."""
        held = self._api.served.engine.model.parameters()
        return sum(math.prod(parameter.shape) for parameter in held)

    @property
    def _bytes(self) -> int:
        """How many bytes these take."""
        return sum(
            held.nbytes if isinstance(held, Packed) else math.prod(held.shape) * held.dtype.size
            for held in self._api.served.engine.model.parameters()
        )
