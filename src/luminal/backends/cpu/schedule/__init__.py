"""The CPU's choice points: tiles, panels, strips, lanes, blocks and chunks, and their defaults."""
