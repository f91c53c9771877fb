"""The model that comes with Luminal: `docs/shipped-model.md` says how it was made."""

from pathlib import Path

SHIPPED = Path(__file__).parents[1] / "data" / "shakespeare"
"""Its folder, as `load` reads it."""
