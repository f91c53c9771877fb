"""What users work with: Graph, compile, jit, the default graph."""
