"""Models on the Hugging Face Hub, downloaded once and then taken from its cache."""

from __future__ import annotations

import re
from pathlib import Path

from luminal.base.errors import LoadError

# What a checkpoint is read from; */* leaves out other formats' copies in subfolders.
_FILES = ["*.json", "*.safetensors"]
_SUBFOLDERS = ["*/*"]

_ID = re.compile(r"[\w.-]+/[\w.-]+")


def is_hub_id(text: str) -> bool:
    """Whether `text` has the form owner/name and does not end as the path of a file would."""
    return (
        _ID.fullmatch(text) is not None
        and not text.startswith(".")
        and not text.endswith((".gguf", ".bin", ".safetensors", ".json"))
    )


def fetch(model_id: str) -> Path:
    """The folder of a model's files, from the Hub or from its cache on this machine.

    Raises LoadError where the Hub does not answer or does not have it and it is not in the cache.
    """
    # Imported here because it is slow and only this needs it.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        folder = snapshot_download(model_id, allow_patterns=_FILES, ignore_patterns=_SUBFOLDERS)
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise LoadError(
            f"{model_id}: not a folder here, not in the Hugging Face cache, and the Hub did not "
            f"give it ({reason}); pass the path of a folder with config.json and "
            f"model.safetensors, or of a .gguf or .bin file"
        ) from error
    return Path(folder)
