"""Small models for servers with drafts, and the two ways to choose that their programs need."""

from __future__ import annotations

from dataclasses import replace

import luminal as lm
from luminal.models.decoder import Decoder
from luminal.serve import program
from tests.serve.running import CONFIG

WAYS = ((), program.FEATURES)


def model(seed: int) -> Decoder:
    lm.manual_seed(seed)
    return Decoder(CONFIG if seed == 5 else replace(CONFIG, layers=CONFIG.layers[:1]))
