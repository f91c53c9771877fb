"""Automatic differentiation: a graph and a loss become the same graph with more nodes.

`rules.py` has the derivative of every primitive, `views.py` that of index maps, `loop.py` that of
Loops; `reverse.py` walks back from the loss; `transforms.py` and
`jacobians.py` have what users call, and `of_outputs.py` what PyTorch has as torch.autograd.grad.
"""

from luminal.autograd.of_outputs import grad

__all__ = ["grad"]
