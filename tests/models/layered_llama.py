"""A small Llama of any number of layers, and its graph of one token."""

from __future__ import annotations

from typing import Any

import numpy as np

import luminal as lm
from luminal import nn
from luminal.models.llama import Llama, LlamaConfig

LONGEST = 24


def llama(layers: int, dtype: Any = np.float32) -> Llama:
    nn.init.manual_seed(0)
    config = LlamaConfig(32, 48, layers, 4, 2, 8, 64, LONGEST)
    model = Llama(config, dtype)
    model.eval()
    return model


def decode(model: Llama) -> lm.Graph:
    cx = lm.Graph()
    past = cx.dim("past", 0, LONGEST - 1)
    ids = cx.tensor((1,), np.int64, "ids")
    model(ids, model.make_caches(LONGEST), past).output("logits")
    return cx
