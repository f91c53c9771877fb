"""Optimizers, which record a training step into its loss's graph, and schedules of their rates.

`optimizer.py` is what all share: groups, States, recording; `formula.py` what the formulas share;
every algorithm is a module with a function of Tensors (`..._on_graph`) and a class.
"""

from luminal.base.near_names import with_suggestions
from luminal.optim import lr_scheduler
from luminal.optim.adadelta import Adadelta, adadelta_on_graph
from luminal.optim.adagrad import Adagrad, adagrad_on_graph
from luminal.optim.adam import Adam, AdamW, adam_on_graph
from luminal.optim.adamax import Adamax, adamax_on_graph
from luminal.optim.clip import clip_grad_norm, clip_grad_value, grad_norm
from luminal.optim.lamb import LAMB, lamb_on_graph
from luminal.optim.lion import Lion, lion_on_graph
from luminal.optim.muon import Muon, muon_on_graph
from luminal.optim.nadam import NAdam, nadam_on_graph
from luminal.optim.optimizer import Optimizer
from luminal.optim.radam import RAdam, radam_on_graph
from luminal.optim.rmsprop import RMSProp, RMSprop, rmsprop_on_graph
from luminal.optim.sgd import SGD, sgd_momentum_on_graph, sgd_on_graph

__all__ = [
    "LAMB",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSProp",
    "RMSprop",
    "adadelta_on_graph",
    "adagrad_on_graph",
    "adam_on_graph",
    "adamax_on_graph",
    "clip_grad_norm",
    "clip_grad_value",
    "grad_norm",
    "lamb_on_graph",
    "lion_on_graph",
    "lr_scheduler",
    "muon_on_graph",
    "nadam_on_graph",
    "radam_on_graph",
    "rmsprop_on_graph",
    "sgd_momentum_on_graph",
    "sgd_on_graph",
]

with_suggestions(each for each in map(globals().get, __all__) if isinstance(each, type))
