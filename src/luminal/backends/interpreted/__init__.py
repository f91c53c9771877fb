"""The interpreted backend: tile IR run by its meaning, on memory apart from the host's."""
