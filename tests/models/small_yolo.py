"""Small YOLO models of PyTorch saved to files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")
torch_yolo = pytest.importorskip("tests.models.torch_yolo")
SIZE = 64
LABELS = {"0": "cat", "1": "dog", "2": "cow"}
SMALL = {"depth_multiple": 1 / 3, "width_multiple": 1 / 16, "max_channels": 512}
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "v8": ("YOLOv8", torch_yolo.V8, {**SMALL, "depth_multiple": 2 / 3}),
    "v11": ("YOLO11", torch_yolo.V11, SMALL),
    "v11_of_more_heads": ("YOLO11", torch_yolo.V11, {**SMALL, "width_multiple": 0.5}),
}


def saved(kind: str, folder: Path) -> Any:
    """A random model of PyTorch, also written to the folder."""
    name, table, options = KINDS[kind]
    torch.manual_seed(0)
    model = torch_yolo.Yolo(
        table,
        len(LABELS),
        options["depth_multiple"],
        options["width_multiple"],
        options["max_channels"],
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 4:
                torch.nn.init.normal_(parameter, std=1.5 * parameter[0].numel() ** -0.5)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.05)
        for path, buffer in model.named_buffers():
            if path.endswith("running_mean"):
                buffer.copy_(torch.randn_like(buffer) * 0.1)
            elif path.endswith("running_var"):
                buffer.copy_(torch.rand_like(buffer) + 0.5)
    write(folder, model.state_dict(), architectures=[name], **options)
    return model


def write(folder: Path, weights: dict[str, Any], **config: Any) -> None:
    safetensors.save_file(weights, folder / "model.safetensors")
    settings = {"id2label": LABELS, "image_size": SIZE, **config}
    (folder / "config.json").write_text(json.dumps(settings))
