"""Models in GGUF files as those of Hugging Face: the configuration, and the weights by name."""
