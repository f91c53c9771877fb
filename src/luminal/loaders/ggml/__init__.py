"""The types of tensors in GGUF files: plain numbers, and blocks of packed ones that are decoded."""
