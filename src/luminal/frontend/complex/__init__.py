"""Complex numbers: pairs of real Tensors, and what is done with both parts."""
