"""OLMo 2 and 3: norms after attention and feed-forward, and over queries and keys.

arXiv 2501.00656, 2512.13961.
"""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import NORMS_AFTER, Architecture
from luminal.models.architectures.layers import layers_of_two_rotaries
from luminal.models.architectures.settings import attention_biases, epsilon, refuse
from luminal.models.decoder_config import Layers
from luminal.models.gguf.form import ANY_LAYER, GGUF


def _layers_of_olmo3(fields: Fields) -> Layers:
    """Three layers of four slide; only the others scale their positions."""
    if not fields.section("rope_parameters"):
        refuse(fields, rope_theta=5e5)  # versions of transformers give another to other layers
    # Nothing of the scaling is for layers with a window: these never see further than the training
    # did.
    near = Fields({}, fields.path)
    return layers_of_two_rotaries(fields, lambda layer: (layer + 1) % 4 != 0, near, 5e5)


_SETTINGS = {
    **attention_biases(),
    "norm_eps": epsilon(1e-5),
    "norm_place": "after",
    "qk_norm": "projection",
}

OLMO3 = Architecture(
    "Olmo3ForCausalLM",
    _SETTINGS,
    NORMS_AFTER,
    layers=_layers_of_olmo3,
    gguf=GGUF(
        "olmo2",
        "olmo3",
        windowed=ANY_LAYER,
        windows=4,
        local_theta=0.0,
        only_with=("attention.sliding_window",),
    ),
)
OLMO2 = Architecture(
    "Olmo2ForCausalLM",
    _SETTINGS,
    NORMS_AFTER,
    gguf=GGUF("olmo2", only_without=("attention.sliding_window",)),
)
