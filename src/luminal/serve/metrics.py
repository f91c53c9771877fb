"""What a server counts, in Prometheus's text format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from luminal.serve.engine import Engine

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)  # seconds


class _Load:
    """An engine's figures, read when they are asked for."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Any]:
        """Gives the metrics as they are now."""
        load = self._engine.load
        gauges = {
            "running": ("Texts that have blocks", load.running),
            "waiting": ("Texts that wait for blocks", load.waiting),
            "blocks": ("Blocks of the cache", load.blocks),
            "free_blocks": ("Blocks that no text holds", load.free_blocks),
        }
        counters: dict[str, tuple[str, float]] = {
            "preemptions": ("Texts that gave their blocks back", load.preemptions),
            "steps": ("Runs of the model", load.steps),
            "step_seconds": ("Seconds spent in them", load.seconds),
            "computed_tokens": ("Tokens that ran", load.computed),
            "proposed_tokens": ("Tokens that a draft proposed", load.proposed),
            "accepted_tokens": ("Of these, tokens that were right", load.accepted),
        }
        for name, (text, now) in gauges.items():
            yield GaugeMetricFamily(f"luminal_{name}", text, value=now)
        for name, (text, total) in counters.items():
            yield CounterMetricFamily(f"luminal_{name}", text, value=total)


class Metrics:
    """A server's counters and histograms."""

    def __init__(self, engine: Engine | None = None) -> None:
        self._registry = registry = CollectorRegistry()
        if engine is not None:
            registry.register(_Load(engine))
        self.requests = Counter(
            "luminal_requests", "Answers", ("path", "status"), registry=registry
        )
        self.prompt_tokens = Counter("luminal_prompt_tokens", "Tokens read", registry=registry)
        self.cached_tokens = Counter(
            "luminal_cached_tokens", "Tokens of prompts found in the cache", registry=registry
        )
        self.new_tokens = Counter("luminal_new_tokens", "Tokens written", registry=registry)
        self.first_token = Histogram(
            "luminal_first_token_seconds",
            "From a request to its first token",
            buckets=BUCKETS,
            registry=registry,
        )
        self.seconds = Histogram(
            "luminal_request_seconds",
            "From a request to the end of its answer",
            buckets=BUCKETS,
            registry=registry,
        )

    def text(self) -> bytes:
        """All metrics in Prometheus's text form."""
        return generate_latest(self._registry)
