"""What a compiled program needs while it runs: memory, caches, the executable."""
