"""Random numbers by keys, and what draws them."""
