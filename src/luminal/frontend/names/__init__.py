"""Under which names operations are offered: as methods, functions, and as NumPy calls them."""
